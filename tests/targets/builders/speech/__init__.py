"""A package of a project's own, whose modules make what the targets beside it return."""
