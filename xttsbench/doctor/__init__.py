"""Problems of a machine that runs TensorFlow: checks of its readings, each with its remedy; pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from xttsbench.doctor import gpu, host
from xttsbench.records.machine import Check, Machine, Said

CHECKS: Final[dict[str, tuple[str, Callable[[Machine], Said | None]]]] = {
    "versions": ("Python, TensorFlow, Keras and NumPy", host.versions),
    "tensorflow-starts": ("TensorFlow is imported and computes, in a process of its own", host.tensorflow_starts),
    "xla": ("a small function, compiled by XLA, gives the right number on each device", host.xla),
    "gpu-driver": ("the NVIDIA driver and its GPUs", gpu.gpu_driver),
    "gpu-permission": ("device files of the NVIDIA driver", gpu.gpu_permission),
    "gpu-mask": ("CUDA_VISIBLE_DEVICES", gpu.gpu_mask),
    "gpu-build": ("whether this TensorFlow can use a GPU", gpu.gpu_build),
    "gpu-libraries": ("CUDA libraries that TensorFlow loads", gpu.gpu_libraries),
    "gpu-visible": ("GPUs that TensorFlow sees, of those that the driver has", gpu.gpu_visible),
    "gpu-memory": ("memory of the GPUs that others hold", gpu.gpu_memory),
    "cpu-quota": ("processors that this process may use", host.cpu_quota),
    "threads": ("thread pools of TensorFlow and NumPy against the processors", host.threads),
    "neighbours": ("what others take of the processors", host.neighbours),
    "memory": ("memory that is left, of the machine and of the control group", host.memory),
    "shared-memory": ("/dev/shm, where input processes hand over batches", host.shared_memory),
    "disk-space": ("room where runs, caches and temporary files are written", host.disk_space),
}
"""Id of a check, in the order of the report -> what it looks at, and what it says; ``None`` where it does not apply."""


def examine(machine: Machine) -> tuple[Check, ...]:
    """Runs the checks that apply to the machine."""
    judged = ((name, about, judge(machine)) for name, (about, judge) in CHECKS.items())
    return tuple(Check(id=name, about=about, **said._asdict()) for name, about, said in judged if said is not None)
