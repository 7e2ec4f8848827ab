"""From the rows of trials to the diagnosis, its verdict in words, and what to measure next. Pure."""
