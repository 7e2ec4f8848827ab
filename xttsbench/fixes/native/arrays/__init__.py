"""Arrays, and what NumPy's functions of them become: ops of TensorFlow."""
