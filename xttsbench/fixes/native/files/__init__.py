"""Text, paths, the files that they name and the audio in these, as ops of TensorFlow."""
