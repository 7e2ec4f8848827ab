"""The user's line for each op of a graph: the Python datasets and the graph's nodes walked side by side, from the end.

The two have the same shape, but some Python objects are only wrappers that share their input's tensor (readers of
files, the compatibility classes of TensorFlow 1). Kinds are compared on the way; where they do not agree, everything
above stays unknown rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.data.ops import structured_function

from xttsbench.pipeline.graph.construction import SOURCE, Made, Place, made_in, place_of
from xttsbench.pipeline.graph.nodes import dataset_inputs, node_inputs
from xttsbench.pipeline.graph.registry import is_tensorflow
from xttsbench.pipeline.graph.source import before_autograph, captured_datasets, traced_functions, walk

_KIND: Final = re.compile(r"^_*(?:Experimental|Legacy|Parallel)*(\w+?)(?:Dataset)?(?:V\d+)?$")
_SAME: Final = {"DenseToRagged": "DenseToRaggedBatch", "Choose": "DirectedInterleave", "RaggedBatch": "DenseToRagged"}


@dataclass(frozen=True, slots=True)
class Places:
    """What is known of a pipeline's places, and of what its functions made while they were traced."""

    nodes: dict[str, Place] = field(default_factory=dict)
    """Name of a node -> file and line of the call that made it."""
    made: dict[str, Made] = field(default_factory=dict)
    """Name of a function -> what was made in its trace."""
    users: dict[str, Any] = field(default_factory=dict)
    """Name of a function -> the user's function."""
    autotuned: frozenset[str] = frozenset()
    """Nodes whose cycle length was left to AUTOTUNE; TensorFlow writes the number that it chose into the graph."""


def places(dataset: Any, graph: Any) -> Places:
    """The places of a graph's nodes and functions, as far as ``dataset`` and the objects under it tell."""
    nodes, autotuned = {}, set()
    for name, found in _pairs(dataset, graph):
        if tf.get_static_value(vars(found).get("_cycle_length")) == tf.data.AUTOTUNE:
            autotuned.add(name)
        place = user_place(place_of(found))
        if place is not None:
            nodes[name] = place
    return Places(nodes, made_by(dataset), traced_functions(dataset), frozenset(autotuned))


def made_by(dataset: Any) -> dict[str, Made]:
    """Name of each function of the Python datasets -> what was made in its trace."""
    found = {}
    for current in walk(dataset):
        for value in vars(current).values():
            if isinstance(value, structured_function.StructuredFunctionWrapper):
                made = made_in(value.function)
                if made is not None:
                    found[value.function.name.decode()] = made
    return found


def user_place(place: Place | None) -> Place | None:
    """A noted place in the user's own file; ``None`` where it was in AutoGraph's and cannot be led back."""
    if place is None:
        return None
    file, line = before_autograph(*place)
    return None if file is None or line is None else (file, line)


def beneath(dataset: Any) -> Any:
    """The dataset that made the tensor which ``dataset`` only wraps; most are their own."""
    for _ in range(50):
        source = vars(dataset).get(SOURCE)
        children = [value for value in vars(dataset).values() if isinstance(value, tf.data.Dataset)]
        if type(dataset).__name__ == "_VariantDataset" and source is not None:
            dataset = source
            continue
        sharing = next((child for child in children if child._variant_tensor is dataset._variant_tensor), None)
        if sharing is None:
            return dataset
        dataset = sharing
    return dataset


def _pairs(dataset: Any, graph: Any) -> Iterator[tuple[str, Any]]:
    by_name = {node.name: node for node in graph.node}
    ends = [name for node in graph.node if node.op == "_Retval" for name in node_inputs(node)]
    waiting = [(dataset, name) for name in ends[:1]]
    seen: set[str] = set()
    while waiting:
        current, name = waiting.pop()
        node = by_name.get(name)
        current = beneath(current)
        if node is None or name in seen or not _agree(current, node):
            continue
        seen.add(name)
        yield name, current
        inputs, above = [*current._inputs(), *captured_datasets(current)], dataset_inputs(node, by_name)
        if len(above) == len(inputs):
            waiting.extend(zip(inputs, above, strict=True))
        elif len(above) >= len(current._inputs()):  # captured ones come last, and not all of them were found
            waiting.extend(zip(current._inputs(), above, strict=False))


def _agree(dataset: Any, node: Any) -> bool:
    """Whether an object and a node are of one kind; a user's own class, or a bare variant, may be any node."""
    if not is_tensorflow(type(dataset)) or type(dataset).__name__ == "_VariantDataset":
        return True
    ours, theirs = _kind(type(dataset).__name__), _kind(node.op)
    return ours.lower() == theirs.lower() or _SAME.get(ours) == theirs or _SAME.get(theirs) == ours


def _kind(name: str) -> str:
    found = _KIND.match(name)
    return found.group(1) if found is not None else name
