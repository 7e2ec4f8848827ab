"""On which device TensorFlow placed the ops of a step, and why.

The order of reasons is that of TensorFlow's placer: what was asked for, then what kernels there are, then what the op
stands beside; last come the types whose kernels for the GPU keep their data in the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.eager import context

ASKED: Final = "asked for by tf.device"
NO_GPU: Final = "no GPU here"
NO_KERNEL: Final = "no kernel for the GPU is registered"
RESOURCE: Final = "beside a resource that is there"
STRINGS: Final = "strings live in the host's memory"
INT32: Final = "int32 is kept in the host's memory"
PLACER: Final = "the placer's choice"

AVOIDABLE: Final = (ASKED, RESOURCE)
"""Reasons that the user's own code has, and can take away."""


@dataclass(frozen=True)
class PlacedOp:
    """What is known of an op.

    Attributes:
        op: its type, ``MatMul``.
        device: where it ran, ``GPU:0``.
        requested: the device that was asked for while it was made, in any of TensorFlow's spellings; empty for none.
        kernels: types of device that have a kernel for it, ``CPU`` and ``GPU``; empty where that is not known.
        dtypes: names of the types of its inputs and outputs.
        resource_device: where the resource is that it reads or writes; ``None`` without one.
    """

    op: str
    device: str
    requested: str = ""
    kernels: Collection[str] = ()
    dtypes: Collection[str] = ()
    resource_device: str | None = None


def short_device(device: str) -> str:
    """``/job:localhost/replica:0/task:0/device:GPU:0`` as ``GPU:0``; an empty name as ``CPU:0``."""
    last = device.rsplit("/", 1)[-1].removeprefix("device:").upper()
    if not last:
        return "CPU:0"
    return last if ":" in last else f"{last}:0"


def why(placed: PlacedOp, *, gpus: int) -> str:
    """Why the op is on its device, on a machine with that many GPUs."""
    if not gpus:
        return NO_GPU
    kind = placed.device.split(":")[0]
    if placed.requested and short_device(placed.requested).split(":")[0] == kind:
        return ASKED
    if kind == "GPU":
        return PLACER
    if placed.kernels and "GPU" not in placed.kernels:
        return NO_KERNEL
    if placed.resource_device is not None and placed.resource_device.split(":")[0] == kind:
        return RESOURCE
    if "string" in placed.dtypes:
        return STRINGS
    if placed.dtypes and set(placed.dtypes) <= {"int32", "resource", "bool"} and "int32" in placed.dtypes:
        return INT32
    return PLACER


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
