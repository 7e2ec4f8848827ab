"""Filters that call their predicate several times at once."""
