"""Data sets in LJSpeech's layout, their feature caches, and which clips form a batch. Never imports TensorFlow."""
