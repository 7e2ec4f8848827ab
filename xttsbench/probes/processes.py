"""Users of the processors, from a walk over all processes now and then; and one process, read each time.

A walk sees what each process used since the walk before. Processes of another container, and those that were born and
ended between two walks, are not seen; what they used is the rest of what the processors were busy with.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from pydantic import ValidationError

from xttsbench.files import atomic_write
from xttsbench.probes.procfs import Stat, parse_stat, read_text
from xttsbench.records.machine import LISTED, Reading
from xttsbench.records.watch import LIVE_FILE, LiveRun, RunningRun, running_directory

_NAME_BYTES: Final = 4096
_INTERPRETERS: Final = ("python", "bash", "sh", "perl", "ruby", "node", "java")
_LIVE_S: Final = 1.0  # a watched run writes its record at most so often


@dataclass(frozen=True, slots=True)
class User:
    """A process and how many processors it used."""

    pid: int
    name: str
    cpus: float


@dataclass(frozen=True, slots=True)
class Walk:
    """Result of a walk over the processes."""

    users: tuple[User, ...] = ()
    """Processes by use, most first, :data:`~xttsbench.records.machine.LISTED` at most."""
    unseen_cpus: float | None = None
    """Processors that were used by none of the processes that are seen."""
    parents: dict[int, int] = field(default_factory=dict)
    """Process id to that of its parent."""

    def family(self, pid: int) -> tuple[int, ...]:
        """All descendants of a process."""
        children: dict[int, list[int]] = {}
        for child, parent in self.parents.items():
            children.setdefault(parent, []).append(child)
        found = [pid]
        for one in found:  # which grows
            found += children.get(one, ())
        return tuple(found[1:])


def _busy_s() -> float:
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


class Processes:
    """All processes; ``busy_s`` gives the processor seconds that anyone used so far."""

    def __init__(
        self,
        *,
        busy_s: Callable[[], float] = _busy_s,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._busy, self._proc, self._clock = busy_s, proc, clock
        self._known: dict[tuple[int, int], float] = {}
        self._walked_s, self._busy_s = clock(), busy_s()
        self.walk()

    def walk(self) -> Walk:
        """Look at all processes."""
        now_s, busy_s = self._clock(), self._busy()
        seconds, self._walked_s = now_s - self._walked_s, now_s
        used: list[tuple[float, int, str]] = []
        known: dict[tuple[int, int], float] = {}
        parents: dict[int, int] = {}
        for pid, stat in self._all():
            key = pid, stat.started_ticks
            known[key], parents[pid] = stat.cpu_s, stat.parent
            # One that is new has used all of its time since the walk before.
            if (more_s := stat.cpu_s - self._known.get(key, 0.0)) > 0:
                used.append((more_s, pid, stat.name))
        first, self._known = not self._known, known
        before_s, self._busy_s = self._busy_s, busy_s
        if first or seconds <= 0:
            return Walk(parents=parents)
        used.sort(reverse=True)
        listed = [User(pid, _called(self._proc, pid, name), more_s / seconds) for more_s, pid, name in used[:LISTED]]
        unseen = max(busy_s - before_s - sum(more_s for more_s, _, _ in used), 0.0) / seconds
        return Walk(tuple(listed), unseen, parents)

    def _all(self) -> Iterator[tuple[int, Stat]]:
        for name in os.listdir(self._proc):
            if name.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    yield int(name), parse_stat(read_text(f"{self._proc}/{name}/stat"))


class ProcessProbe:
    """Reads one process with its children until it ends, and the steps of it where it is a watched run.

    Attributes:
        name: what it is called.
        ended: whether it is gone.
        live: what the watched run says; ``None`` where it is none.
        unmeasured: column to why it is empty.
    """

    def __init__(self, pid: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ``ProcessLookupError`` where there is no such process."""
        self.pid, self._clock = pid, clock
        self.unmeasured: dict[str, str] = {}
        self.ended = False
        self.live: LiveRun | None = None
        self.family: tuple[int, ...] = ()
        try:
            self._process = psutil.Process(pid)
            self.name = _called("/proc", pid, self._process.name())
        except psutil.Error:
            raise ProcessLookupError(pid) from None
        self._run: Path | None = None
        self._read_s, self._live_s = clock(), -_LIVE_S
        self._used, self._moved, _ = self._look()
        if not self._used:
            raise ProcessLookupError(pid)

    def read(self) -> Reading:
        """Activity of the process since the last reading; an empty one once it has ended."""
        now_s = self._clock()
        seconds = now_s - self._read_s
        if self.ended or seconds <= 0:
            return {}
        used, moved, memory_bytes = self._look()
        if self.pid not in used:
            self.ended = True
            return {}
        grown_s = sum(max(now - self._used.get(pid, now), 0.0) for pid, now in used.items())
        # A child that ended since is in its parent's count with all that it ever used: take out what was counted.
        reaped_s = sum(self._used[pid] for pid in self._used.keys() - used.keys())
        found: Reading = {
            "process_cpus": max(grown_s - reaped_s, 0.0) / seconds,
            "process_memory_bytes": memory_bytes,
        }
        for at, name in enumerate(("read", "write") if self.pid in moved else ()):
            grown = sum(max(now[at] - self._moved.get(pid, now)[at], 0) for pid, now in moved.items())
            found[f"process_{name}_bytes_per_s"] = grown / seconds
        self._read_s, self._used, self._moved = now_s, used, moved
        self._add_steps(found, now_s)
        return found

    def _look(self) -> tuple[dict[int, float], dict[int, tuple[int, int]], int]:
        """Processor time, and bytes from and to storage, of each process that lives; and the memory of all."""
        used: dict[int, float] = {}
        moved: dict[int, tuple[int, int]] = {}
        memory_bytes = 0
        if not self._process.is_running():  # its id may be another's by now
            return used, moved, memory_bytes
        for pid in (self.pid, *self.family):
            with suppress(psutil.Error):
                one = self._process if pid == self.pid else psutil.Process(pid)
                with one.oneshot():
                    if one.status() == psutil.STATUS_ZOMBIE:
                        continue
                    used[pid] = sum(one.cpu_times()[:4])  # its own, and that of children that ended
                    memory_bytes += one.memory_info().rss
                    try:
                        counters = one.io_counters()
                        moved[pid] = counters.read_bytes, counters.write_bytes
                    # Of a kernel that does not count these psutil has no such method, or misses a line.
                    except (psutil.AccessDenied, AttributeError, RuntimeError, ValueError) as error:
                        if pid == self.pid:
                            denied = isinstance(error, psutil.AccessDenied)
                            why = f"/proc/{pid}/io {'may be read by its owner only' if denied else 'cannot be read'}"
                            columns = ("process_read_bytes_per_s", "process_write_bytes_per_s")
                            self.unmeasured |= dict.fromkeys(columns, why)
        return used, moved, memory_bytes

    def _add_steps(self, found: Reading, now_s: float) -> None:
        if now_s - self._live_s < _LIVE_S:
            return
        self._live_s = now_s
        if self._run is None:
            self._run = running().get(self.pid)
        if self._run is None or (live := read_live(self._run)) is None:
            return
        self.live = live
        found["process_steps"] = live.steps
        if live.recent is not None:
            found["process_step_time_s"] = live.recent.step_time_s
            found["process_input_wait_share"] = live.recent.input_wait_fraction


def _called(proc: str, pid: int, name: str) -> str:
    """The program, with its script where it is an interpreter: ``python train.py``."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            words = file.read(_NAME_BYTES).decode("utf-8", "replace").split("\0")
    except OSError:
        return name
    if not os.path.basename(words[0]).rstrip("0123456789.").startswith(_INTERPRETERS):
        return name
    rest = iter(words[1:])
    for word in rest:
        if word in ("-m", "-jar"):
            return f"{name} {word} {next(rest, '')}".strip()
        if word and not word.startswith("-"):
            return f"{name} {os.path.basename(word)}"
        if word == "-c":
            break
    return name


_LARGEST_BYTES: Final = 65_536


def announce(pid: int, run: Path) -> Path | None:
    """Write the file that leads from a process to its run; ``None`` where the runtime directory is not to be had.

    Args:
        pid: of the watched process.
        run: its run directory.
    """
    try:
        directory = running_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_uid != os.getuid():
            return None
        directory.chmod(0o700)
        file = directory / f"{pid}.json"
        atomic_write(file, RunningRun(run=str(run.absolute())).to_line().encode())
    except OSError:
        return None
    return file


def running() -> dict[int, Path]:
    """Return the run directory of each watched process that is alive, by its pid; files of dead ones are removed."""
    found: dict[int, Path] = {}
    try:
        directory = running_directory()
        if directory.stat().st_uid != os.getuid():
            return {}
        files = sorted(directory.glob("[1-9]*.json"))
    except OSError:
        return {}
    for file in files:
        if not file.stem.isdecimal():
            continue
        if not Path("/proc", file.stem).exists():
            with suppress(OSError):
                file.unlink()
            continue
        with suppress(OSError, ValueError, RecursionError):
            found[int(file.stem)] = Path(RunningRun.from_line(_content(file)).run)
    return found


def read_live(run: Path) -> LiveRun | None:
    """Return what a watched run says of itself; ``None`` where its directory says nothing that can be read."""
    try:
        return LiveRun.model_validate_json(_content(run / LIVE_FILE))
    except (OSError, ValidationError):
        return None


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_LARGEST_BYTES)
