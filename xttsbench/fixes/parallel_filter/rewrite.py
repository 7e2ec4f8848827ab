"""Filters that run several calls of their predicate at a time, order kept.

The op for it exists, but a graph that holds it cannot be serialised again (TensorFlow 2.21 leaves out its number of
calls), so TensorFlow's own rewrite is asked for, which happens as the iterator is made.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2

from xttsbench.fixes.graph.edit import does_not_apply
from xttsbench.fixes.thread_pool.rewrite import with_options
from xttsbench.pipeline.nodes import dataset_nodes

_FIX: Final = "parallel-filter"


def parallel_filter(graph: Any) -> Any:
    """The option that makes filters without state parallel, at the graph's end.

    Raises:
        InvalidInputError: there is no sequential filter.
    """
    if not any(node.op == "FilterDataset" for node in dataset_nodes(graph)):
        raise does_not_apply(_FIX, "the dataset has no sequential filter")
    options = dataset_options_pb2.Options()
    options.optimization_options.filter_parallelization = True
    return with_options(graph, options, fix=_FIX)


def with_parallel_filters(dataset: Any) -> Any:
    """The dataset with that option.

    Raises:
        InvalidInputError: it has the option already.
    """
    if dataset.options().experimental_optimization.filter_parallelization:
        raise does_not_apply(_FIX, "the dataset asks for parallel filters already")
    options = tf.data.Options()
    options.experimental_optimization.filter_parallelization = True
    return dataset.with_options(options)
