"""Speed of a pipeline beside a step, worked out from its record: pure, and free of TensorFlow."""
