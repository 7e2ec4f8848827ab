"""Generators in processes of their own, ahead of what takes their elements."""
