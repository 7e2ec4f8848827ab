"""Simulation of a pipeline's speed beside a step, from its record: pure, and free of TensorFlow."""
