"""Whether a dataset op's function may be called for fewer elements, or for several at once: it must hold no state.

An op that TensorFlow marks as stateful may draw random numbers, write, print or advance something; it then matters how
often and in which order it runs. Those that only read (tables, variables) are let through, and Python functions where
the caller says so: what those do is looked at elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tensorflow.python.framework import op_def_registry

from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.registry import PYTHON_OPS

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
