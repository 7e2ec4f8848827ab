"""The tf.data graph of a dataset: read it, name its Python functions, price its ops, rewrite it, prove it unchanged.

Modules here run in the child process and may import TensorFlow; :mod:`xttsbench.pipeline.limits` and
:mod:`xttsbench.pipeline.gil` need none. Nothing is imported by the package itself, so that those two stay cheap.
"""
