"""The ops of a dataset that cannot be serialised, as far as the attributes of its Python objects show them."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf
from tensorflow.python.data.ops import structured_function

from xttsbench.pipeline.graph.construction import place_of
from xttsbench.pipeline.graph.effects import has_side_effects, is_random
from xttsbench.pipeline.graph.file_bytes import byte_offset
from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.places import beneath, user_place
from xttsbench.pipeline.graph.source import locate, user_function, walk
from xttsbench.records.base import Location
from xttsbench.records.pipeline import PipelineOp

_BUFFERED: Final = ("Prefetch", "Shuffle")


def python_side_ops(dataset: Any) -> tuple[tuple[PipelineOp, ...], FunctionLibrary]:
    """The ops, sources first, and the library of the functions that they run.

    Names are the class name and a number; an attribute that is no constant gives ``None``. Objects that only wrap
    another's dataset (options among them) are no op of their own.
    """
    datasets = [current for current in walk(dataset) if not _is_wrapper(current)]
    names = {id(current): f"{_op(current)}/{number}" for number, current in enumerate(datasets)}
    definitions: dict[str, Any] = {}
    ops = []
    for current in datasets:
        wrapped = [v for v in vars(current).values() if isinstance(v, structured_function.StructuredFunctionWrapper)]
        definitions.update((f.signature.name, f) for w in wrapped for f in _definitions(w.function))
        library = FunctionLibrary(definitions.values())
        functions = [w.function.name.decode() for w in wrapped]
        name = names[id(current)]
        ops.append(
            PipelineOp(
                name=name,
                op=_op(current),
                inputs=tuple(names[id(one)] for one in _inputs(current)),
                function=functions[0] if functions else None,
                parallelism=_constant(current, "_num_parallel_calls"),
                buffer_size=_constant(current, "_buffer_size") if _op(current).startswith(_BUFFERED) else None,
                batch_size=_constant(current, "_batch_size"),
                cycle_length=_constant(current, "_cycle_length"),
                filename=_text(current, "_filename"),
                stateful=library.stateful(functions),
                python_functions=tuple(library.python_tokens(functions)),
                random=_shuffles(current) or is_random(library, functions),
                side_effects=has_side_effects(library, functions),
                byte_offset=byte_offset(library, functions),
                location=_location(current, wrapped, name),
            )
        )
    return tuple(ops), FunctionLibrary(definitions.values())


def _is_wrapper(dataset: Any) -> bool:
    return type(dataset).__name__ == "_OptionsDataset" or beneath(dataset) is not dataset


def _inputs(dataset: Any) -> list[Any]:
    """The datasets that one reads, wrappers looked through."""
    found = []
    waiting = list(reversed(dataset._inputs()))
    while waiting:
        current = waiting.pop()
        below = beneath(current)
        if below is not current:
            waiting.append(below)
        elif _is_wrapper(current):
            waiting.extend(reversed(current._inputs()))
        else:
            found.append(current)
    return found


def _location(dataset: Any, wrapped: list[Any], name: str) -> Location:
    place = user_place(place_of(dataset))
    if place is not None:
        return Location(file=place[0], line=place[1], op=name)
    users = [user for one in wrapped if (user := user_function(one._func)) is not None]
    return locate(users[0], name) if users else Location()


def _shuffles(dataset: Any) -> bool:
    if not _op(dataset).startswith("Shuffle"):
        return False
    seeds = [_constant(dataset, name) for name in ("_seed", "_seed2")]
    fixed = None not in seeds and any(seeds) and getattr(dataset, "_reshuffle_each_iteration", None) is False
    return not fixed


def _op(dataset: Any) -> str:
    return type(dataset).__name__.lstrip("_")


def _definitions(function: Any) -> list[Any]:
    """The definitions of a traced function and of all that it calls."""
    graph = tf.Graph()
    with graph.as_default():
        function.add_to_graph(graph)
    return list(graph.as_graph_def().library.function)


def _constant(dataset: Any, attribute: str) -> int | None:
    value = tf.get_static_value(getattr(dataset, attribute, None)) if hasattr(dataset, attribute) else None
    return None if value is None else int(value)


def _text(dataset: Any, attribute: str) -> str | None:
    value = tf.get_static_value(getattr(dataset, attribute, None)) if hasattr(dataset, attribute) else None
    return value.decode(errors="replace") if isinstance(value, bytes) else None
