"""The graph of a dataset as data: its ops in order, their parameters, functions, state and options.

``DatasetToGraphV2`` shows the pipeline as it was written; TensorFlow's default rewrites (parallel maps, injected
prefetch, fusion) come later and are not in it. Data held in memory (``from_tensor_slices``) is embedded in the graph:
reading 200 MB of it takes about 2 s and holds up to three copies for a moment, so a graph is read once and passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.graph.describe import describe
from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.nodes import constant_input, dataset_inputs, dataset_nodes, is_dataset, node_inputs
from xttsbench.pipeline.graph.options import graph_options, option_fields
from xttsbench.pipeline.graph.places import places
from xttsbench.pipeline.graph.python_side import python_side_ops
from xttsbench.pipeline.graph.registry import PYTHON_OPS, lookup
from xttsbench.pipeline.graph.source import display_name, locate
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction

__all__ = ["constant_input", "dataset_inputs", "dataset_nodes", "inspect", "is_dataset", "node_inputs", "read_graph"]

_IGNORE_EXTERNAL_STATE: Final = 1
"""``external_state_policy`` under which Python functions, tables and random state may be in the graph."""


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

    An op's location is the line that made it where :mod:`xttsbench.pipeline.graph.construction` was watching, else that
    of its function. The Python functions are found but not classified (see
    :mod:`xttsbench.pipeline.cost.python_functions`).
    """
    unserialisable: str | None = None
    if graph is None:
        try:
            graph = read_graph(dataset)
        except tf.errors.OpError as error:
            unserialisable = error.message
    if graph is None:
        ops, library = python_side_ops(dataset)
        options = dataset.options()._to_proto()
    else:
        library = FunctionLibrary(graph.library.function)
        nodes, by_name = dataset_nodes(graph), {node.name: node for node in graph.node}
        ops = describe(nodes, by_name, library, places(dataset, graph))
        options = graph_options(graph)
    return Pipeline(
        ops=ops,
        python_functions=_python_functions(ops, library),
        unserialisable=unserialisable,
        **option_fields(options),
    )


def _python_functions(ops: Sequence[PipelineOp], library: FunctionLibrary) -> tuple[PythonFunction, ...]:
    """One record per Python function, at the first op that runs it."""
    kinds = library.all_tokens()
    found: dict[str, PythonFunction] = {}
    for op in ops:
        for token in op.python_functions:
            if token in found:
                continue
            registered = lookup(token)
            if registered is None:  # the function is gone; a run would fail, the graph still shows it
                kind, name, location = PYTHON_OPS[kinds[token]], token, Location(op=op.name)
            else:
                kind, name = registered.kind, display_name(registered.user)
                location = locate(registered.user, op.name)
            found[token] = PythonFunction(token=token, kind=kind, name=name, location=location)
    return tuple(found.values())
