"""The options of a pipeline: those that decide how it runs, and all that were set, in the user's words."""

from __future__ import annotations

import enum
from typing import Any, Final

from tensorflow.core.framework import dataset_options_pb2
from tensorflow.python.data.ops import options as options_lib
from tensorflow.python.data.util import options as options_util

from xttsbench.pipeline.graph.nodes import dataset_nodes

_ALWAYS_SET: Final = ("experimental_distribute.auto_shard_policy", "AUTO")
"""What TensorFlow writes into the options of every pipeline."""


def graph_options(graph: Any) -> Any:
    """The options that hold at the end of the pipeline: later ones win, as TensorFlow merges them."""
    merged = dataset_options_pb2.Options()
    for node in dataset_nodes(graph):
        if node.op == "OptionsDataset":
            merged.MergeFromString(node.attr["serialized_options"].s)
    return merged


def option_fields(options: Any) -> dict[str, Any]:
    """The option fields of a :class:`Pipeline`, with TensorFlow's defaults for what was not set."""

    def value(message: Any, field: str, default: Any) -> Any:
        return getattr(message, field) if message.WhichOneof(f"optional_{field}") else default

    autotune = value(options.autotune_options, "enabled", True)
    return {
        "autotune": autotune,
        "injects_prefetch": autotune and value(options.optimization_options, "inject_prefetch", True),
        "threadpool_size": value(options.threading_options, "private_threadpool_size", None),
        "deterministic": value(options, "deterministic", None),
        "options": set_options(options),
    }


def set_options(options: Any) -> dict[str, str]:
    """Dotted name, as on :class:`tf.data.Options`, of every option that was set -> its value as text."""
    python = options_lib.Options()
    python._from_proto(options)
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", python)]
    while waiting:
        prefix, current = waiting.pop(0)
        for name, value in sorted(current._options.items()):
            if isinstance(value, options_util.OptionsBase):
                waiting.append((f"{prefix}{name}.", value))
            elif value is not None and (prefix + name, getattr(value, "name", None)) != _ALWAYS_SET:
                found[prefix + name] = value.name if isinstance(value, enum.Enum) else str(value)
    return found
