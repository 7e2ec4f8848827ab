"""A machine: what ``xttsbench doctor`` reads of it and says of each check, and what ``xttsbench monitor`` reads of it.

Readings come first and judgements after, so that every check can be tried on a machine that is made up. A reading of
the monitor is a value for each column that was read at that time: numbers in the unit that ends the column's name,
shares from 0 to 1, ``cpus`` in processors (1.5 is one and a half of them kept busy). What cannot be read, or is read
more rarely, is ``None`` or not in it, and never zero; of the doctor's records ``unmeasured`` has the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeGuard

from xttsbench.records.base import SCHEMA_VERSION, Record

TENSORFLOW: Final = ("2.19", "2.20", "2.21")
"""The versions of TensorFlow that this code works with, as ``make matrix`` tries it."""
Status = Literal["ok", "note", "broken", "unknown"]
"""``note``: works, and is worth knowing; ``broken``: something does not work, or a quarter and more of it is lost;
``unknown``: could not be checked."""
Figure = float | int | str | bool | None
Stage = Literal["start", "import", "devices", "xla", "done"]


class MeasuredOn(Record):
    """Machine of a cluster on which a trial was measured, and its device; trials of two are never paired."""

    node: str  # Of the cluster's own naming, so that machines are told apart without their names
    host: str
    device: str  # ``CPU`` or ``GPU`` with its number on that machine
    processor: str | None = None  # Model
    fingerprint: str  # Of hardware and versions, as in ``environment.json``

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.host} ({self.node}), {self.device}"


class Check(Record):
    """Result of one check."""

    id: str
    about: str  # What it looks at, in a few words
    status: Status
    seen: str  # One sentence, with the figures that it rests on
    figures: dict[str, Figure] = {}
    remedy: str = ""  # What to do; empty where there is nothing to do


class Said(NamedTuple):
    """Result of a check before it bears its name; the fields are those of :class:`Check`."""

    status: Status
    seen: str
    figures: Mapping[str, Figure] = {}
    remedy: str = ""


class Gpu(Record):
    """One GPU as the driver tells of it."""

    index: int
    name: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    processes: int | None = None  # Processes with a compute context on it
    lost: str | None = None  # Why the driver cannot reach it; ``None`` where it can


class Driver(Record):
    """The NVIDIA driver, and what the kernel knows of NVIDIA's devices without it."""

    gpus: tuple[Gpu, ...] = ()
    reason: str | None = None  # Why the driver's library lists no GPU
    version: str | None = None
    cuda: str | None = None  # The newest CUDA that the driver runs, such as ``12.4``
    pci: dict[str, str] = {}
    """Address of each NVIDIA graphics device on the bus -> the kernel driver that it is bound to, empty for none."""
    refused: dict[str, str] = {}  # Device file of the driver -> why this user may not open it
    ill: bool = False  # Whether the process that asked the driver crashed or did not come back
    container: bool = False  # Whether this process seems to run in a container


class Computed(Record):
    """A small function, compiled by XLA and run on a device."""

    device: str
    value: float | None = None
    expected: float
    first_s: float | None = None  # Tracing, compilation and the first run
    error: str | None = None


class Sight(Record):
    """TensorFlow's view of the machine from a process of its own, as far as that process came."""

    stage: Stage = "start"  # The last part that it began; ``done`` where it came to its end
    ended: str | None = None
    """Early end of the process: ``killed by SIGSEGV``, ``ended with exit code 1``; ``None`` where it came to its end.
    """
    last_words: str = ""  # The end of what it printed, where it did not come to its end
    import_s: float | None = None
    versions: dict[str, str] = {}
    built_with_cuda: bool | None = None
    cuda: str | None = None  # What it was built for, such as ``12.5.1``
    cudnn: str | None = None
    gpus: tuple[str, ...] = ()
    threads: dict[str, int] = {}
    """Pool of TensorFlow's -> threads in it: ``intra_op`` (those that share one operation), ``inter_op``."""
    peak_bytes: int | None = None  # Most memory that the process held
    computed: tuple[Computed, ...] = ()
    missing: dict[str, str] = {}  # CUDA library that TensorFlow could not load -> the loader's reason
    complaint: str | None = None  # What CUDA said where it could not be initialised


class Software(Record):
    """Versions and variables of the environment that the command runs in."""

    python: str
    architecture: str = "x86_64"
    packages: dict[str, str | None] = {}
    builds: tuple[str, ...] = ()  # Installed distributions that all provide the package ``tensorflow``
    variables: dict[str, str] = {}  # Those that TensorFlow, CUDA and NumPy read


class Processors(Record):
    """Processors, and what others made of them in a short while."""

    machine_cpus: int
    affinity_cpus: int
    quota_cpus: float | None = None  # ``None`` where no quota is set
    window_s: float | None = None
    steal_share: float | None = None  # Of the processors' time that the hypervisor ran something else in
    foreign_share: float | None = None  # Of the processors' time that other processes used

    @property
    def allowed(self) -> float:
        """Processors that this process can keep busy."""
        return min(self.affinity_cpus, self.quota_cpus or self.affinity_cpus)


class Memory(Record):
    """Memory of the machine and of the control group."""

    total_bytes: int
    available_bytes: int
    limit_bytes: int | None = None
    """``None`` where no limit is set."""
    limit_left_bytes: int | None = None
    swapped_bytes_per_s: float | None = None
    """Read from and written to swap."""
    shared_total_bytes: int | None = None
    """Size of /dev/shm; ``None`` where it cannot be written to."""
    shared_free_bytes: int | None = None
    unmeasured: dict[str, str] = {}

    @property
    def left(self) -> int:
        """Bytes that can still be had: of the machine, and of the control group's limit."""
        return min(left for left in (self.available_bytes, self.limit_left_bytes) if left is not None)


class Place(Record):
    """A directory that is written to."""

    what: str
    path: str
    free_bytes: int | None = None
    free_files: int | None = None  # ``None`` where the file system does not count them
    refused: str | None = None  # Why a small file could not be made there


class Machine(Record):
    """Everything that was read."""

    software: Software
    driver: Driver = Driver()
    sight: Sight = Sight()
    processors: Processors
    memory: Memory
    places: tuple[Place, ...] = ()


class Examination(Record):
    """Output of ``xttsbench doctor --json``."""

    schema_version: Literal[3] = SCHEMA_VERSION
    kind: Literal["doctor"] = "doctor"
    command: str
    created_utc: str
    checks: tuple[Check, ...]
    machine: Machine

    def of(self, *statuses: Status) -> tuple[Check, ...]:
        """The checks that ended so."""
        return tuple(check for check in self.checks if check.status in statuses)


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
    "gpu<n>_pcie_rx_bytes_per_s": "to the GPU, over 20 ms; not at each reading",
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
    """Name of a column in a sentence: ``GPU 0 utilization``."""
    found = re.fullmatch(r"gpu(\d+)_(.+)", column)
    return f"GPU {found[1]} {found[2].replace('_', ' ')}" if found else _SPOKEN.get(column, column)


def oscillating(columns: Iterable[str]) -> tuple[str, ...]:
    """Columns of a machine in which oscillations are looked for."""
    return tuple(one for one in columns if one in _SPOKEN or re.fullmatch(r"gpu\d+_utilization", one))


def columns(*, cores: Iterable[int], disks: Iterable[str], gpus: Iterable[int], process: bool) -> tuple[str, ...]:
    """The columns of a machine, in order."""
    cores, disks, gpus = list(cores), list(disks), list(gpus)
    many = {"cpu<n>": [f"cpu{n}" for n in cores], "gpu<n>": [f"gpu{n}" for n in gpus]}
    many |= {"disk_<name>": [f"disk_{name}" for name in disks], "top<n>": [f"top{n + 1}" for n in range(LISTED)]}
    return tuple(_expanded(many, process=process))


def _expanded(many: dict[str, list[str]], *, process: bool) -> Iterator[str]:
    """Expands patterns to columns; those of one GPU, device or process stand side by side."""
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
    t_s: float  # seconds since the first reading, where it was recognised
    period_s: float
    variance_share: float  # share of the column's variance that repeats
    p_value: float


class Event(Record):
    """Something that happened, in words."""

    t_s: float  # seconds since the first reading
    text: str


class Monitored(Record):
    """Summary of a run of ``xttsbench monitor``."""

    schema_version: Literal[3] = SCHEMA_VERSION
    kind: Literal["monitor"] = "monitor"
    command: str = ""
    started_utc: str
    duration_s: float
    interval_s: float  # asked for; the median of a log that is read again
    readings: int
    log: str | None = None  # the CSV
    machine: dict[str, Value] = {}  # ``processors``, and ``gpu0`` and so on with their names
    own_cpu_share: float | None = None
    """Share of one processor that the readings themselves took; ``None`` in a log that is read again."""
    signals: dict[str, Signal] = {}  # column to what it came to
    oscillations: tuple[ColumnOscillation, ...] = ()  # the newest of each column and period
    events: tuple[Event, ...] = ()  # the last hundred
    unmeasured: dict[str, str] = {}  # column to why it is empty
