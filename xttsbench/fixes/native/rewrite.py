"""A dataset's graph in which Python functions that compute with arrays are functions of TensorFlow's ops."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

from xttsbench.fixes.graph.edit import does_not_apply
from xttsbench.fixes.native.checked import checked, python_nodes
from xttsbench.pipeline.cost.cut import rename_calls, with_callers
from xttsbench.pipeline.graph.nodes import FunctionLibrary, copied
from xttsbench.pipeline.graph.registry import PYTHON_OPS

_FIX: Final = "native"
_numbers = itertools.count()


def native(graph: Any) -> Any:
    """The graph with every Python function that can be traced as ops; the others stay as they are.

    Raises:
        InvalidInputError: there is no Python function, or none that can be traced: each with file, line and reason.
    """
    found = checked(graph)
    traced = {one.token: one.traced.function for one in found if one.traced is not None}
    if not found:
        raise does_not_apply(_FIX, "the dataset has no Python function other than generators")
    if not traced:
        raise does_not_apply(_FIX, "; ".join(f"{one.name} cannot be traced: it {one.refused}" for one in found))
    return _with(graph, traced)


def _with(graph: Any, traced: Mapping[str, Any]) -> Any:
    """The graph with calls of traced functions in place of calls of Python, in copies of the functions they are in."""
    edited = copied(graph)
    functions = edited.library.function
    changed = {
        function.signature.name
        for function in functions
        if any(node.attr["token"].s.decode() in traced for node in python_nodes(function))
    }
    renamed, suffix = with_callers(functions, changed), f"_xttsbench_native_{next(_numbers)}"
    for function in functions:
        if function.signature.name in renamed:
            function.signature.name += suffix
        for node in function.node_def:
            rename_calls(node, renamed, suffix)
            token = node.attr["token"].s.decode() if node.op in PYTHON_OPS else ""
            if token in traced:
                _call(node, traced[token])
    for node in edited.node:
        rename_calls(node, renamed, suffix)
    known = {function.signature.name for function in functions}
    for one in traced.values():
        for definition in (one.function_def, *one.graph.as_graph_def().library.function):
            if definition.signature.name not in known:
                known.add(definition.signature.name)
                functions.add().CopyFrom(definition)
    library = FunctionLibrary(functions)
    for function in functions:
        if function.signature.name.endswith(suffix):
            function.signature.is_stateful = library.stateful([function.signature.name])
    return edited


def _call(node: Any, function: Any) -> None:
    """Turn a node that calls Python into one that calls a function of the graph, in place."""
    given, results = list(node.attr["Tin"].list.type), list(node.attr["Tout"].list.type)
    node.op = "PartitionedCall"
    for name in [name for name in node.attr if not name.startswith("_")]:
        del node.attr[name]
    node.attr["Tin"].list.type.extend(given)
    node.attr["Tin"].list.SetInParent()
    node.attr["Tout"].list.type.extend(results)
    node.attr["f"].func.name = function.function_def.signature.name
    for name in ("config", "config_proto", "executor_type"):
        node.attr[name].s = b""
