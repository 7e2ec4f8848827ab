"""The functions of a graph: whether they hold state, and which of their nodes lead to their results.

An op that TensorFlow marks as stateful may draw random numbers, write, print or advance something; it then matters how
often and in which order it runs. Those that only read (tables, variables) are let through, and Python functions where
the caller says so: what those do is looked at elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from tensorflow.python.framework import op_def_registry

from xttsbench.pipeline.nodes import FunctionLibrary, node_inputs, node_of
from xttsbench.pipeline.source import PYTHON_OPS

_READS: Final = re.compile(
    r"LookupTable(Find|Size|Export)(V2)?|ReadVariableOp|ResourceGather(Nd)?|VarHandleOp|VarIsInitializedOp|\w*HashTable(V2)?"
    r"|(Stateful)?PartitionedCall|(Stateless)?(If|While|Case)|Assert|ReadFile|MatchingFiles"
)
"""Ops that are marked stateful, or call others, and change nothing."""


def state(library: FunctionLibrary, names: Iterable[str], *, python: bool) -> str | None:
    """The first op in the named functions, or in those that they reach, that holds state; ``None`` where none does.

    Args:
        library: the functions of the graph.
        names: of the functions to look through.
        python: whether calls of Python functions are let through.
    """
    for node in library.reach(names):
        definition = op_def_registry.get(node.op)
        if node.op in PYTHON_OPS:
            if not python:
                return str(node.op)
        elif definition is not None and definition.is_stateful and _READS.fullmatch(node.op) is None:
            return str(node.op)
    return None


def needed_nodes(function: Any) -> set[str]:
    """Names of the nodes that lead to a function's results, without those that these only wait for."""
    nodes = {node.name: node for node in function.node_def}
    waiting = [node_of(one) for one in function.ret.values()]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in found:
            found.add(name)
            waiting += node_inputs(nodes[name])
    return found
