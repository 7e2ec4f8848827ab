"""Rules about the input pipeline and its batches."""
