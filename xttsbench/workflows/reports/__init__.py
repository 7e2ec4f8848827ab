"""The report of each kind of run from its files: plan, environment and trials in, record out."""
