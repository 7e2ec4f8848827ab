"""What is read of a machine and of one process for hours: each reading by itself, at a small and bounded cost."""
