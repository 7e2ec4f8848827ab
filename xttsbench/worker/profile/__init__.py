"""Profiles of steps: their lines and ops in runs that no timing uses, and TensorFlow's own profile of a window."""
