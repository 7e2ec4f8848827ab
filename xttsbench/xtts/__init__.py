"""The bundled speech workload: features, synthetic speech, text, data sets, batches and the model.

Nothing here knows that it is being measured. TensorFlow is imported by `model`, `loaders` and `evaluate` alone, which
only the process that measures or trains loads.
"""
