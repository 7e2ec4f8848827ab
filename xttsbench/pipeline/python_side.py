"""The ops of a dataset that cannot be serialised, as far as the attributes of its Python objects show them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import structured_function

from xttsbench.pipeline.library import FunctionLibrary
from xttsbench.pipeline.source import walk
from xttsbench.records.pipeline import PipelineOp


def python_side_ops(dataset: Any) -> tuple[tuple[PipelineOp, ...], dict[str, str]]:
    """The ops, sources first, and the graph op of each Python token found.

    Names are the class name and a number; an attribute that is no constant gives ``None``.
    """
    datasets = [current for current in walk(dataset) if type(current).__name__ != "_OptionsDataset"]
    names = {id(current): f"{_op(current)}/{number}" for number, current in enumerate(datasets)}
    python_ops: dict[str, str] = {}
    ops = []
    for current in datasets:
        wrapped = [v for v in vars(current).values() if isinstance(v, structured_function.StructuredFunctionWrapper)]
        library = FunctionLibrary(f for w in wrapped for f in _definitions(w.function))
        functions = [w.function.name.decode() for w in wrapped]
        tokens = library.python_tokens(functions)
        python_ops.update(tokens)
        buffered = _op(current).startswith(("Prefetch", "Shuffle"))
        ops.append(
            PipelineOp(
                name=names[id(current)],
                op=_op(current),
                inputs=tuple(names[id(i)] for i in _inputs(current)),
                function=functions[0] if functions else None,
                parallelism=_constant(current, "_num_parallel_calls"),
                buffer_size=_constant(current, "_buffer_size") if buffered else None,
                batch_size=_constant(current, "_batch_size"),
                stateful=library.stateful(functions),
                python_functions=tuple(tokens),
            )
        )
    return tuple(ops), python_ops


def _inputs(dataset: Any) -> list[Any]:
    found: list[Any] = []
    for current in dataset._inputs():
        found.extend(_inputs(current) if type(current).__name__ == "_OptionsDataset" else [current])
    return found


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
