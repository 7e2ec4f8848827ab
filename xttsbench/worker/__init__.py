"""The child: one trial per process, forked from a helper that has imported TensorFlow and run nothing."""
