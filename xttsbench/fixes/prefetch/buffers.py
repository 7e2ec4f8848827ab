"""How much the last prefetch holds."""

from __future__ import annotations

from typing import Any

from xttsbench.fixes.graph.edit import constant, copied, data_inputs, does_not_apply, set_inputs
from xttsbench.pipeline.graph.nodes import constant_input, dataset_nodes


def last_buffer(graph: Any, *, elements: int) -> Any:
    """The last prefetch of the outer pipeline made to hold ``elements`` elements, neither more nor fewer.

    Raises:
        InvalidInputError: there is no prefetch, or the last one holds this number already.
    """
    fix = f"buffer:{elements}"
    edited = copied(graph)
    prefetches = [node for node in dataset_nodes(edited) if node.op == "PrefetchDataset"]
    if not prefetches:
        raise does_not_apply(fix, f"the dataset has no prefetch (prefetch:{elements} appends one)")
    last = prefetches[-1]
    if constant_input(last, "buffer_size", {node.name: node for node in edited.node}) == elements:
        raise does_not_apply(fix, f"the last prefetch holds {elements} elements already")
    size = constant(edited, f"{last.name}/buffer_size", elements)
    set_inputs(last, [data_inputs(last)[0], size])
    return edited
