"""The Python functions of a dataset in a pool of processes, so that they do not wait for one interpreter lock.

:mod:`~xttsbench.pipeline.process_pool.pooled` edits the graph, ``packing`` copies the functions, ``workers`` is the
pool on this side, ``work`` the process on the other one, ``channel`` what they talk through, and ``restored`` and
``seeds`` what the worker makes again instead of copying it. A worker imports this package, so nothing is imported here
that needs TensorFlow.
"""

from __future__ import annotations

from typing import Any


def in_processes(dataset: Any, count: int) -> Any:
    """A dataset whose Python functions (``numpy_function``, ``py_function``) run in ``count`` processes.

    The given dataset stays as it was: the new one has a graph of its own that names other functions. Generators stay
    in this process. The processes are ready when this returns, and end with the new dataset or with this process. A
    sequential ``map`` waits for each call, so make it parallel as well.

    A process loads TensorFlow where a function takes tensors, refers to it, or is written inside a function that
    AutoGraph converts; that is seconds at the start and some hundred megabytes each, and no GPU is used there.

    A call may come to any of the processes. What a function keeps between calls (a counter, a cache) is therefore kept
    in each process for itself, starting from its value now, and random numbers are others than in one process.

    Raises:
        InvalidInputError: no function to move; one that cannot be copied into another process, with its name, file,
            line and the object that cannot; one that cannot be loaded there; ``count`` below 1.
    """
    from xttsbench.pipeline.process_pool.pooled import pooled

    return pooled(dataset, count)
