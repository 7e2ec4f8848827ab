"""A script that runs unchanged, and what is seen of it from outside its code."""
