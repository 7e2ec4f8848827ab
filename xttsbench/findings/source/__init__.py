"""Rules from the text of the user's source."""
