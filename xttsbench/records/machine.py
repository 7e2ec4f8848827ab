"""What ``xttsbench doctor`` reads of a machine, and what it says of each thing that it checks.

Readings come first and judgements after, so that every check can be tried on a machine that is made up. ``None`` is
what could not be read; the reason is in ``unmeasured`` of the record that holds it.
"""

from __future__ import annotations

from typing import Final, Literal

from xttsbench.records.base import SCHEMA_VERSION, Record

TENSORFLOW: Final = ("2.19", "2.20", "2.21")
"""The versions of TensorFlow that this code works with, as ``make matrix`` tries it."""
Status = Literal["ok", "note", "broken", "unknown"]
"""``note``: works, and is worth knowing; ``broken``: something does not work, or a quarter and more of it is lost;
``unknown``: could not be checked."""
Figure = float | int | str | bool | None
Stage = Literal["start", "import", "devices", "xla", "done"]


class Check(Record):
    """What one check says."""

    id: str
    about: str
    """What it looks at, in a few words."""
    status: Status
    seen: str
    """One sentence, with the figures that it rests on."""
    figures: dict[str, Figure] = {}
    remedy: str = ""
    """What to do; empty where there is nothing to do."""


class Gpu(Record):
    """One GPU as the driver tells of it."""

    index: int
    name: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    processes: int | None = None
    """Processes with a compute context on it."""
    lost: str | None = None
    """Why the driver cannot reach it; ``None`` where it can."""


class Driver(Record):
    """The NVIDIA driver, and what the kernel knows of NVIDIA's devices without it."""

    gpus: tuple[Gpu, ...] = ()
    reason: str | None = None
    """Why the driver's library lists no GPU."""
    version: str | None = None
    cuda: str | None = None
    """The newest CUDA that the driver runs, such as ``12.4``."""
    pci: dict[str, str] = {}
    """Address of each NVIDIA graphics device on the bus -> the kernel driver that it is bound to, empty for none."""
    refused: dict[str, str] = {}
    """Device file of the driver -> why this user may not open it."""
    ill: bool = False
    """Whether the process that asked the driver crashed or did not come back."""
    container: bool = False
    """Whether this process seems to run in a container."""


class Computed(Record):
    """A small function, compiled by XLA and run on a device."""

    device: str
    value: float | None = None
    expected: float
    first_s: float | None = None
    """Tracing, compilation and the first run."""
    error: str | None = None


class Sight(Record):
    """What TensorFlow sees in a process of its own, as far as that process came."""

    stage: Stage = "start"
    """The last part that it began; ``done`` where it came to its end."""
    ended: str | None = None
    """How it ended where it did not come to its end: ``killed by SIGSEGV``, ``ended with exit code 1``."""
    last_words: str = ""
    """The end of what it printed, where it did not come to its end."""
    import_s: float | None = None
    versions: dict[str, str] = {}
    built_with_cuda: bool | None = None
    cuda: str | None = None
    """What it was built for, such as ``12.5.1``."""
    cudnn: str | None = None
    gpus: tuple[str, ...] = ()
    threads: dict[str, int] = {}
    """Pool of TensorFlow's -> threads in it: ``intra_op`` (those that share one operation), ``inter_op``."""
    peak_bytes: int | None = None
    """Most memory that the process held."""
    computed: tuple[Computed, ...] = ()
    missing: dict[str, str] = {}
    """CUDA library that TensorFlow could not load -> the loader's reason."""
    complaint: str | None = None
    """What CUDA said where it could not be initialised."""


class Software(Record):
    """Versions and variables of the environment that the command runs in."""

    python: str
    architecture: str = "x86_64"
    packages: dict[str, str | None] = {}
    builds: tuple[str, ...] = ()
    """Installed distributions that all provide the package ``tensorflow``."""
    variables: dict[str, str] = {}
    """Those that TensorFlow, CUDA and NumPy read."""


class Processors(Record):
    """Processors, and what others made of them in a short while."""

    machine_cpus: int
    affinity_cpus: int
    quota_cpus: float | None = None
    """``None`` where no quota is set."""
    window_s: float | None = None
    steal_share: float | None = None
    """Of the processors' time that the hypervisor ran something else in."""
    foreign_share: float | None = None
    """Of the processors' time that other processes used."""

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
    """Of /dev/shm; ``None`` where it cannot be written to."""
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
    free_files: int | None = None
    """``None`` where the file system does not count them."""
    refused: str | None = None
    """Why a small file could not be made there."""


class Pass(Record):
    """One reading of the sample of files, one after the other."""

    seconds: float
    stored_share: float | None = None
    """Of the bytes that storage was asked for, the rest came from the page cache; ``None`` where that is not known."""


class Storage(Record):
    """How fast files of a data set are read."""

    path: str
    filesystem: str | None = None
    listed: int = 0
    """Files that were seen; looking for more was ended."""
    files: int = 0
    """Files of the sample."""
    bytes: int = 0
    cold: Pass | None = None
    warm: Pass | None = None
    parallel: Pass | None = None
    """Cold, by :data:`~xttsbench.probes.machine.READERS` readers at once, other files of the data set."""
    parallel_files: int = 0
    parallel_bytes: int = 0
    needed_bytes_per_s: float | None = None
    """What a measured run reads when it does not wait; ``None`` where no run was named."""
    unmeasured: dict[str, str] = {}


class Machine(Record):
    """Everything that was read."""

    software: Software
    driver: Driver = Driver()
    sight: Sight = Sight()
    processors: Processors
    memory: Memory
    places: tuple[Place, ...] = ()
    storage: Storage | None = None
    """``None`` where no data were named."""


class Examination(Record):
    """What ``xttsbench doctor --json`` prints."""

    schema_version: Literal[2] = SCHEMA_VERSION
    kind: Literal["doctor"] = "doctor"
    command: str
    created_utc: str
    checks: tuple[Check, ...]
    machine: Machine

    def of(self, *statuses: Status) -> tuple[Check, ...]:
        """The checks that ended so."""
        return tuple(check for check in self.checks if check.status in statuses)
