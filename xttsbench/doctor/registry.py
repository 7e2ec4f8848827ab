"""Which checks there are, in the order in which they are shown; all of them judge what was read of a machine."""

from __future__ import annotations

from typing import Final

from xttsbench.doctor import gpu, host, software
from xttsbench.doctor.check import MachineCheck
from xttsbench.records.machine import Check, Machine

CHECKS: Final[tuple[MachineCheck, ...]] = (
    software.versions,
    software.tensorflow_starts,
    software.xla,
    gpu.gpu_driver,
    gpu.gpu_permission,
    gpu.gpu_mask,
    gpu.gpu_build,
    gpu.gpu_libraries,
    gpu.gpu_visible,
    gpu.gpu_memory,
    host.cpu_quota,
    host.threads,
    host.neighbours,
    host.memory,
    host.shared_memory,
    host.disk_space,
    host.storage_speed,
)


def examine(machine: Machine) -> tuple[Check, ...]:
    """What the checks say that apply to the machine."""
    return tuple(said for one in CHECKS if (said := one(machine)) is not None)
