"""Neighbours made on purpose: other processes that take processors or memory, stolen time, and a processor quota.

``with beside(name) as prefix:`` runs one; commands are to be started with ``prefix`` in front, which is empty but for
the quota. A neighbour ends with the block, and with the process that made it, however that one ends. As a script, this
file is a neighbour: ``python neighbours.py KIND PARENT ARGUMENT...``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

STEAL_S = 0.2  # longest stretch that is stolen at once
BURST_S = (15.0, 40.0)  # how long the cores are taken, and how long they are left alone
_HOG_BYTES = 256 << 20
_PRIORITY = 50
_PR_SET_PDEATHSIG = 1

WORDS: Mapping[str, str] = {
    "none": "nothing else runs",
    "core": "an ordinary process computes all the time, on one core's worth",
    "bursts": "as many ordinary processes as there are cores, for 15 to 40 s, and as long not",
    "memory": "a process copies 256 MiB to and fro",
    "quota": "a control group allows one core",
    "steal15": "a real-time process on each core takes 15 % of it, 0 to 200 ms at a stretch",
    "steal35": "a real-time process on each core takes 35 % of it",
    "steal60": "a real-time process on each core takes 60 % of it",
}


class NotPossibleError(Exception):
    """This machine does not let us make that neighbour; the text says why."""


@contextlib.contextmanager
def beside(name: str, seed: int = 0) -> Iterator[list[str]]:
    """Have a neighbour while the block runs; raises :class:`NotPossibleError`."""
    cpus = sorted(os.sched_getaffinity(0))
    if name == "quota":
        with _quota(1.0) as prefix:
            yield prefix
        return
    wanted: list[tuple[object, ...]] = []
    if name == "core":
        wanted = [("spin",)]
    elif name == "bursts":
        wanted = [("bursts", seed) for _ in cpus]
    elif name == "memory":
        wanted = [("hog",)]
    elif name.startswith("steal"):
        share = int(name.removeprefix("steal")) / 100
        _check_real_time(share)
        wanted = [("steal", cpu, share, seed) for cpu in cpus]
    elif name != "none":
        raise ValueError(f"no such neighbour: {name!r}; there are {', '.join(WORDS)}")
    with contextlib.ExitStack() as running:
        for arguments in wanted:
            running.enter_context(_process(*arguments))
        yield []


@contextlib.contextmanager
def _process(*arguments: object) -> Iterator[None]:
    command = [sys.executable, __file__, str(arguments[0]), str(os.getpid()), *(str(value) for value in arguments[1:])]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the neighbour {arguments} ended by itself, with exit code {process.returncode}")
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _quota(cpus: float) -> Iterator[list[str]]:
    """A control group that allows so many processors; commands enter it by the prefix."""
    version_2, version_1 = Path("/sys/fs/cgroup/cgroup.controllers"), Path("/sys/fs/cgroup/cpu")
    period_us = 100_000
    if version_2.exists():
        group, written = version_2.parent, {"cpu.max": f"{cpus * period_us:.0f} {period_us}"}
    elif (version_1 / "cpu.cfs_quota_us").exists():
        group, written = version_1, {"cpu.cfs_quota_us": f"{cpus * period_us:.0f}"}
    else:
        raise NotPossibleError("there is no control group for processors here")
    path = group / f"xttsbench-noise-{os.getpid()}"
    try:
        path.mkdir()
        for file, text in written.items():
            (path / file).write_text(text)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.rmdir()
        raise NotPossibleError(f"a control group cannot be made: {error.strerror}") from error
    shell = shutil.which("sh") or "/bin/sh"
    try:
        yield [shell, "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(path)]
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    for _ in range(50):
        for line in (path / "cgroup.procs").read_text().split():  # what the command left behind
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line), signal.SIGKILL)
        with contextlib.suppress(OSError):
            path.rmdir()
            return
        time.sleep(0.1)


def _check_real_time(share: float) -> None:
    """Whether a real-time process may run, for that share of the time."""
    try:
        limit, period = (
            int(Path(f"/proc/sys/kernel/sched_rt_{name}_us").read_text()) for name in ("runtime", "period")
        )
    except OSError as error:
        raise NotPossibleError(f"the kernel's limit of real-time processes cannot be read: {error.strerror}") from error
    if limit >= 0 and limit < (share + 0.2) * period:
        raise NotPossibleError(f"the kernel gives real-time processes {limit / period:.0%} of the time at most")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
            os.write(write, b"+")
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as pipe:
        if not pipe.read():
            raise NotPossibleError("this user may not run real-time processes (SCHED_FIFO)")


def _spin(until_s: float) -> None:
    while time.monotonic() < until_s:
        pass


def spin() -> None:
    """Compute all the time."""
    _spin(float("inf"))


def bursts(seed: str) -> None:
    """Compute for a while and not for a while; those of one seed that start together do so together."""
    draw = random.Random(int(seed))
    now_s = time.monotonic()
    while True:
        now_s += draw.uniform(*BURST_S)
        _spin(now_s)
        now_s += draw.uniform(*BURST_S)
        time.sleep(max(now_s - time.monotonic(), 0.0))


def hog() -> None:
    """Copy more than any cache holds."""
    import numpy as np

    source, target = np.zeros(_HOG_BYTES, np.uint8), np.zeros(_HOG_BYTES, np.uint8)
    while True:
        np.copyto(target, source)


def steal(cpu: str, share: str, seed: str) -> None:
    """Take one processor from everyone, at random, for that share of the time on the whole."""
    os.sched_setaffinity(0, {int(cpu)})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    draw, most_s = random.Random(f"{seed}-{cpu}"), STEAL_S * (1 - float(share)) / float(share)
    while True:
        _spin(time.monotonic() + draw.uniform(0, STEAL_S))
        time.sleep(draw.uniform(0, most_s))


KINDS: Mapping[str, Callable[..., None]] = {"spin": spin, "bursts": bursts, "hog": hog, "steal": steal}


def main() -> None:
    """Be a neighbour until the parent ends."""
    kind, parent, *arguments = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it ended before the kernel was told
        return
    KINDS[kind](*arguments)


if __name__ == "__main__":
    main()
