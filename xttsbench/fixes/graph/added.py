"""An op at the end of a pipeline, after everything or just before the options that hold for the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xttsbench.fixes.graph.edit import constant, free_name, set_inputs
from xttsbench.fixes.graph.splice import flat_spec, set_spec
from xttsbench.pipeline.graph.nodes import node_inputs


def end(graph: Any) -> Any:
    """The dataset node whose elements the graph yields."""
    last = node_inputs(_result(graph))[0]
    return next(node for node in graph.node if node.name == last)


def appended(
    graph: Any, op: str, *, fix: str, inputs: Mapping[str, int] | None = None, within_options: bool = False
) -> Any:
    """Put a dataset op at a graph's end, in place; the new node, whose elements are those of the op before.

    Args:
        graph: the graph to edit.
        op: a dataset op of one input, with the attributes ``output_types`` and ``output_shapes``.
        fix: whose work this is, for the message of an error.
        inputs: further inputs of the op, int64 scalars in order, by the name that they get.
        within_options: put the op before the options that end the graph, if some do, so that they stay the last.

    Raises:
        InvalidInputError: the op at the end does not say what its elements are.
    """
    by_name = {node.name: node for node in graph.node}
    reader, last = _result(graph), end(graph)
    while within_options and last.op == "OptionsDataset":
        reader, last = last, by_name[node_inputs(last)[0]]
    node = graph.node.add(name=free_name(graph, f"{op}/added"), op=op)
    node.input.append(last.name)
    node.input.extend(constant(graph, f"{node.name}/{name}", value) for name, value in (inputs or {}).items())
    set_spec(node, flat_spec(last, fix))
    set_inputs(reader, [node.name])
    return node


def _result(graph: Any) -> Any:
    return next(node for node in graph.node if node.op == "_Retval")
