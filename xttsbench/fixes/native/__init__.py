"""Python functions that compute with NumPy, traced into TensorFlow's ops."""
