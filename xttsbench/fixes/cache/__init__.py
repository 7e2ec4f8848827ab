"""Elements kept from pass to pass."""
