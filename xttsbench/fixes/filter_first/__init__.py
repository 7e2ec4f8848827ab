"""A filter before the maps that it does not need."""
