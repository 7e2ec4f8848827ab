"""A watched run: what is accumulated of it while it goes on, ``summary.json``, and the file that says it is running.

However long a run is, its records have a bounded size: stretches of it are merged, steps that stalled are counted by
what they had in common, and step times are a histogram from which quantiles are read.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Final, Literal

import platformdirs

from xttsbench.records.base import SCHEMA_VERSION, Estimate, Record
from xttsbench.records.comparison_result import Outcome
from xttsbench.records.ranks import RankTask
from xttsbench.records.report import Attribution, Bottleneck, Finding

SUMMARY_FILE: Final = "summary.json"

End = Literal["running", "returned", "exited", "raised", "killed", "interrupted"]
"""End of a watched process: ``exited`` by ``os._exit``, or ``sys.exit`` that is no success; ``killed`` by a signal."""


class Stretch(Record):
    """Consecutive steps of a watched run, taken together; seconds unless the name says otherwise."""

    start_s: float
    """Seconds since the first step."""
    end_s: float
    steps: int
    samples: int
    wall_s: float
    wait_s: float
    step_s: float
    emulated_s: float = 0.0
    compile_s: float
    outside_s: float
    cpu_s: float
    gc_s: float
    sync_s: float
    traces: int
    xla_compiles: int
    compiling_steps: int
    slowest_s: float
    rss_bytes: int | None = None
    """Resident memory of the process at the end of the stretch."""


class StallCause(Record):
    """Steps that stalled for what looks like the same reason."""

    what: str
    """Common cause of the stalls, such as ``waiting for input`` or ``saving or writing (train.py:41)``."""
    count: int
    lost_s: float
    """Seconds of those steps beyond the median step, all together."""
    every_steps: float | None = None
    """Steps from one stall to the next, where stalls come regularly."""
    first_step: int
    last_step: int
    slowest_s: float


class Stalls(Record):
    """Steps that took far longer than the others."""

    count: int = 0
    lost_s: float = 0.0
    share_of_time: float = 0.0
    """``lost_s`` over the time of all steps."""
    threshold_s: float | None = None
    """Seconds from which a step counts as a stall now."""
    causes: tuple[StallCause, ...] = ()
    """Causes of the stalls, the costliest first."""


class WatchedRun(Record):
    """Totals of a watched run; ``trials.jsonl`` keeps them beside the newest rows."""

    steps: int  # Measured steps: warm-up is left out
    warm_up_steps: int
    lost_steps: int = 0  # Steps that were too quick for whoever read them: in the number of steps and in nothing else
    epochs: int
    stretches: tuple[Stretch, ...] = ()
    quantiles_s: dict[str, float] = {}  # ``p05`` to ``p99`` of the step time, within 1 %
    stalls: Stalls = Stalls()
    ended: End = "running"
    exit_code: int | None = None
    signal: str | None = None  # The signal that ended it, e.g. ``SIGKILL``
    error: str | None = None  # What the script raised, in one line


class Drift(Record):
    """Whether steps became slower or faster over the whole run, compilation left out."""

    change: float
    """Change of the step time from the first step to the last, as a share of the median: 0.1 is 10 % slower."""
    p_value: float
    side: Literal["input", "host", "step"]
    """Part that changes most: waiting for input, work of the host, or the step itself."""


class Memory(Record):
    """Resident memory of the process over the run."""

    first_bytes: int
    last_bytes: int
    bytes_per_step: float | None
    """Bytes by which memory grows with each step in the later half of the run, where it rises steadily by at least
    32 MiB and 2 %."""


class FailOn(Record):
    """One ``--fail-on``, held against the run."""

    expression: str
    value: Estimate | None
    """Measured value, in seconds or as a share."""
    limit: float | None
    outcome: Outcome
    why: str


class WatchSummary(Record):
    """``summary.json``: figures of a watched run, while it goes on and at its end.

    Its bottleneck is only likely, since no experiment was made.
    """

    schema_version: Literal[3] = SCHEMA_VERSION
    kind: Literal["watch"] = "watch"
    script: str
    """The script and its arguments as a shell would take them, or what stands for them."""
    pid: int
    started_utc: str
    updated_utc: str
    duration_s: float
    over: bool
    """Whether the watched run has ended, so that the summary is final."""
    ended: End
    exit_code: int | None
    """Exit code of the script, where it ended by one."""
    signal: str | None
    error: str | None
    iterations: tuple[str, ...]
    steps: int
    """Number of measured steps, warm-up left out."""
    warm_up_steps: int
    """Number of first steps of each loop that were left out as warm-up."""
    lost_steps: int = 0
    """Number of steps that were too quick to be read."""
    epochs: int
    bottleneck: Bottleneck
    """The likely bottleneck; ``inconclusive`` where none can be named."""
    probability: float | None
    """Probability of the likeliest bottleneck, 0..1; ``None`` without steps."""
    sentence: str
    attribution_s: Attribution | None
    """Parts of a mean step in seconds, as far as they can be known without an experiment."""
    step_time_s: Estimate | None
    """Mean step time over the whole run, warm-up left out."""
    quantiles_s: dict[str, float]
    """``p05``, ``median``, ``p95`` and ``p99`` of the step time over the whole run."""
    input_wait_fraction: Estimate | None
    """Share of the step that waits for the next batch, 0..1, handing over included."""
    stalls: Stalls
    drift: Drift | None
    """Change of the step time, where it rises or falls all along."""
    memory: Memory | None
    traces: int
    """Number of traces of tf.functions after the warm-up."""
    xla_compiles: int
    """Number of XLA compilations after the warm-up, as far as they were seen."""
    garbage_collection_share: float | None
    """Share of the time of all steps that Python's garbage collection took."""
    period_steps: float | None
    """Period of the newest steps, in steps; ``None`` where none was found."""
    findings: tuple[Finding, ...] = ()
    """Findings of the rules, as far as they need no experiment; empty while the process runs."""
    next_command: str
    """Command that would prove the bottleneck; empty where the script is not known."""
    fail_on: tuple[FailOn, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    """Sums over consecutive parts of the run."""
    rank: RankTask | None = None
    """Place of the process in a job of several that train together; ``None`` where it trains alone."""
    notes: tuple[str, ...] = ()
    """Failures of xttsbench itself, after which the script went on, a sentence each."""
    unmeasured: dict[str, str] = {}
    """Field of the summary itself -> why it is null."""


LIVE_FILE: Final = "live.json"
"""Name of a :class:`LiveRun` in its run directory."""
_RUNTIME_VARIABLE: Final = "XTTSBENCH_RUNTIME"


class RecentSteps(Record):
    """The newest steps of a watched run: a few seconds of them, warm-up included."""

    steps: int  # How many they are, 1 or more
    step_time_s: float  # Their mean, from the end of a step to the end of the next one
    input_wait_fraction: float  # Share of that time that was spent waiting for input, 0..1


class LiveRun(Record):
    """A watched run as it was when this was written."""

    schema_version: Literal[3] = SCHEMA_VERSION
    pid: int  # Of the watched process
    script: str  # The script and its arguments as a shell would take them, or what stands for them (``fit``, a loop)
    started_utc: str  # ISO 8601, as all times of records
    updated_utc: str  # When this was written; a run whose process is gone and that is not over was killed
    over: bool  # The run has ended, and nothing here changes any more
    steps: int  # Steps so far, over all loops that train
    recent: RecentSteps | None = None  # ``None`` where no step has ended yet, or none in the last few seconds


class RunningRun(Record):
    """Registration of a running watched process: ``<pid>.json`` in :func:`running_directory`."""

    run: str  # Absolute path of its run directory


def running_directory() -> Path:
    """Return the directory of the files of running watched processes; its mode is 0700, it may not exist yet."""
    with warnings.catch_warnings():  # where the system names no directory, the one that stands in for it will do
        warnings.simplefilter("ignore")
        base = os.environ.get(_RUNTIME_VARIABLE) or platformdirs.user_runtime_path("xttsbench")
    return Path(base).absolute() / "watched"
