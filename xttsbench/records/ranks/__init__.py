"""One process among those that train together (a rank): its place, its file, and all ranks together.

``rank.json`` is written beside the summary of each rank's watched run.
"""

from __future__ import annotations

from typing import Final, Literal

from xttsbench.records.base import SCHEMA_VERSION, Record

RANK_FILE: Final = "rank.json"


class RankTask(Record):
    """Place of a process in its job."""

    rank: int
    """Number, from 0 on."""
    ranks: int
    """Number of processes that train together, 2 or more."""
    source: str
    """Source of this: ``TF_CONFIG``, or the launcher whose variables say it."""


Activity = Literal["collective", "input", "step", "python"]
"""Place of a main thread: in a collective, asking for a batch, in a tf.function, in other Python."""


class CodeLine(Record):
    """A line of the user's."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        named = f" ({self.function})" if self.function not in ("", "<module>") else ""
        return f"{self.file}:{self.line}{named}"


class RankPosition(Record):
    """Place of a rank in its code when its file was written."""

    activity: Activity
    line: CodeLine | None = None
    idle_s: float
    """Seconds since it last got on: a batch came, a collective began or ended."""


class RankEpoch(Record):
    """Samples of one pass over a rank's data."""

    epoch: int
    batches: int = 0
    samples: int = 0
    looked: int = 0  # Samples whose contents were hashed: looking takes 0.4 % of the time at most
    ended: bool = False  # The data ended; not known of a loop inside a graph
    below: int = 1 << 52
    """Hashes from here on are left out, the same way on each rank: so a bounded number is kept of any epoch."""
    hashes: tuple[int, ...] = ()  # Distinct ones of samples, ascending
    repeats: int = 0  # Samples whose hash this rank had seen before in this pass, of those below


class RankParts(Record):
    """Seconds of all measured steps of a rank, without the time that it spent in collectives but for the last field."""

    input: float = 0.0
    compute: float = 0.0
    host: float = 0.0
    collective: float = 0.0


class RankRun(Record):
    """``rank.json``: the part of a job that one rank saw."""

    schema_version: Literal[3] = SCHEMA_VERSION
    kind: Literal["rank"] = "rank"
    task: RankTask
    host: str
    clock: str
    """Processes with the same clock have comparable times; it is the host's, from its start on."""
    updated_s: float  # Seconds since 1970 when this was written
    steps: int = 0  # Measured steps, warm-up left out
    wall_s: float = 0.0  # Seconds of all measured steps
    parts: RankParts = RankParts()
    since_ns: int = 0  # Start of the first measured step
    begun: int = 0  # Collectives that this rank has entered, and left
    ended: int = 0
    measured: int = 0  # Collectives of the measured steps
    stride: int = 1  # One in so many collectives is kept, by its number and so the same ones on each rank
    collectives: tuple[tuple[int, int, int], ...] = ()
    """Number, begin and end in nanoseconds of the rank's clock, of those that were kept."""
    epochs: tuple[RankEpoch, ...] = ()
    position: RankPosition | None = None
    lines: dict[str, CodeLine] = {}
    """``input``, ``compute``, ``host`` -> the line where most of that time goes, as far as it was seen; ``request`` ->
    the line that asks for batches."""


Fault = Literal["hang", "died", "duplicated", "starved", "straggler"]


class RankFinding(Record):
    """A fault of a job, and the rank and line that it comes from."""

    fault: Fault
    rank: int
    cause: str = ""  # Of a straggler: ``input``, ``compute`` or ``host``
    sentence: str
    remedy: str
    line: CodeLine | None = None
    evidence: dict[str, float] = {}


class RankRow(Record):
    """A rank's mean step, in seconds; ``None`` where no step was measured."""

    rank: int
    host: str
    state: str
    steps: int
    step_s: float | None = None
    input_s: float | None = None
    compute_s: float | None = None
    host_s: float | None = None
    collective_s: float | None = None
    samples: int | None = None  # Of the first pass over the data


class RanksReport(Record):
    """The runs of a job's ranks, judged together."""

    schema_version: Literal[3] = SCHEMA_VERSION
    kind: Literal["ranks"] = "ranks"
    ranks: int
    rows: tuple[RankRow, ...]
    sentence: str
    findings: tuple[RankFinding, ...] = ()
    collective_s: float | None = None
    """Mean time a step in collectives once the last rank has come."""
    collective_quiet_s: float | None = None
    """The same with nobody late: the lower tenth of the collectives."""
    lost_s: float | None = None
    """Mean time a step that the median rank waits for the last one."""
    seen_once: bool | None = None
    """Whether no sample came to two ranks in one pass, as far as samples were looked at."""
    notes: tuple[str, ...] = ()
