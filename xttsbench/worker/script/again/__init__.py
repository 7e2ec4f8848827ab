"""A script that runs again: effects of its first run, memory that takes its writes, and the trials that it runs for."""
