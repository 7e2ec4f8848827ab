"""Kinds of targets: a dataset, a dataset with a step, a compiled Keras model, or a workload with tunables."""
