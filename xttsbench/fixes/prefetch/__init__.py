"""Batches made ahead of the step."""
