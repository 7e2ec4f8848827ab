"""The order of the elements given up."""
