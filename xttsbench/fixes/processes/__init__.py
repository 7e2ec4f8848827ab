"""The Python functions of a dataset in a pool of processes, so that they do not wait for one interpreter lock.

``rewrite`` edits the graph, ``packing`` copies the functions, ``workers`` is the pool on this side, ``work`` the
process on the other one, ``channel`` what they talk through, and ``restored`` and ``seeds`` what the worker makes again
instead of copying it. A worker imports this package, so nothing is imported here that needs TensorFlow.
"""
