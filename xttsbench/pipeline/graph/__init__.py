"""The graph of a dataset, read: its ops, parameters, functions, state, and the user's line that made each of them."""
