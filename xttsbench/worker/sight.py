"""TensorFlow's, or the NVIDIA driver's, view of this machine, from a process that ``xttsbench doctor`` outlives.

A line of JSON for each thing, as soon as it is known, and one before each part that may crash or hang, so that who
reads knows how far it came.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from xttsbench.processes import die_with_parent
from xttsbench.worker.channel import leave_after

EXPECTED: Final = 3680.0
"""The sum of x xᵀ, where x is 4 by 4 with the numbers 0 to 15: the squared length of its column sums. All numbers
on the way are integers that even a GPU's ten-bit products keep."""
_LIBRARIES: Final = {
    "12": (
        *("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11"),
        *("libcusolver.so.11", "libcusparse.so.12"),
    )
}
"""Major version of CUDA -> libraries that TensorFlow loads before it uses a GPU, those that others need first; cuDNN
comes on top."""
_INTER_OP: Final = "tf_Compute"
"""Kernel's name for the threads that run operations side by side; those that share one operation have no name."""


def main(file: int, parent: int, look: Callable[[], Iterator[dict[str, Any]]]) -> int:
    """Look, and write each thing to the file of that descriptor; returns the exit code."""
    die_with_parent()
    if os.getppid() != parent:  # it died before the kernel was asked
        return 1
    with os.fdopen(file, "w", encoding="utf-8", buffering=1) as lines:
        for known in look():
            lines.write(json.dumps(known) + "\n")
    return 0


def driver() -> Iterator[dict[str, Any]]:
    """Answer of the NVIDIA driver on its GPUs; a faulty one holds any process that asks it."""
    from xttsbench.probes.machine import driver as ask

    yield {"stage": "done", "driver": ask().model_dump()}


def tensorflow() -> Iterator[dict[str, Any]]:
    """Answers of TensorFlow on devices and computation, with the stage that it comes to."""
    yield {"stage": "import"}
    began = time.perf_counter()
    import tensorflow as tf

    took_s = time.perf_counter() - began
    from xttsbench.step.modes import keras_package  # it imports TensorFlow, whose own time is told

    build = tf.sysconfig.get_build_info()
    yield {
        "import_s": took_s,
        "versions": {"tensorflow": tf.__version__, "keras": version(keras_package())},
        "built_with_cuda": bool(tf.test.is_built_with_cuda()),
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "stage": "devices",
    }
    before = _threads()
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)  # or all of its memory would be taken from who runs there
    processor, *_ = tf.config.list_logical_devices("CPU")
    after = _threads()
    pools = {"inter_op": after[_INTER_OP], "intra_op": after[""] - before[""]}
    if gpus:
        del pools["intra_op"]  # the driver's own threads have no name either
    tf.linalg.matmul(tf.ones((256, 256)), tf.ones((256, 256))).numpy()
    missing = _missing(build) if tf.test.is_built_with_cuda() and not gpus else {}
    yield {"gpus": [gpu.name for gpu in gpus], "missing": missing, "threads": pools, "stage": "xla"}
    devices = (processor, *tf.config.list_logical_devices("GPU"))
    yield {"computed": [_compute(device.name, tf) for device in devices]}
    yield {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, "stage": "done"}


def _missing(build: Mapping[str, Any]) -> dict[str, str]:
    """CUDA libraries that cannot be loaded from where TensorFlow looks: beside it, then on the loader's path."""
    names = _LIBRARIES.get(str(build.get("cuda_version")).split(".")[0], ())
    cudnn = (f"libcudnn.so.{build['cudnn_version']}",) if names and build.get("cudnn_version") else ()
    missing = {}
    for name in (*names, *cudnn):
        beside = (file for folder in sys.path for file in Path(folder).glob(f"nvidia/*/lib/{name}"))
        try:
            ctypes.CDLL(str(next(beside, name)))
        except OSError as error:
            missing[name] = str(error)
    return missing


def _compute(device: str, tf: Any) -> dict[str, Any]:
    @tf.function(jit_compile=True)
    def function(x: Any) -> Any:
        return tf.reduce_sum(tf.linalg.matmul(x, x, transpose_b=True))

    said: dict[str, Any] = {"device": device.rpartition("device:")[2], "expected": EXPECTED}
    try:
        with tf.device(device):
            x = tf.reshape(tf.range(16, dtype=tf.float32), (4, 4))
            began = time.perf_counter()
            value = float(function(x).numpy())
            said |= {"value": value, "first_s": time.perf_counter() - began}
    except tf.errors.OpError as error:
        said["error"] = " ".join(str(error).split())[:500]
    return said


def _threads() -> dict[str, int]:
    """Number of this process's threads: those that run operations side by side, and those without a name."""
    own = Path("/proc/self/comm").read_text(encoding="utf-8")
    counts = {_INTER_OP: 0, "": 0}
    for comm in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            name = comm.read_text(encoding="utf-8", errors="replace")
            counts[_INTER_OP] += name.startswith(_INTER_OP)
            counts[""] += name == own
    return counts


if __name__ == "__main__":
    looks = {"tensorflow": tensorflow, "driver": driver}
    if len(sys.argv) != 4 or not "".join(sys.argv[1:3]).isdigit() or sys.argv[3] not in looks:
        sys.exit("xttsbench.worker.sight is started by xttsbench itself, with a descriptor, its id and whom to ask.")
    leave_after(lambda: main(int(sys.argv[1]), int(sys.argv[2]), looks[sys.argv[3]]))
