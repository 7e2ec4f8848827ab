"""The user's Python functions and generators, read from their source; none is called.

Whether a function gives the same for the same arguments, and what picks a generator's next item apart from what makes
an element of it.
"""
