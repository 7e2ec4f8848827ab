"""Branches, loops and lists of Python's that values decide, as ops of TensorFlow."""
