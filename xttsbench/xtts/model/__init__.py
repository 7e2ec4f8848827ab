"""The speech model: latents of a reference, text and mel frames in one sequence, and its loss and gradients."""
