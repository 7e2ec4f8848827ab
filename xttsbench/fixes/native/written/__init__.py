"""A traced function as text, which goes into the user's source."""
