"""A machine on which nothing is wrong, with a GPU or without, to be spoilt in one place."""

from __future__ import annotations

from typing import Any

from xttsbench.doctor import examine
from xttsbench.records.base import Record
from xttsbench.records.machine import (
    Check,
    Computed,
    Driver,
    Gpu,
    Machine,
    Memory,
    Place,
    Processors,
    Sight,
    Software,
)

GB = 1 << 30


def healthy(*, gpus: int = 0) -> Machine:
    return Machine(
        software=Software(
            python="3.11.7",
            packages={"tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6"},
            builds=("tensorflow",),
        ),
        driver=Driver(
            gpus=tuple(
                Gpu(index=n, name="Stub GPU", memory_total_bytes=16 * GB, memory_used_bytes=GB // 4, processes=0)
                for n in range(gpus)
            ),
            reason=None if gpus else "no NVIDIA driver (libnvidia-ml.so.1 was not found)",
            version="550.54.15" if gpus else None,
            cuda="12.4" if gpus else None,
            pci={f"0000:0{n}:00.0": "nvidia" for n in range(gpus)},
        ),
        sight=Sight(
            stage="done",
            import_s=4.2,
            versions={"tensorflow": "2.21.0", "keras": "3.15.1"},
            built_with_cuda=True,
            cuda="12.5.1",
            cudnn="9",
            gpus=tuple(f"/physical_device:GPU:{n}" for n in range(gpus)),
            threads={"intra_op": 8, "inter_op": 8},
            peak_bytes=600_000_000,
            computed=(Computed(device="CPU:0", value=3680.0, expected=3680.0, first_s=0.2),),
        ),
        processors=Processors(machine_cpus=8, affinity_cpus=8, window_s=1.0, steal_share=0.0, foreign_share=0.02),
        memory=Memory(
            total_bytes=32 * GB,
            available_bytes=24 * GB,
            swapped_bytes_per_s=0.0,
            shared_total_bytes=16 * GB,
            shared_free_bytes=16 * GB,
        ),
        places=(Place(what="runs", path="/home/me/reports", free_bytes=100 * GB, free_files=1_000_000),),
    )


def spoilt(machine: Machine, part: str, **fields: Any) -> Machine:
    """The machine with some fields of one of its parts changed."""
    record = getattr(machine, part)
    changed = record.model_copy(update=fields) if isinstance(record, Record) else fields[part]
    return machine.model_copy(update={part: changed})


def said(machine: Machine, name: str) -> Check | None:
    return next((check for check in examine(machine) if check.id == name), None)
