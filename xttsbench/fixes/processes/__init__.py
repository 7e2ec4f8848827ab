"""Python functions of a dataset in a pool of processes.

``rewrite`` edits the graph, ``packing`` copies the functions, ``workers`` is the pool on this side, ``work`` the
process on the other one, and ``channel`` what they talk through. A worker imports this package, so nothing is imported
here.
"""
