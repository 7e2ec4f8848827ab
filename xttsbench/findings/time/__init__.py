"""Rules about variation in time."""
