"""The order of the elements given up, where the user says that it does not matter."""
