"""Batches made before the maps above them, whose functions then run once for a batch instead of once for an element.

``map(f).batch(n)`` becomes ``batch(n).map(f for each row)``: :mod:`xttsbench.fixes.batch_first.by_row` makes that
function, and it is run on a few elements to see that it yields the same. ``repeat``, ``take``, ``prefetch`` and
``shuffle`` may stand in between: they do not look at elements.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.batch_first.by_row import NotVectorisedError, by_row
from xttsbench.fixes.graph.edit import (
    add_functions,
    does_not_apply,
    ending_at,
    flat_spec,
    readers,
    set_spec,
    source_of,
)
from xttsbench.fixes.graph.functions import state
from xttsbench.fixes.graph.hazards import STATELESS, Reader
from xttsbench.pipeline.cut import TRANSPARENT, Cut, bypassed, dataset, sequential
from xttsbench.pipeline.functions import is_random
from xttsbench.pipeline.nodes import (
    FunctionLibrary,
    add_constant,
    captured_inputs,
    copied,
    data_inputs,
    dataset_nodes,
    node_inputs,
    redirect,
    set_inputs,
)
from xttsbench.records.fix import Fix, FixSet

BATCHES: Final = ("BatchDatasetV2", "ParallelBatchDataset")
"""Ops that put elements together as they are, without padding."""
MAPS: Final = ("MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2")
_FIX: Final = "batch-first"
_HANDING_ON: Final = ("PrefetchDataset", "RepeatDataset", "TakeDataset")
_SHUFFLES: Final = ("ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3")
"""Passed by functions without Python only: they would be called in another order."""
_ELEMENTS: Final = 5
_BATCH: Final = 3
"""Elements of a batch: there is a whole one and a smaller one after it, whatever the pipeline's own size."""
_LEFT_OUT: Final = re.compile(f"{TRANSPARENT.pattern}|^Shuffle")
_RELATIVE: Final = 1e-3
_ABSOLUTE: Final = 1e-5
"""Floats may differ by so much: what is summed in another order is rounded otherwise. The caller compares exactly."""


def batch_first(graph: Any) -> Any:
    """The graph with every batch before the maps right above it that can work on batches; names of nodes stay.

    Elements, their order, their types and their static shapes stay; sums of floats may be rounded otherwise. A
    function without Python, on elements that come without it, is compared with the original on a few of them. Others
    are not, since their Python may count its calls.

    Raises:
        InvalidInputError: nothing can be moved, and why for the op where the attempt ended.
    """
    edited, why = graph, list[str]()
    for name in [node.name for node in dataset_nodes(graph) if node.op in BATCHES]:
        try:
            while True:
                edited = _swapped(edited, name)
        except NotVectorisedError as error:
            why.append(str(error))
    if edited is graph:
        raise does_not_apply(_FIX, "; ".join(why) if why else "the dataset makes no batches")
    return edited


def hazards(reader: Reader, _fix: Fix, _every: FixSet) -> Iterator[str]:
    """State of the functions that would be called on whole batches."""
    for node in reader.maps_before_batches():
        yield from (
            f"calls on whole batches would change its state: {told}; {STATELESS}" for told in reader.state(node)
        )


def _swapped(graph: Any, name: str) -> Any:
    """The graph with a batch before the map above it."""
    beside = _sunk(graph, name)
    if beside is None:
        raise NotVectorisedError(f"no map comes right before {name}, or others read it as well")
    graph = beside
    by_name = {node.name: node for node in graph.node}
    mapped = by_name[node_inputs(by_name[name])[0]]
    above = by_name[node_inputs(mapped)[0]]
    library = FunctionLibrary(graph.library.function)
    function = mapped.attr["f"].func.name
    held = state(library, [function], python=True)
    if held is not None or is_random(library, [function]):
        raise NotVectorisedError(f"{mapped.name} runs {held or 'random ops'}, which holds state")
    spec = flat_spec(above, _FIX)
    if not spec or any(one.dtype in (tf.variant, tf.resource) or not one.shape.is_fully_defined() for one in spec):
        raise NotVectorisedError(f"what {mapped.name} is given may differ in shape from element to element")
    try:
        definition, others = by_row(library, function, spec, _captured(graph, mapped))
    except NotVectorisedError as error:
        raise NotVectorisedError(f"{mapped.name} cannot work on batches: {error}") from error
    edited = _with_batch_before(graph, mapped.name, name, definition, others)
    if not FunctionLibrary(edited.library.function).all_tokens():
        try:
            same = _agree(graph, edited, above.name, mapped.name, name)
        except (tf.errors.OpError, ValueError) as error:
            raise NotVectorisedError(f"{mapped.name} cannot work on batches: {error}") from error
        if not same:
            raise NotVectorisedError(f"{mapped.name} yields something else when it works on batches")
    return edited


def _captured(graph: Any, mapped: Any) -> list[tf.TensorSpec]:
    """Types and shapes of what a map's function captures; the shape of what is no constant is not known."""
    by_name = {node.name: node for node in graph.node}
    found = []
    for reference, kind in zip(captured_inputs(mapped), mapped.attr["Targuments"].list.type, strict=True):
        source, dtype = by_name[reference.split(":")[0]], tf.as_dtype(kind)
        if dtype == tf.resource:
            found.append(tf.TensorSpec([], dtype))
        elif source.op == "Const":
            found.append(tf.TensorSpec(tf.TensorShape(source.attr["value"].tensor.tensor_shape), dtype))
        else:
            found.append(tf.TensorSpec(None, dtype))
    return found


def _with_batch_before(graph: Any, mapped_name: str, batch_name: str, definition: Any, others: list[Any]) -> Any:
    edited = copied(graph)
    by_name = {node.name: node for node in edited.node}
    mapped, batch = by_name[mapped_name], by_name[batch_name]
    above = by_name[node_inputs(mapped)[0]]
    add_functions(edited, (definition, *others))
    result = flat_spec(batch, _FIX)
    redirect(edited.node, {batch_name: mapped_name})
    set_inputs(batch, [above.name, *data_inputs(batch)[1:]])
    set_inputs(mapped, [batch_name, *data_inputs(mapped)[1:]])
    mapped.attr["f"].func.name = definition.signature.name
    set_spec(mapped, result)
    size = tf.TensorShape([result[0].shape[0] if result and result[0].shape.rank else None])
    set_spec(batch, [tf.TensorSpec(size.concatenate(one.shape), one.dtype) for one in flat_spec(above, _FIX)])
    return edited


def _sunk(graph: Any, name: str) -> Any | None:
    """The graph with the nearest map above the named op right before it; the same where it stands there.

    ``None`` where something else comes in between, or where an op on the way is read by others too. The map's function
    must hold no state: it is called as often as before, on the same elements.
    """
    by_name = {node.name: node for node in graph.node}
    between: list[Any] = []
    here = source_of(by_name[name], by_name)
    while here is not None and here.op in (*_HANDING_ON, *_SHUFFLES) and len(readers(graph, here.name)) == 1:
        between.append(here)
        here = source_of(here, by_name)
    if here is None or here.op not in MAPS or source_of(here, by_name) is None or len(readers(graph, here.name)) != 1:
        return None
    if not between:
        return graph
    tokens = FunctionLibrary(graph.library.function).python_tokens([here.attr["f"].func.name])
    if tokens and any(one.op in _SHUFFLES for one in between):
        return None
    edited = copied(graph)
    new = {node.name: node for node in edited.node}
    mapped, above = new[here.name], new[node_inputs(here)[0]]
    redirect(edited.node, {mapped.name: above.name})
    redirect(edited.node, {between[0].name: mapped.name})
    set_inputs(mapped, [between[0].name, *data_inputs(mapped)[1:]])
    for one in between:
        set_spec(new[one.name], flat_spec(above, _FIX))
    return edited


def _agree(graph: Any, edited: Any, source: str, mapped: str, batch: str) -> bool:
    """Whether map and batch yield the same in both orders, on the first elements that come to them, if some do.

    Caches, shuffles and the like before them are left out, so that none is filled by this.
    """
    before = Cut(sequential(bypassed(ending_at(graph, mapped), _LEFT_OUT)))
    (reached,) = before.inputs(mapped)
    elements = list(itertools.islice(dataset(before.variant(reached), before.spec(reached)), _ELEMENTS))
    if not elements:
        return True
    held = tf.data.Dataset.from_tensor_slices(tuple(tf.stack(parts) for parts in zip(*elements, strict=True)))
    old = _batches(graph, source, (mapped, batch), batch, held)
    new = _batches(edited, source, (batch, mapped), batch, held)
    return len(old) == len(new) and all(
        _close(one, other) for pair in zip(old, new, strict=True) for one, other in zip(*pair, strict=True)
    )


def _batches(graph: Any, source: str, order: Sequence[str], batch: str, held: Any) -> list[list[Any]]:
    cut = Cut(_in_threes(ending_at(graph, order[-1]), batch))
    variant, name = held._variant_tensor, source
    for following in order:
        variant, name = cut.over(following, {name: variant}), following
    spec = tuple(tf.TensorSpec(None, part.dtype) for part in cut.spec(name))
    return [[part.numpy() for part in element] for element in dataset(variant, spec)]


def _in_threes(graph: Any, name: str) -> Any:
    """The graph, edited in place, in which the named batch has three elements and the last may have fewer."""
    node, any_size = next(one for one in graph.node if one.name == name), tf.TensorShape([None])
    set_spec(node, [tf.TensorSpec(any_size.concatenate(one.shape[1:]), one.dtype) for one in flat_spec(node, _FIX)])
    inputs = data_inputs(node)
    inputs[1] = add_constant(graph, f"{name}/three", _BATCH)
    inputs[3 if node.op == "ParallelBatchDataset" else 2] = add_constant(graph, f"{name}/whole", False)
    set_inputs(node, inputs)
    return graph


def _close(old: Any, new: Any) -> bool:
    old, new = np.asarray(old), np.asarray(new)
    if old.shape != new.shape or old.dtype != new.dtype:
        return False
    if old.dtype.kind in "fcV":  # bfloat16 is of kind V
        first, second = old.astype(np.complex128), new.astype(np.complex128)
        return bool(np.allclose(first, second, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))
    return bool(np.array_equal(old, new))
