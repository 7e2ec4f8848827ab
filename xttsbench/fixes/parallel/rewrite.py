"""Ops of a graph that run several calls at a time, order kept.

TensorFlow's parallel interleave has two kinds of readers. Those of the cycle are at most as many as the cycle is long.
The others prepare inputs that come later: each opens its input and fills a buffer, until the cycle takes the input
over. So even a cycle of one, which is what ``flat_map`` does, reads ahead in as many files as are prepared, in exactly
the order of ``flat_map``. The gain ends where the buffer does: what a file has beyond it is read when its turn comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.graph.edit import does_not_apply, flat_spec
from xttsbench.fixes.graph.hazards import Reader
from xttsbench.pipeline.nodes import (
    add_constant,
    constant_input,
    copied,
    data_inputs,
    dataset_inputs,
    dataset_nodes,
    set_inputs,
)
from xttsbench.records.fix import Fix, FixSet

FILES_AHEAD: Final = 8
"""Files that are read at a time where one was, and no number was asked for: TensorFlow tunes calls, not these."""
BUFFERED_BYTES: Final = 256 << 20
"""Largest total size, in bytes, of the buffers of all inputs that are read ahead."""
_UNKNOWN_BYTES: Final = 64 << 10  # what an element is taken to hold whose shape is not known before it is there
_MOST_ELEMENTS: Final = 4096
_OPENS: Final = re.compile(r"(FlatMap|Interleave|ParallelInterleave|LegacyParallelInterleave)Dataset(V\d+)?")


def parallel_map(graph: Any, *, calls: int = tf.data.AUTOTUNE) -> Any:
    """Every sequential ``map`` of the outer pipeline made parallel, order kept.

    A ``map`` inside the function of ``interleave`` or ``flat_map`` stays: there the outer op is the one to make
    parallel.

    Raises:
        InvalidInputError: there is no sequential map.
    """
    edited = copied(graph)
    maps = [node for node in dataset_nodes(edited) if node.op == "MapDataset"]
    if not maps:
        raise does_not_apply("parallel-map", "the dataset has no sequential map")
    for node in maps:
        set_inputs(node, [*data_inputs(node), add_constant(edited, f"{node.name}/num_parallel_calls", calls)])
        node.op = "ParallelMapDatasetV2"
        node.attr.pop("force_synchronous", None)
        node.attr["deterministic"].s = b"true"
    return edited


def map_hazards(reader: Reader, fix: Fix, _every: FixSet) -> Iterator[str]:
    """State of the maps that would be called several times at once; of the one map that is so already, where named."""
    nodes = reader.nodes.items()
    of_op = fix.op is not None
    return reader.shared_state([one for one, node in nodes if (one == fix.op if of_op else node.op == "MapDataset")])


def parallel_interleave(graph: Any, *, calls: int = tf.data.AUTOTUNE) -> Any:
    """Every sequential ``interleave`` and ``flat_map`` of the outer pipeline reading ``calls`` inputs at a time.

    The order of the elements stays what it was. An interleave reads as many inputs as its cycle is long where no
    number is given (``AUTOTUNE``), and beyond its cycle reads ahead; a ``flat_map`` reads ahead in
    :data:`FILES_AHEAD`. Left out are ``from_generator``, which is one input, and ``flat_map`` over windows, whose
    elements lie in memory.

    Raises:
        InvalidInputError: there is nothing of this kind to read in parallel.
    """
    edited = copied(graph)
    by_name = {node.name: node for node in edited.node}
    functions = {function.signature.name: function for function in edited.library.function}
    in_turn = [
        node
        for node in dataset_nodes(edited)
        if node.op == "InterleaveDataset" or (node.op == "FlatMapDataset" and not _in_memory(node, by_name, functions))
    ]
    if not in_turn:
        fix = "parallel-interleave" if calls == tf.data.AUTOTUNE else f"parallel-interleave:{calls}"
        raise does_not_apply(fix, "the dataset has no interleave or flat_map that reads one input at a time")
    for node in in_turn:
        _read_in_parallel(edited, node, by_name, calls)
    return edited


def interleave_hazards(reader: Reader, _fix: Fix, _every: FixSet) -> Iterator[str]:
    """State of what opens the sources, generators among it."""
    return reader.shared_state(reader.named(_OPENS), ("function", "generator"))


def _in_memory(node: Any, by_name: Any, functions: Any) -> bool:
    """Whether a ``flat_map`` is TensorFlow's own around a generator, or one over windows (variants)."""
    function = functions.get(node.attr["f"].func.name)
    if function is not None and any(inner.op == "GeneratorDataset" for inner in function.node_def):
        return True
    source = by_name[dataset_inputs(node, by_name)[0]]
    types = source.attr["output_types"].list.type if "output_types" in source.attr else ()
    return tf.variant.as_datatype_enum in types  # asking for an attribute that is missing would add it


def _read_in_parallel(graph: Any, node: Any, by_name: Any, calls: int) -> None:
    cycle, inputs = constant_input(node, "cycle_length", by_name), data_inputs(node)
    if node.op == "FlatMapDataset":
        cycle = 1
        inputs += [add_constant(graph, f"{node.name}/{name}", 1) for name in ("cycle_length", "block_length")]
    node.op = "ParallelInterleaveDatasetV4"
    node.attr["deterministic"].s = b"true"
    set_inputs(node, [*inputs, *_readers(graph, node, cycle, calls)])


def _readers(graph: Any, node: Any, cycle: int | None, calls: int) -> list[str]:
    """The last three inputs of a parallel interleave: elements buffered per input, inputs ahead, calls."""
    if calls == tf.data.AUTOTUNE and cycle == 1:
        calls = FILES_AHEAD
    buffered, ahead, current = -1, -1, calls
    if calls != tf.data.AUTOTUNE and cycle is not None and 1 <= cycle < calls:
        buffered, ahead, current = _buffered_elements(node, calls), calls - cycle, cycle
    numbers = {"buffer_output_elements": buffered, "prefetch_input_elements": ahead, "num_parallel_calls": current}
    return [add_constant(graph, f"{node.name}/{name}", number) for name, number in numbers.items()]


def _buffered_elements(node: Any, inputs: int) -> int:
    """Elements that each of so many inputs may hold, within :data:`BUFFERED_BYTES` together."""
    sizes = [(one.shape.num_elements(), one.dtype.size) for one in flat_spec(node, "parallel-interleave")]
    element_bytes = sum(_UNKNOWN_BYTES if count is None or not size else count * size for count, size in sizes)
    return max(2, min(_MOST_ELEMENTS, BUFFERED_BYTES // (inputs * max(1, element_bytes))))
