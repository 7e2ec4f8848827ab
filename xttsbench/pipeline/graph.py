"""The graph of a dataset as data: its ops in order, their parameters, functions, state and options.

``DatasetToGraphV2`` shows the pipeline as it was written; TensorFlow's default rewrites (parallel maps, injected
prefetch, fusion) come later and are not in it. Data held in memory (``from_tensor_slices``) is embedded in the graph:
reading 200 MB of it takes about 2 s and holds up to three copies for a moment, so a graph is read once and passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2
from tensorflow.python.framework import op_def_registry

from xttsbench.pipeline.library import FunctionLibrary, called
from xttsbench.pipeline.python_side import python_side_ops
from xttsbench.pipeline.registry import PYTHON_OPS, lookup
from xttsbench.pipeline.source import display_name, locate, traced_functions
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction

_DATASET_OP: Final = re.compile(r"Dataset(V\d+)?$")
_IGNORE_EXTERNAL_STATE: Final = 1
"""``external_state_policy`` under which Python functions, tables and random state may be in the graph."""
_MAIN_FUNCTION: Final = ("f", "predicate", "reduce_func", "next_func")
"""Attributes that hold an op's main function, where it has several."""


def read_graph(dataset: Any) -> Any:
    """The ``GraphDef`` of a dataset, before TensorFlow's default rewrites.

    Raises:
        tf.errors.OpError: the dataset cannot be serialised (``copy_to_device``, over 2 GB of embedded data).
    """
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=dataset._variant_tensor, external_state_policy=_IGNORE_EXTERNAL_STATE
    )
    graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    if not graph.node:  # what TensorFlow gives, without an error, where the graph passes protobuf's limit
        raise tf.errors.ResourceExhaustedError(None, None, "The graph with its embedded data is larger than 2 GB.")
    return graph


def inspect(dataset: Any, graph: Any = None) -> Pipeline:
    """Describe a dataset without running it; ``graph`` saves reading it again.

    The Python functions are found but not classified (see :mod:`xttsbench.pipeline.python_functions`).
    """
    users = traced_functions(dataset)
    unserialisable: str | None = None
    if graph is None:
        try:
            graph = read_graph(dataset)
        except tf.errors.OpError as error:
            unserialisable = error.message
    if graph is None:
        ops, python_ops = python_side_ops(dataset)
        options = dataset.options()._to_proto()
    else:
        ops, python_ops = _graph_ops(graph)
        options = _graph_options(graph)
    ops = tuple(
        op.model_copy(update={"location": locate(users[op.function], op.name)}) if op.function in users else op
        for op in ops
    )
    return Pipeline(
        ops=ops,
        python_functions=_python_functions(ops, python_ops),
        unserialisable=unserialisable,
        **_option_fields(options),
    )


def dataset_nodes(graph: Any) -> list[Any]:
    """The dataset nodes that feed the graph's result, sources first, each after all of its inputs."""
    by_name = {node.name: node for node in graph.node}
    ordered: dict[str, Any] = {}
    waiting = [(name, False) for node in graph.node if node.op == "_Retval" for name in node_inputs(node)]
    while waiting:
        name, inputs_done = waiting.pop()
        node = by_name.get(name)
        if node is None or name in ordered:
            continue
        if inputs_done:
            ordered[name] = node
        else:
            waiting.append((name, True))
            waiting.extend((upstream, False) for upstream in reversed(node_inputs(node)))
    return [node for node in ordered.values() if is_dataset(node)]


def dataset_inputs(node: Any, by_name: Mapping[str, Any]) -> list[str]:
    """Names of the dataset nodes that a dataset node reads."""
    return [name for name in node_inputs(node) if name in by_name and is_dataset(by_name[name])]


def node_inputs(node: Any) -> list[str]:
    """Names of the nodes that a node reads, output numbers and control inputs taken off."""
    return [name.split(":")[0] for name in node.input if not name.startswith("^")]


def is_dataset(node: Any) -> bool:
    """Whether a node makes a dataset."""
    return _DATASET_OP.search(node.op) is not None


def constant_input(node: Any, argument: str, by_name: Mapping[str, Any]) -> int | None:
    """The value of a scalar input by its name in the op's definition; ``None`` where it is absent or not constant."""
    source = dict(_named_inputs(node)).get(argument)
    constant = by_name.get(source) if source is not None else None
    if constant is None or constant.op != "Const":
        return None
    tensor = constant.attr["value"].tensor
    if tensor.tensor_shape.dim:  # never unpack embedded data
        return None
    return int(np.asarray(tf.make_ndarray(tensor)).item())


def _named_inputs(node: Any) -> Iterator[tuple[str, str]]:
    """Pairs of argument name and input node; an argument that is a list appears once per element."""
    definition = op_def_registry.get(node.op)
    if definition is None:
        return
    inputs: Iterator[str] = iter(node_inputs(node))
    for argument in definition.input_arg:
        if argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        else:
            count = node.attr[argument.number_attr].i if argument.number_attr else 1
        for _, name in zip(range(count), inputs, strict=False):
            yield argument.name, name


def _graph_ops(graph: Any) -> tuple[tuple[PipelineOp, ...], dict[str, str]]:
    """The ops, and the graph op of each Python token. Options are no op of their own: readers look through them."""
    library = FunctionLibrary(graph.library.function)
    by_name = {node.name: node for node in graph.node}
    python_ops: dict[str, str] = {}
    ops = []
    for node in dataset_nodes(graph):
        if node.op == "OptionsDataset":
            continue
        functions = called(node)
        main = [node.attr[key].func.name for key in _MAIN_FUNCTION if key in node.attr]
        tokens = library.python_tokens(functions)
        python_ops.update(tokens)
        buffered = node.op.startswith(("PrefetchDataset", "ShuffleDataset", "ShuffleAndRepeatDataset"))
        ops.append(
            PipelineOp(
                name=node.name,
                op=node.op,
                inputs=tuple(_through_options(name, by_name) for name in dataset_inputs(node, by_name)),
                function=(main or functions or [None])[0],
                parallelism=constant_input(node, "num_parallel_calls", by_name),
                buffer_size=constant_input(node, "buffer_size", by_name) if buffered else None,
                batch_size=constant_input(node, "batch_size", by_name),
                deterministic=node.attr["deterministic"].s.decode() if "deterministic" in node.attr else None,
                stateful=library.stateful(functions),
                python_functions=tuple(tokens),
            )
        )
    return tuple(ops), python_ops


def _through_options(name: str, by_name: Mapping[str, Any]) -> str:
    while by_name[name].op == "OptionsDataset":
        name = dataset_inputs(by_name[name], by_name)[0]
    return name


def _graph_options(graph: Any) -> Any:
    """The options that hold at the end of the pipeline: later ones win, as TensorFlow merges them."""
    merged = dataset_options_pb2.Options()
    for node in dataset_nodes(graph):
        if node.op == "OptionsDataset":
            merged.MergeFromString(node.attr["serialized_options"].s)
    return merged


def _option_fields(options: Any) -> dict[str, Any]:
    """The option fields of a :class:`Pipeline`, with TensorFlow's defaults for what was not set."""

    def value(message: Any, field: str, default: Any) -> Any:
        return getattr(message, field) if message.WhichOneof(f"optional_{field}") else default

    autotune = value(options.autotune_options, "enabled", True)
    return {
        "autotune": autotune,
        "injects_prefetch": autotune and value(options.optimization_options, "inject_prefetch", True),
        "threadpool_size": value(options.threading_options, "private_threadpool_size", None),
        "deterministic": value(options, "deterministic", None),
    }


def _python_functions(ops: Sequence[PipelineOp], python_ops: Mapping[str, str]) -> tuple[PythonFunction, ...]:
    """One record per Python function, at the first op that runs it."""
    found: dict[str, PythonFunction] = {}
    for op in ops:
        for token in op.python_functions:
            if token in found:
                continue
            registered = lookup(token)
            if registered is None:  # the function is gone; a run would fail, the graph still shows it
                kind, name, location = PYTHON_OPS[python_ops[token]], token, Location(op=op.name)
            else:
                kind, name = registered.kind, display_name(registered.user)
                location = locate(registered.user, op.name)
            found[token] = PythonFunction(token=token, kind=kind, name=name, location=location)
    return tuple(found.values())
