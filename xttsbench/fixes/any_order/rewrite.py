"""Giving up the order of elements, where the user says that it does not matter."""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import dataset_options_pb2
from tensorflow.python.framework import op_def_registry

from xttsbench.fixes.graph.edit import does_not_apply
from xttsbench.fixes.thread_pool.rewrite import with_options
from xttsbench.pipeline.nodes import copied, dataset_nodes, graph_options


def any_order(graph: Any) -> Any:
    """Whatever runs in parallel may hand its elements on as they come: op by op, and by the option for the whole.

    Raises:
        InvalidInputError: nothing runs in parallel, or nothing of it keeps an order.
    """
    parallel = [node for node in dataset_nodes(graph) if _switch(node.op) is not None]
    if not parallel:
        raise does_not_apply("any-order", "no op of the dataset runs in parallel, so that the order costs nothing")
    option = graph_options(graph)
    given_up = option.WhichOneof("optional_deterministic") is not None and not option.deterministic
    if given_up and all(_is_free(node) for node in parallel):
        raise does_not_apply("any-order", "the dataset keeps no order as it is")
    edited = copied(graph)
    for node in dataset_nodes(edited):
        switch = _switch(node.op)
        if switch == "deterministic":
            node.attr[switch].s = b"false"
        elif switch == "sloppy":
            node.attr[switch].b = True
    return with_options(edited, dataset_options_pb2.Options(deterministic=False), fix="any-order")


def _switch(op: str) -> str | None:
    """The attribute that says whether an op keeps the order; ``None`` for one that knows no other."""
    definition = op_def_registry.get(op)
    names = {attribute.name for attribute in definition.attr} if definition is not None else set()
    return next((name for name in ("deterministic", "sloppy") if name in names), None)


def _is_free(node: Any) -> bool:
    """Whether the option decides, or the op itself says that order does not matter."""
    switch = node.attr.get(_switch(node.op))  # asking for one that is missing would add it
    return switch is None or switch.b or switch.s in (b"false", b"default")
