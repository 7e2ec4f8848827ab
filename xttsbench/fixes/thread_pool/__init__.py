"""A private thread pool for the pipeline."""
