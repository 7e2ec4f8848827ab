"""What is wrong with a machine for TensorFlow: checks of what was read of it, each with its remedy; pure."""
