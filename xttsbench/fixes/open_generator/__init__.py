"""Generators whose loop's body is called for several items at a time."""
