"""Whether the user's Python functions give the same for the same arguments, read from their code; none is called."""
