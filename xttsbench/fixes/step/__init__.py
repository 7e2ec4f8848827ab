"""Fixes of the training step: ``step:graph``, ``step:xla`` and ``step:buckets``."""
