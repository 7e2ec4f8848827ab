"""Rules about the training step."""
