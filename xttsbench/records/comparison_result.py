"""``report.json`` of ``xttsbench compare``: the report record, with the two sides, their arms in pairs, and the gates.

It is a :class:`~xttsbench.records.report.Report` of kind ``compare``, so that whatever reads reports reads it too: its
verdict is that of B, its ``arms`` are A's (role ``baseline``) and B's (role ``candidate``) in turn.
"""

from __future__ import annotations

from typing import Literal

from xttsbench.records.base import MARGIN, Estimate, Record, Word
from xttsbench.records.report import Disturbance, Report

Method = Literal["paired blocks", "separate sessions", "one process", "not measured"]
Outcome = Literal["passed", "failed", "undecided", "not measured"]
Limit = Literal["max-regression", "max-step-time", "min-throughput", "min-utilization", "max-cv", "max-input-wait"]


class ComparedRun(Record):
    """One side: where it came from."""

    given: str  # As the user named it
    path: str  # The run's directory, or the report alone
    kind: str
    command: str
    created_utc: str
    target: str
    processes_known: bool  # Whether its samples were read; a report alone has intervals only
    disturbance: Disturbance | None = None
    """Disturbance by other processes during the measurement; ``None`` where its report has none."""


class Figures(Record):
    """Figures of one configuration; ``None`` where the run did not measure it."""

    arm: str
    accelerator: str = ""
    status: str
    processes: int = 0
    steps: int | None = None
    rate_per_s: Estimate | None = None  # In the unit of the pair; the interval is over the run's own processes
    step_time_s: Estimate | None = None
    throughput_per_s: Estimate | None = None  # Samples
    utilization: Estimate | None = None
    input_wait_fraction: Estimate | None = None
    cv: float | None = None  # Robust coefficient of variation of the step time, 1.4826 MAD / median
    cv_interval: Estimate | None = None  # Of a further process; the run's samples and two processes are needed for it
    padding_efficiency: float | None = None
    first_step_s: float | None = None  # The median over the processes, tracing and compilation included
    memory_bytes: float | None = None  # Largest resident memory of a process of the configuration


class ComparedPair(Record):
    """A configuration of A beside one of B."""

    name: str
    a: Figures
    b: Figures
    method: Method
    unit: Literal["samples", "steps"] = "samples"  # What is counted per second
    effect: Estimate | None = None  # Speed of B over A: 2 is twice as fast
    decision: Word = "undecided"
    evidence: float | None = None  # The e-value that the two differ; ``20 m`` decides for ``m`` pairs
    smallest_visible_effect: float | None = None  # As a share: what would have been decided in four cases of five
    why: str | None = None  # Why nothing was decided, where it was not


class Gate(Record):
    """A limit on B, and what came of it."""

    limit: Limit
    pair: str
    threshold: float  # As a share (0.05), in seconds, or in samples per second
    value: Estimate | None = None  # What was held against it; low and high are the value where it has no interval
    outcome: Outcome
    why: str


class Difference(Record):
    """A way in which the two sides are not alike."""

    field: str
    a: str
    b: str
    comparable: bool  # Whether the times may be compared all the same: other code may, another processor may not


class ComparisonReport(Report):
    """``report.json`` of kind ``compare``."""

    kind: Literal["compare"] = "compare"
    a: ComparedRun
    b: ComparedRun
    pairs: tuple[ComparedPair, ...]
    gates: tuple[Gate, ...] = ()
    differences: tuple[Difference, ...] = ()
    across: bool = False
    """Compared although something differs that makes times incomparable, since ``--across`` asked for it."""
    session_noise: float | None = None
    """Standard deviation of a session's speed as a share, held against two sessions; ``None`` within one run."""
    margin: float = MARGIN  # The smallest difference that matters
