"""Checks of the host and its software: versions, start-up, XLA; processors, memory, disks."""

from __future__ import annotations

from typing import Final

from xttsbench.records.machine import TENSORFLOW, Figure, Machine, Said, Sight, Status
from xttsbench.records.pipeline import size

_PYTHON: Final = (3, 11)
_SLOW_IMPORT_S: Final = 30.0
"""Four times what it took on two slow cores (4-7 s): a disk or a network that is slow to give the files."""
_TOLERANCE: Final = 1e-4
_ILLEGAL: Final = "SIGILL"


def versions(machine: Machine) -> Said:
    """Checks that the installed versions were tried with this package, and that none is installed twice."""
    packages = machine.software.packages
    installed = packages.get("tensorflow")
    figures = {"python": machine.software.python} | {
        name: packages.get(name) for name in ("tensorflow", "keras", "numpy")
    }
    seen = ", ".join(f"{name} {version}" for name, version in figures.items() if version)
    if tuple(map(int, machine.software.python.split(".")[:2])) < _PYTHON:
        wanted = ".".join(map(str, _PYTHON))
        return Said("broken", f"{seen}: Python before {wanted}", figures, f"Make an environment with Python {wanted}.")
    newest = f"pip install 'tensorflow=={TENSORFLOW[-1]}.*'"
    if installed is None and "tensorflow" not in machine.sight.versions:
        return Said("broken", f"{seen}: TensorFlow is not installed", figures, f"Install it: {newest}.")
    if installed is not None and ".".join(installed.split(".")[:2]) not in TENSORFLOW:
        tried = ", ".join(TENSORFLOW)
        return Said("broken", f"{seen}: xttsbench was made for TensorFlow {tried}", figures, f"Install one: {newest}.")
    if len(builds := machine.software.builds) > 1:
        seen = f"{' and '.join(builds)} are both installed, and each overwrites the other's files"
        return Said("broken", seen, figures, f"pip uninstall -y {' '.join(builds)}, then install one: {newest}.")
    backend = machine.software.variables.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        seen = f"{seen}; KERAS_BACKEND={backend!r}: Keras does not compute with TensorFlow"
        remedy = "Unset KERAS_BACKEND where Keras is to train with TensorFlow."
        return Said("note", seen, figures | {"keras_backend": backend}, remedy)
    return Said("ok", seen, figures)


def tensorflow_starts(machine: Machine) -> Said | None:
    """A crash, an error or a hang of the import or of the first operation, with the last words."""
    sight = machine.sight
    if sight.stage == "start" and sight.ended is None:
        return None
    figures = {"import_s": sight.import_s, "stage": sight.stage, "ended": sight.ended}
    if sight.ended is not None and sight.stage in ("start", "import", "devices"):
        doing = "its first operation" if sight.stage == "devices" else "'import tensorflow'"
        return Said("broken", f"{doing}: {sight.ended}{_words(sight)}", figures, _start_remedy(machine))
    took = "" if sight.import_s is None else f"imported in {sight.import_s:.1f} s"
    if sight.import_s is not None and sight.import_s > _SLOW_IMPORT_S:
        remedy = "Put the environment on a local disk; a second import is quick where the first was cold."
        return Said("note", f"{took}, which takes 4-7 s from a local disk", figures, remedy)
    return Said("ok", took or "started", figures)


def _start_remedy(machine: Machine) -> str:
    sight = machine.sight
    if sight.ended and _ILLEGAL in sight.ended:
        return "This processor lacks instructions (AVX) that the wheel was built with: use another machine or build."
    if sight.ended and "SIGKILL" in sight.ended:
        return f"The kernel ends what takes too much memory ({machine.memory.left / 1e9:.2g} GB were left): make room."
    if "ModuleNotFoundError" in sight.last_words or "ImportError" in sight.last_words:
        return "Install what is missing, or TensorFlow anew: pip install --force-reinstall tensorflow."
    if sight.ended and "busy" in sight.ended:
        return "Run 'python -X faulthandler -c \"import tensorflow\"' and press Ctrl-C: it shows where it hangs."
    return "Run 'python -X faulthandler -c \"import tensorflow\"' for the whole story; then install TensorFlow anew."


def xla(machine: Machine) -> Said | None:
    """Whether XLA compiles and computes."""
    sight = machine.sight
    if sight.stage == "xla" and sight.ended is not None:
        seen = f"while XLA compiled a small function: {sight.ended}{_words(sight)}"
        remedy = "Train without jit_compile=True until this works; the last words say what failed."
        return Said("broken", seen, {"ended": sight.ended}, remedy)
    if not sight.computed:
        return Said("unknown", "not tried: TensorFlow did not come so far", {})
    figures = {f"first_s.{one.device}": one.first_s for one in sight.computed}
    for one in sight.computed:
        if one.error is not None:
            return Said("broken", f"on {one.device}: {one.error}", figures, _xla_remedy(one.error))
        if one.value is None or abs(one.value - one.expected) > _TOLERANCE * one.expected:
            seen = f"on {one.device} a compiled function gave {one.value} where {one.expected:g} is right"
            remedy = "Trust no number of this device: test its memory (nvidia-smi -q -d ECC), and update the driver."
            return Said("broken", seen, figures | {"value": one.value, "expected": one.expected}, remedy)
    took = ", ".join(f"{one.device} in {one.first_s:.2g} s" for one in sight.computed if one.first_s is not None)
    return Said("ok", f"compiled, and right: {took}", figures)


def _xla_remedy(error: str) -> str:
    if "libdevice" in error or "ptxas" in error:
        return (
            "pip install nvidia-cuda-nvcc-cu12 brings ptxas and libdevice; or name CUDA's folder: "
            "XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda."
        )
    return "Train without jit_compile=True until this works."


def _words(sight: Sight) -> str:
    words = " / ".join(sight.last_words.splitlines())
    return f"; its last words: {words}" if words else ""


_TWICE: Final = 2.0
_HALF: Final = 0.5
_SLACK: Final = 0.5  # Of a processor: a quota of 7.5 takes 8 threads well
_WORTH_SAYING, _A_QUARTER = 0.10, 0.25
"""Shares of the processors' time. A tenth is what reports mention; with a quarter gone a step takes a third more."""
_VARIABLES: Final = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def cpu_quota(machine: Machine) -> Said:
    """A control group's quota below the processors that TensorFlow sizes its pools by."""
    found = machine.processors
    figures = {
        "machine_cpus": found.machine_cpus,
        "affinity_cpus": found.affinity_cpus,
        "quota_cpus": found.quota_cpus,
    }
    threads = max(machine.sight.threads.values(), default=0) or found.affinity_cpus
    if found.quota_cpus is not None and threads <= found.quota_cpus + _SLACK < found.affinity_cpus:
        return Said("ok", f"{threads} threads a pool on a quota of {found.quota_cpus:g} processors", figures)
    if found.quota_cpus is None or found.quota_cpus + _SLACK > found.affinity_cpus:
        part = f" of {found.machine_cpus}" if found.machine_cpus != found.affinity_cpus else ""
        return Said("ok", f"{found.affinity_cpus}{part} processors, no quota below them", figures)
    right = max(int(found.quota_cpus), 1)
    return Said(
        "broken" if threads >= _TWICE * found.quota_cpus else "note",
        f"the control group allows {found.quota_cpus:g} of {found.affinity_cpus} visible processors; TensorFlow's "
        f"pools have {threads} threads, and the kernel stops them all once a period's quota is used up",
        figures,
        f"Set TF_NUM_INTRAOP_THREADS={right} and TF_NUM_INTEROP_THREADS={right} before Python starts, or raise the "
        "quota (cpus of the container, cpu.max of the group).",
    )


def threads(machine: Machine) -> Said | None:
    """Pools that are larger or much smaller than what may be used, and the variable that made them so."""
    allowed, pools = machine.processors.allowed, machine.sight.threads
    figures: dict[str, Figure] = {f"{pool}_threads": count for pool, count in pools.items()} | {"allowed_cpus": allowed}
    told = {name: int(text) for name in _VARIABLES if (text := machine.software.variables.get(name, "")).isdigit()}
    figures |= told
    for name, count in told.items():
        if count > max(allowed, machine.processors.affinity_cpus) + _SLACK:
            seen = f"{name}={count} on {allowed:g} processors: more threads than can run take turns"
            return Said("note", seen, figures, f"Unset {name}, or set it to {max(int(allowed), 1)}.")
        if 0 < count <= _HALF * allowed:
            who = "NumPy's linear algebra" if name.startswith("O") else "TensorFlow"
            seen = f"{name}={count}: {who} uses {count} of {allowed:g} processors"
            return Said("note", seen, figures, f"Unset {name} unless processes share the machine on purpose.")
    if not pools:
        return None
    sizes = ", ".join(f"{count} {pool.replace('_', '-')}" for pool, count in pools.items())
    return Said("ok", f"{sizes} threads for {allowed:g} processors", figures)


def neighbours(machine: Machine) -> Said:
    """Stolen time (the hypervisor ran something else), and other processes."""
    found = machine.processors
    figures = {
        "steal_share": found.steal_share,
        "foreign_share": found.foreign_share,
        "window_s": found.window_s,
    }
    if found.steal_share is None or found.foreign_share is None or found.window_s is None:
        return Said("unknown", "/proc/stat cannot be read", figures)
    taken = found.steal_share + found.foreign_share
    seen = (
        f"others took {taken:.0%} of the processors in {found.window_s:.1f} s "
        f"(processes {found.foreign_share:.0%}, the hypervisor {found.steal_share:.0%})"
    )
    if taken < _WORTH_SAYING:
        return Said("ok", seen, figures)
    # Other processes end, and are no fault of the machine; what lies below it takes its part every day.
    status: Status = "broken" if found.steal_share >= _A_QUARTER else "note"
    if found.steal_share > found.foreign_share:
        remedy = "The machine below this virtual one is oversold: take an instance with processors of its own."
    else:
        remedy = "See who it is (top -o %CPU), and end it or wait; measurements beside it take longer."
    return Said(status, seen, figures, remedy)


_LEAST_BYTES, _LITTLE_BYTES = 1 << 30, 4 << 30
"""TensorFlow 2.21 alone, with one compiled function, held 0.6 GB here; a diagnosis of the bundled model in three
processes 2.5 GB."""
_SWAP_BYTES_PER_S: Final = 1e6
_SHARED_LEAST_BYTES, _SHARED_LITTLE_BYTES = 64 << 20, 1 << 30
"""Docker gives 64 MiB unless --shm-size says otherwise; batches of input processes and NCCL's buffers go there."""
_DISK_LEAST_BYTES, _DISK_LITTLE_BYTES = 256 << 20, 2 << 30
"""A run's directory takes 1 to 50 MB, a checkpoint of the bundled base model 0.3 GB."""
_FILES_LEAST: Final = 1000


def memory(machine: Machine) -> Said:
    """Too little for TensorFlow and a pipeline's buffers; swapping."""
    found = machine.memory
    figures = {
        "total_bytes": found.total_bytes,
        "available_bytes": found.available_bytes,
        "limit_bytes": found.limit_bytes,
        "limit_left_bytes": found.limit_left_bytes,
        "swapped_bytes_per_s": found.swapped_bytes_per_s,
        "tensorflow_bytes": machine.sight.peak_bytes,
    }
    limit, swapped = found.limit_bytes, found.swapped_bytes_per_s
    limited = limit is not None and limit < found.total_bytes
    whole = f"the control group's {size(limit)}" if limited and limit else size(found.total_bytes)
    seen = f"{size(found.left)} left of {whole}"
    if swapped is not None and swapped > _SWAP_BYTES_PER_S:
        remedy = "End what fills the memory (ps aux --sort -rss | head), or take a machine with more."
        return Said("broken", f"{seen}, and {size(swapped)}/s go to and from swap", figures, remedy)
    if found.left >= _LITTLE_BYTES:
        return Said("ok", seen, figures)
    remedy = "Raise the container's memory limit." if limited else "End what fills it (ps aux --sort -rss | head)."
    return Said(
        "broken" if found.left < _LEAST_BYTES else "note",
        f"{seen}; TensorFlow alone takes {size(machine.sight.peak_bytes or 6e8)}, model and buffers come on top",
        figures,
        f"{remedy} Smaller shuffle and prefetch buffers need less.",
    )


def shared_memory(machine: Machine) -> Said:
    """Docker's 64 MiB, or a /dev/shm that is full or may not be written to."""
    found = machine.memory
    figures = {"total_bytes": found.shared_total_bytes, "free_bytes": found.shared_free_bytes}
    remedy = "Start the container with --shm-size=2g (or `--ipc=host`); without one: mount -o remount,size=2g /dev/shm."
    if found.shared_free_bytes is None or found.shared_total_bytes is None:
        why = found.unmeasured.get("shared_free_bytes", "not read")
        return Said("broken", f"/dev/shm cannot be written to ({why})", figures, remedy)
    seen = f"{size(found.shared_free_bytes)} free of {size(found.shared_total_bytes)} in /dev/shm"
    if found.shared_free_bytes < _SHARED_LEAST_BYTES:
        return Said("broken", f"{seen}: input processes and NCCL need more", figures, remedy)
    if found.shared_free_bytes < _SHARED_LITTLE_BYTES:
        return Said("note", f"{seen}: little for input processes and for NCCL", figures, remedy)
    return Said("ok", seen, figures)


def disk_space(machine: Machine) -> Said:
    """A disk that is full, has no file entries left, or may not be written to."""
    figures = {
        f"{one.what}.{name}": getattr(one, name) for one in machine.places for name in ("free_bytes", "free_files")
    }
    for one in machine.places:
        if one.refused is not None:
            free = f"; {size(one.free_bytes)} are free" if one.free_bytes is not None else ""
            seen = f"{one.what} {one.path}: a file of 16 MB cannot be made there ({one.refused}{free})"
            others = "--out for runs, XTTSBENCH_CACHE for made data, TMPDIR for the rest"
            return Said("broken", seen, figures, f"Make room or name another place: {others}.")
    for one in machine.places:
        if one.free_files is not None and one.free_files < _FILES_LEAST:
            seen = f"{one.what} {one.path}: {one.free_files} more files can be made"
            return Said("broken", seen, figures, "Delete small files: the file system is out of inodes (df -i).")
    known = [one for one in machine.places if one.free_bytes is not None]
    fullest = min(known, key=lambda place: place.free_bytes or 0, default=None)
    if fullest is not None and (least := fullest.free_bytes or 0) < _DISK_LITTLE_BYTES:
        status: Status = "broken" if least < _DISK_LEAST_BYTES else "note"
        remedy = "Make room: checkpoints, feature caches and profiles need gigabytes."
        return Said(status, f"{fullest.what} {fullest.path}: {size(least)} free", figures, remedy)
    return Said("ok", f"free: {', '.join(f'{size(one.free_bytes or 0)} ({one.what})' for one in known)}", figures)
