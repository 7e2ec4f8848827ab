"""Several files read at a time."""
