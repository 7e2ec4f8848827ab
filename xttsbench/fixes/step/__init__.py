"""Fixes of the training step."""
