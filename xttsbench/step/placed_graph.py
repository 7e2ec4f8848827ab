"""The devices of the ops of a compiled step, as TensorFlow placed them: the step traced once more, its graph kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.eager import context

from xttsbench.step.placement import short_device

_OUTER: Final = "StatefulPartitionedCall/"


def devices_of(step: Callable[[Any], Any], batch: Any) -> dict[str, str]:
    """Name of the op in its function -> device; empty where the step cannot be traced again.

    It costs a trace and a step, so it is for machines where ops have a choice.
    """
    outer = tf.function(step, autograph=False)
    context.enable_graph_collection()
    try:
        outer(batch)
        collected = context.export_run_metadata()
    except Exception:  # a step that fetches values, or makes variables, cannot be traced: the devices stay unknown
        return {}
    finally:
        context.disable_graph_collection()
    return {
        node.name.removeprefix(_OUTER): short_device(node.device)
        for function in collected.function_graphs
        for graph in function.partition_graphs
        for node in graph.node
    }
