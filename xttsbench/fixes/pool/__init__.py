"""A pool of processes that run the user's Python functions, for the fix ``processes``.

``packing`` copies the functions, ``workers`` is the pool on this side, ``work`` the process on the other one with the
channel between them. A worker imports this package, so nothing is imported here.
"""
