"""Other random numbers in each pass over a dataset, as a run without a seed has them.

A trial sets the seed of the whole process, so that two runs draw the same. TensorFlow then gives the random ops inside
a function a fixed seed, and each new iterator begins their numbers anew: an epoch would repeat the one before, which a
training without that seed does not see.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

_APART: Final = 1_000_003


def draws_from_seeds(graph: Any) -> bool:
    """Whether a function of the graph draws from seeds that begin anew with each iterator."""
    return any(_seeded(node) for function in graph.library.function for node in function.node_def)


def reseeded(graph: Any, epoch: int) -> Any:
    """The graph with other seeds of the random ops in its functions: those of that epoch, the same in every run."""
    edited = tf.compat.v1.GraphDef()
    edited.CopyFrom(graph)
    for function in edited.library.function:
        for node in function.node_def:
            if _seeded(node):
                node.attr["seed"].i = (node.attr["seed"].i + epoch * _APART) % (2**31 - 1)
    return edited


def _seeded(node: Any) -> bool:
    if "seed" not in node.attr or "seed2" not in node.attr or not (node.attr["seed"].i or node.attr["seed2"].i):
        return False
    definition = op_def_registry.get(node.op)
    return definition is not None and bool(definition.is_stateful)
