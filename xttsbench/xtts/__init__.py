"""The bundled speech workload: features, synthetic speech, text, data sets, batches and the model.

Nothing here knows that it is being measured. TensorFlow is imported by `model` and `workload` alone, which only the
worker process loads.
"""
