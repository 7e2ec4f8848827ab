"""The tf.data graph of a dataset: read it, price its ops, judge its Python functions, rewrite it, prove it unchanged.

Modules here run in the process of a trial and may import TensorFlow. What needs only the record of a pipeline is in
:mod:`xttsbench.throughput` and :mod:`xttsbench.samedata`.
"""
