"""Generators of the user's taken apart: what picks the next item, and what makes an element of it."""
