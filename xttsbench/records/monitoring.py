"""What ``xttsbench monitor`` reads: the columns of its CSV with their units, and the record of a whole run of it.

A reading is a value for each column that was read at that time: numbers in the unit that ends the column's name, shares
from 0 to 1, ``cpus`` in processors (1.5 is one and a half of them kept busy). What is read more rarely, or cannot be
read, is not in it, and its cell in the CSV is empty: never zero.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeGuard

import platformdirs

from xttsbench.records.base import SCHEMA_VERSION, Record

Value = float | int | str | None
Reading = dict[str, Value]

LISTED: Final = 3
"""Processes that are named in a reading: those that use most of the processors."""

COLUMNS: Final = {
    "time_utc": "when it was read, ISO 8601",
    "t_s": "seconds since the first reading",
    "cpu_share": "use of all processors together, by anyone",
    "cpu_steal_share": "time for which the hypervisor ran something else while they had work",
    "cpu_iowait_share": "time for which they had nothing to run and something waited for storage",
    "runnable_threads": "threads of the machine that run or wait for a processor",
    "quota_throttled_cpus": "processors' worth of time for which the control group's quota stopped threads",
    "cpu<n>_share": "use of processor n",
    "memory_used_bytes": "memory in use without caches; of the control group where that has a limit",
    "memory_total_bytes": "memory that there is, or that the control group may use",
    "storage_read_bytes_per_s": "from all storage devices",
    "storage_write_bytes_per_s": "to all storage devices",
    "storage_busy_share": "time for which the busiest device had something to do",
    "disk_<name>_read_bytes_per_s": "from one device",
    "disk_<name>_write_bytes_per_s": "to one device",
    "disk_<name>_busy_share": "time for which it had something to do",
    "top<n>_name": "who used most of the processors since the last look at all processes, n from 1 to 3",
    "top<n>_pid": "its process id",
    "top<n>_cpus": "processors that it used",
    "unseen_cpus": "processors used by what is not to be seen from here: other containers, and the very short-lived",
    "gpu<n>_name": "as the driver has it",
    "gpu<n>_utilization": "share of the time in which a kernel ran: the driver's samples since the last reading",
    "gpu<n>_memory_used_bytes": "memory of the GPU in use, by anyone",
    "gpu<n>_memory_total_bytes": "memory that it has",
    "gpu<n>_sm_clock_mhz": "clock of its multiprocessors",
    "gpu<n>_memory_clock_mhz": "clock of its memory",
    "gpu<n>_power_w": "power that it draws, in watts",
    "gpu<n>_throttle_reasons": "what holds its clocks down, in NVML's words; empty for nothing",
    "gpu<n>_pcie_rx_bytes_per_s": "to the GPU, over 20 ms, at one GPU in five readings",
    "gpu<n>_pcie_tx_bytes_per_s": "from the GPU, likewise",
    "gpu<n>_pids": "processes that compute on it",
    "gpu<n>_error": "what the driver answered in place of a reading",
    "process_pid": "the process of --pid",
    "process_name": "its name",
    "process_cpus": "processors that it and its children used",
    "process_memory_bytes": "resident memory, its own and its children's",
    "process_read_bytes_per_s": "from storage, its own and its children's",
    "process_write_bytes_per_s": "to storage, likewise",
    "process_gpu_memory_bytes": "memory that it and its children hold, of all GPUs",
    "process_steps": "steps so far, where it is a watched run",
    "process_step_time_s": "mean of its newest steps",
    "process_input_wait_share": "share of them that was spent waiting for input",
    "event": "what happened: a GPU that is lost, a process that ended, an oscillation",
}
"""Every column there can be, in the order of the file, and what it means."""
_TEXT: Final = ("time_utc", "event", "process_name")
_TEXT_OF: Final = ("name", "throttle_reasons", "pids", "error")


_SPOKEN: Final = {
    "cpu_share": "use of the processors",
    "process_cpus": "processor time of the process",
    "storage_read_bytes_per_s": "reading from storage",
}


def is_number(value: Value) -> TypeGuard[float]:
    """Whether a value is a number that was read."""
    return isinstance(value, int | float)


def spoken(column: str) -> str:
    """What a sentence calls a column: ``GPU 0 utilization``."""
    found = re.fullmatch(r"gpu(\d+)_(.+)", column)
    return f"GPU {found[1]} {found[2].replace('_', ' ')}" if found else _SPOKEN.get(column, column)


def oscillating(columns: Iterable[str]) -> tuple[str, ...]:
    """Those of a machine's columns in which oscillations are looked for."""
    return tuple(one for one in columns if one in _SPOKEN or re.fullmatch(r"gpu\d+_utilization", one))


def columns(*, cores: Iterable[int], disks: Iterable[str], gpus: Iterable[int], process: bool) -> tuple[str, ...]:
    """The columns of a machine, in order."""
    cores, disks, gpus = list(cores), list(disks), list(gpus)
    many = {"cpu<n>": [f"cpu{n}" for n in cores], "gpu<n>": [f"gpu{n}" for n in gpus]}
    many |= {"disk_<name>": [f"disk_{name}" for name in disks], "top<n>": [f"top{n + 1}" for n in range(LISTED)]}
    return tuple(_expanded(many, process=process))


def _expanded(many: dict[str, list[str]], *, process: bool) -> Iterator[str]:
    """Those of one GPU, device or process stand side by side."""
    done: set[str] = set()
    for pattern in COLUMNS:
        start = pattern.partition(">")[0] + ">"
        if ">" not in pattern:
            if process or not pattern.startswith("process_"):
                yield pattern
        elif start not in done:
            done.add(start)
            ends = [one.removeprefix(start) for one in COLUMNS if one.startswith(start)]
            yield from (f"{one}{end}" for one in many[start] for end in ends)


def is_text(column: str) -> bool:
    """Whether a column holds words and not numbers."""
    return column in _TEXT or bool(re.fullmatch(rf"(top|gpu)\d+_({'|'.join(_TEXT_OF)})", column))


class Signal(Record):
    """A column of numbers over a whole run, as far as it was read."""

    readings: int
    mean: float
    lowest: float
    highest: float


class ColumnOscillation(Record):
    """A column that repeated itself, as noise does not."""

    column: str
    t_s: float
    """seconds since the first reading, where it was recognised"""
    period_s: float
    variance_share: float
    """share of the column's variance that repeats"""
    p_value: float


class Event(Record):
    """Something that happened, in words."""

    t_s: float
    """seconds since the first reading"""
    text: str


class Monitored(Record):
    """What a run of ``xttsbench monitor`` saw."""

    schema_version: Literal[2] = SCHEMA_VERSION
    kind: Literal["monitor"] = "monitor"
    command: str = ""
    started_utc: str
    duration_s: float
    interval_s: float
    """asked for; the median of a log that is read again"""
    readings: int
    log: str | None = None
    """the CSV"""
    machine: dict[str, Value] = {}
    """``processors``, and ``gpu0`` and so on with their names"""
    own_cpu_share: float | None = None
    """of one processor: what the readings themselves took; ``None`` in a log that is read again"""
    signals: dict[str, Signal] = {}
    """column to what it came to"""
    oscillations: tuple[ColumnOscillation, ...] = ()
    """the newest of each column and period"""
    events: tuple[Event, ...] = ()
    """the last hundred"""
    unmeasured: dict[str, str] = {}
    """column to why it is empty"""


LIVE_FILE: Final = "live.json"
"""Name of a :class:`LiveRun` in its run directory."""
_VARIABLE: Final = "XTTSBENCH_RUNTIME"


class RecentSteps(Record):
    """The newest steps of a watched run: a few seconds of them, warm-up included."""

    steps: int
    """How many they are, 1 or more."""
    step_time_s: float
    """Their mean, from the end of a step to the end of the next one."""
    input_wait_fraction: float
    """Share of that time that was spent waiting for input, 0..1."""


class LiveRun(Record):
    """A watched run as it was when this was written."""

    schema_version: Literal[2] = SCHEMA_VERSION
    pid: int
    """Of the watched process."""
    script: str
    """The script and its arguments as a shell would take them, or what stands for them (``fit``, a loop)."""
    started_utc: str
    """ISO 8601, as all times of records."""
    updated_utc: str
    """When this was written; a run whose process is gone and that is not over was killed."""
    over: bool
    """The run has ended, and nothing here changes any more."""
    steps: int
    """Steps so far, over all loops that train."""
    recent: RecentSteps | None = None
    """``None`` where no step has ended yet, or none in the last few seconds."""


class RunningRun(Record):
    """What the file of a running watched process says: ``<pid>.json`` in :func:`running_directory`."""

    run: str
    """Absolute path of its run directory."""


def running_directory() -> Path:
    """Return the directory of the files of running watched processes; its mode is 0700, it may not exist yet."""
    with warnings.catch_warnings():  # where the system names no directory, the one that stands in for it will do
        warnings.simplefilter("ignore")
        base = os.environ.get(_VARIABLE) or platformdirs.user_runtime_path("xttsbench")
    return Path(base).absolute() / "watched"
