"""Readings of a machine for ``xttsbench doctor``, without TensorFlow: driver, processors, memory, places.

``root`` is where the file system's ``proc``, ``sys`` and ``dev`` are looked up, so that a machine can be made up.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psutil

from xttsbench.probes.environment import installed_version, package_versions, variables
from xttsbench.probes.nvml import look_at_gpus
from xttsbench.probes.procfs import (
    cpu_allowance,
    memory_limit_bytes,
    memory_limit_left_bytes,
    parse_machine,
    text_of,
)
from xttsbench.records.machine import Driver, Gpu, Memory, Place, Processors, Software

ROOT: Final = Path("/")
PLACE_BYTES: Final = 16 << 20
"""Reserved, and given back at once, to see whether a place can be written to: quotas show in no other way."""
_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
_DEVICE: Final = re.compile(r"nvidia(\d+|ctl|-uvm)")
_BUILDS: Final = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tf-nightly-cpu", "intel-tensorflow")


def software(environ: Mapping[str, str] = os.environ) -> Software:
    """Versions from the packages' metadata, and the variables that are read at start-up."""
    return Software(
        python=platform.python_version(),
        architecture=platform.machine(),
        packages=package_versions(),
        builds=tuple(name for name in _BUILDS if installed_version(name) is not None),
        variables=variables(environ),
    )


def driver(root: Path = ROOT) -> Driver:
    """The driver's own list of GPUs; and what the kernel shows, which tells why there is no list."""
    kernel = {"pci": _pci(root), "refused": _refused(root / "dev"), "container": _in_container(root)}
    readings, probe, reason = look_at_gpus()
    if probe is None:
        return Driver(reason=reason, **kernel)
    gpus = tuple(
        Gpu(
            index=gpu.index,
            name=gpu.name,
            memory_total_bytes=gpu.memory_total_bytes,
            memory_used_bytes=next(iter(gpu.memory_used_bytes), None),
            processes=None if "processes" in gpu.unmeasured else len(gpu.processes),
            lost=gpu.unmeasured.get("name"),
        )
        for gpu in readings
    )
    return Driver(gpus=gpus, version=probe.driver_version, cuda=probe.cuda_version, **kernel)


def _pci(root: Path) -> dict[str, str]:
    found = {}
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        if text_of(device / "vendor") == _NVIDIA and (text_of(device / "class") or "").startswith(_DISPLAY):
            bound = device / "driver"
            found[device.name] = bound.resolve().name if bound.exists() else ""
    return found


def _refused(devices: Path) -> dict[str, str]:
    refused = {}
    for file in sorted(devices.glob("nvidia*")):
        if not _DEVICE.fullmatch(file.name):
            continue
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            refused[f"/dev/{file.name}"] = error.strerror or str(error)
    return refused


def _in_container(root: Path) -> bool:
    marks = (root / ".dockerenv", root / "run/.containerenv")
    return any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ


def processors_and_swap(
    window_s: float,
    *,
    root: Path = ROOT,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    own_cpu_s: Callable[[], float] = time.process_time,
) -> tuple[Processors, float | None]:
    """The processors with what others made of them in that time, and the bytes a second that went to and from swap."""
    allowance = cpu_allowance(root)
    cpus = frozenset(os.sched_getaffinity(0))

    def look() -> tuple[float, str, str | None, float]:
        return clock(), text_of(root / "proc/stat") or "", text_of(root / "proc/vmstat"), own_cpu_s()

    began, stat, pages, own = look()
    sleep(window_s)
    ended, stat_after, pages_after, own_after = look()
    steal = foreign = swapped = None
    seconds = ended - began
    with contextlib.suppress(ValueError):
        before, after = parse_machine(stat, cpus), parse_machine(stat_after, cpus)
        steal_s, busy_s = after.steal_s - before.steal_s, after.busy_s - before.busy_s
        # Busy time is counted in ticks: of a fraction of one, nobody can say whose it was.
        whole = steal_s + busy_s + after.idle_s - before.idle_s
        if whole > 0:
            steal, foreign = steal_s / whole, max(busy_s - (own_after - own), 0.0) / whole
    if pages is not None and pages_after is not None and seconds > 0:
        swapped = (_swapped_pages(pages_after) - _swapped_pages(pages)) * os.sysconf("SC_PAGE_SIZE") / seconds
    processors = Processors(
        machine_cpus=allowance.machine_cpus,
        affinity_cpus=allowance.affinity_cpus,
        quota_cpus=allowance.quota_cpus,
        window_s=seconds,
        steal_share=steal,
        foreign_share=foreign,
    )
    return processors, swapped


def _swapped_pages(vmstat: str) -> int:
    # By hand: psutil takes a page for 4 KiB, warns on standard error where the counters are missing, and gives 0 then.
    fields = dict(line.split(maxsplit=1) for line in vmstat.splitlines() if " " in line)
    return int(fields.get("pswpin", 0)) + int(fields.get("pswpout", 0))


def memory(swapped_bytes_per_s: float | None = None, *, root: Path = ROOT) -> Memory:
    """Memory of the machine, of the control group, and what is shared between processes through /dev/shm."""
    found, unmeasured = psutil.virtual_memory(), {}
    shared = shared_free = None
    try:
        with tempfile.TemporaryFile(dir=root / "dev/shm"):
            usage = shutil.disk_usage(root / "dev/shm")
        shared, shared_free = usage.total, usage.free
    except OSError as error:
        unmeasured = dict.fromkeys(("shared_total_bytes", "shared_free_bytes"), error.strerror or str(error))
    return Memory(
        total_bytes=found.total,
        available_bytes=found.available,
        limit_bytes=memory_limit_bytes(root),
        limit_left_bytes=memory_limit_left_bytes(root),
        swapped_bytes_per_s=swapped_bytes_per_s,
        shared_total_bytes=shared,
        shared_free_bytes=shared_free,
        unmeasured=unmeasured,
    )


def place(what: str, path: Path) -> Place:
    """Whether :data:`PLACE_BYTES` can be written to a directory; of one that is not there yet, to its parent."""
    directory = path.absolute()
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    refused = free = files = None
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, PLACE_BYTES)
    except OSError as error:
        refused = error.strerror or str(error)
    with contextlib.suppress(OSError):
        counts = os.statvfs(directory)
        free = counts.f_bavail * counts.f_frsize
        files = counts.f_favail if counts.f_files else None
    return Place(what=what, path=str(path), free_bytes=free, free_files=files, refused=refused)
