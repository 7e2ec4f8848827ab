"""Batches made before the maps above them, whose functions then run once for a batch instead of once for an element.

``map(f).batch(n)`` becomes ``batch(n).map(f for each row)``: :mod:`xttsbench.fixes.batch_first.by_row` makes that
function. ``repeat``, ``take``, ``prefetch`` and ``shuffle`` may stand in between: they do not look at elements.
``unbatch().batch(n)`` becomes one op that cuts the batches anew without taking them apart, or nothing where they have
the size already.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.batch_first.agreement import agree
from xttsbench.fixes.batch_first.by_row import by_row
from xttsbench.fixes.batch_first.conversions import NotVectorisedError
from xttsbench.fixes.batch_first.rebatch import BATCHES, rebatched
from xttsbench.fixes.batch_first.sink import sunk
from xttsbench.fixes.graph.edit import copied, data_inputs, does_not_apply, set_inputs
from xttsbench.fixes.graph.splice import flat_spec, redirect, set_spec
from xttsbench.fixes.graph.state import state
from xttsbench.pipeline.graph.functions import is_random
from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.nodes import captured_inputs, dataset_nodes, node_inputs

_FIX: Final = "batch-first"


def batch_first(graph: Any) -> Any:
    """The graph with every batch before the maps right above it that can work on batches; names of nodes stay.

    Elements, their order, their types and their static shapes stay; sums of floats may be rounded otherwise. A
    function without Python, on elements that come without it, is compared with the original on a few of them. Others
    are not, since their Python may count its calls.

    Raises:
        InvalidInputError: nothing can be moved, and why for the op where the attempt ended.
    """
    edited, why = copied(graph), list[str]()
    done = 0
    for name in [node.name for node in dataset_nodes(graph) if node.op in BATCHES]:
        while True:
            try:
                again = rebatched(edited, name)
                done, edited = done + 1, again if again is not None else _swapped(edited, name)
            except NotVectorisedError as error:
                why.append(str(error))
                break
            if again is not None:
                break
    if not done:
        raise does_not_apply(_FIX, "; ".join(why) if why else "the dataset makes no batches")
    return edited


def _swapped(graph: Any, name: str) -> Any:
    """The graph with a batch before the map above it.

    Raises:
        NotVectorisedError: it reads no map, or one that cannot work on batches.
    """
    beside = sunk(graph, name)
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
            same = agree(graph, edited, above.name, mapped.name, name)
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
    known = {function.signature.name for function in edited.library.function}
    for function in (definition, *others):
        if function.signature.name not in known:
            edited.library.function.add().CopyFrom(function)
    result = flat_spec(batch, _FIX)
    redirect(edited, batch_name, mapped_name)
    set_inputs(batch, [above.name, *data_inputs(batch)[1:]])
    set_inputs(mapped, [batch_name, *data_inputs(mapped)[1:]])
    mapped.attr["f"].func.name = definition.signature.name
    set_spec(mapped, result)
    size = result[0].shape[0] if result and result[0].shape.rank else None
    set_spec(
        batch,
        [tf.TensorSpec(tf.TensorShape([size]).concatenate(one.shape), one.dtype) for one in flat_spec(above, _FIX)],
    )
    return edited
