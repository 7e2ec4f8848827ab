"""The parent's side of a trial: helper process, pipe, limits, readings, journal. Never imports TensorFlow."""
