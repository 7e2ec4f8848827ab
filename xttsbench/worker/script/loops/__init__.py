"""The loops of a script, and their steps: in Python, inside graphs, and which of them trains."""
