"""Maps that call their function several times at once."""
