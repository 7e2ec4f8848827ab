"""How fast a pipeline would run beside a step, simulated from its record: pure, and free of TensorFlow."""
