"""Readings of a machine for ``xttsbench doctor``, without TensorFlow: driver, processors, memory, places, storage.

``root`` is where the file system's ``proc``, ``sys`` and ``dev`` are looked up, so that a machine can be made up. Cold
means that the kernel was asked to drop these files from the page cache (``posix_fadvise``, for which nobody has to be
root); what it really fetched is read from ``/proc/self/io``, so that storage that cannot be made cold is known.
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import psutil

from xttsbench.errors import InvalidInputError
from xttsbench.probes.environment import installed_version, package_versions, storage_under, variables
from xttsbench.probes.nvml import look_at_gpus
from xttsbench.probes.procfs import (
    cpu_allowance,
    memory_limit_bytes,
    memory_limit_left_bytes,
    own_reads,
    parse_machine,
    text_of,
)
from xttsbench.records.machine import Driver, Gpu, Memory, Pass, Place, Processors, Software, Storage

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


READERS: Final = 8
"""As many as a pipeline has that reads in parallel."""
_SAMPLE_BYTES: Final = 64 << 20
_SAMPLE_FILES: Final = 256
_PASS_S: Final = 2.0  # after so long a pass ends with the file that it is at; so does the search for files
_LISTED: Final = 20_000
_CHUNK: Final = 256 << 10
_SEED: Final = 0


def read_whole(path: Path) -> Iterator[int]:
    """Read a file as most pipelines do, from its beginning to its end."""
    with path.open("rb", buffering=0) as file:
        while got := len(file.read(_CHUNK)):
            yield got


def drop(path: Path) -> None:
    """Ask the kernel to forget what it holds of a file; pages that are mapped or not yet written stay."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def storage(directory: Path) -> Storage:
    """Read a random sample of the files below a directory, at most 64 MiB and two seconds a pass.

    Raises:
        InvalidInputError: there is no such directory, or no file in it that can be read.
    """
    files = _files(directory)
    random.Random(_SEED).shuffle(files)
    half = max(len(files) // 2, 1)
    sample, others = files[:half][:_SAMPLE_FILES], files[half:][:_SAMPLE_FILES]
    try:
        for file in (*sample, *others):
            drop(file)
        cold, sizes = _pass(sample, 1)
        parallel, by_several = _pass(others, READERS) if len(others) >= 2 * READERS else (None, list[int]())
    except OSError as error:
        raise InvalidInputError(
            f"--data {str(directory)!r}: {error.filename or directory} cannot be read ({error.strerror or error})."
        ) from error
    return Storage(
        path=str(directory),
        filesystem=storage_under(directory, {})["filesystem"],
        listed=len(files),
        files=len(sizes),
        bytes=sum(sizes),
        cold=cold,
        parallel=parallel,
        parallel_files=len(by_several),
        parallel_bytes=sum(by_several),
    )


def _files(directory: Path) -> list[Path]:
    """Files with something in them, in an order that does not depend on the file system's."""
    if not directory.is_dir():
        raise InvalidInputError(f"--data {str(directory)!r} is no directory; name the one that holds the data set.")
    until_s, found = time.monotonic() + _PASS_S, list[Path]()
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for path in (Path(folder, name) for name in sorted(names)):
            if len(found) == _LISTED or (found and time.monotonic() > until_s):
                return sorted(found)
            if path.is_file() and path.stat().st_size:
                found.append(path)
    if not found:
        raise InvalidInputError(f"--data {str(directory)!r} holds no file to read; name the one that holds the data.")
    return sorted(found)


def _pass(files: Sequence[Path], readers: int) -> tuple[Pass, list[int]]:
    """Read files while there is room and time; returns the bytes of each that was begun.

    Each reader has its share of the room, and takes the next file that nobody has.
    """
    waiting, before, began_s = iter(files), own_reads(), time.monotonic()

    def reader(_: int) -> list[int]:
        left, sizes = _SAMPLE_BYTES // readers, list[int]()
        # next() of a list's iterator is one step of the interpreter, so no two readers get the same file.
        while left > 0 and time.monotonic() <= began_s + _PASS_S and (file := next(waiting, None)) is not None:
            sizes.append(0)
            for piece in read_whole(file):
                sizes[-1] += piece
                left -= piece
                if left <= 0 or time.monotonic() > began_s + _PASS_S:
                    break
        return sizes

    with ThreadPoolExecutor(readers) as pool:
        sizes = [size for found in pool.map(reader, range(readers)) for size in found]
    seconds, after = time.monotonic() - began_s, own_reads()
    if before is None or after is None or not sum(sizes):
        return Pass(seconds=seconds), sizes
    return Pass(
        seconds=seconds, stored_share=min((after.storage_bytes - before.storage_bytes) / sum(sizes), 1.0)
    ), sizes
