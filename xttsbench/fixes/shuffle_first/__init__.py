"""A shuffle before the maps in front of it."""
