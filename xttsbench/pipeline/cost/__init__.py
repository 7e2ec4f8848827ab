"""What each op of a pipeline costs, and what its Python functions do to the interpreter lock: by running them."""
