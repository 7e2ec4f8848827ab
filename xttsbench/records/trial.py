"""One trial: what the child is told to do, and the journal line with every sample that came back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from xttsbench.records.base import SCHEMA_VERSION, Location, Record
from xttsbench.records.code import Checkout, ScriptAgain, ScriptRun, SourceFact, StepOps
from xttsbench.records.machine import MeasuredOn
from xttsbench.records.pipeline import Contents, Elements, Pipeline, Place, Shown
from xttsbench.records.readings import GpuActivity, Readings, XProfVerdict
from xttsbench.records.scale import Served, ServiceCost, Workers, WorkersRate
from xttsbench.records.watch import WatchedRun

TrialKind = Literal[
    "ladder",
    "pipeline",
    "eager",
    "graph",
    "xla",
    "precision",
    "batch",
    "arm",
    "parity",
    "elements",
    "script",
    "service",
    "workers",
]
"""The trials of the isolation experiments, and those of a comparison of configurations.

``ladder`` runs the target as it is, its input alone and its step alone on those batches in rounds, in one process so
that they are paired; ``script`` does so with a script that runs unchanged; ``pipeline`` reads the graph and the costs
of its ops; ``eager``, ``graph`` and ``xla`` run the step alone in that mode beside the step as given, ``precision`` in
mixed precision, ``batch`` on halves of the batches; ``arm`` runs a configuration, which may be the target with a fix,
as it is and nothing else; ``parity`` compares the batches, and the first losses, of several configurations.
``elements`` takes the fingerprints of what the dataset yields, with a fix or without; nothing is timed. ``service``
measures what a batch costs on its way through a tf.data service, ``workers`` the input on one and more workers of it.
"""

MAIN_KINDS: Final = ("ladder", "script")
"""Kinds that run the target as it is, from which the verdict comes."""

TrialStatus = Literal[
    "ok", "raised", "empty", "exited", "killed", "out_of_memory", "time_limit", "stalled", "interrupted", "skipped"
]


class TrialSpec(Record):
    """Specification of a trial: everything that the child needs, since it knows nothing else."""

    trial_id: str
    block: int = 0
    kind: TrialKind
    also: TrialKind | None = None  # For the kind ``xla``: another mode of the step, measured in the same rounds
    target: str
    kwargs: dict[str, Any] = {}
    arguments: tuple[str, ...] = ()  # Of a script
    script: ScriptAgain | None = None  # Of a script that runs again, with a fix or to be compared with one
    emulated_ms: tuple[float, ...] = ()
    """Waits of the emulated accelerator in milliseconds, replayed in a circle; empty for the real device."""
    steps: int = Field(240, ge=1)  # Steps to measure at most in each segment
    stretch_s: float = Field(0.0, ge=0.0)
    """For the kind ``ladder``: seconds for which the target goes on as it is after its rounds, in one stretch: it shows
    periods, stalls that are rare, and whether the steps are steady."""
    window_s: float = Field(6.0, gt=0)  # Seconds at most for the main segment; the others take a share of it
    min_steps: int = Field(3, ge=1)  # Steps to measure even where the window is over
    rounds: int = Field(4, ge=1)  # For the kind ``ladder``: rounds in which the conditions take turns
    skip: int = Field(0, ge=0)
    """For the kind ``ladder``: batches from the beginning that are passed over, since another process measured them."""
    fix: str | None = None
    """For the kinds ``arm`` and ``elements``: the rewrite, e.g. ``parallel-map``; several are joined by `` + ``."""
    patched: dict[str, str] = {}
    """File of the user's -> file with what is to be read in its place: a patch, run without touching the original."""
    epochs: int = Field(1, ge=1)  # For the kind ``elements``: passes over the dataset
    source_limit: int | None = Field(None, ge=1)
    """For the kinds ``elements`` and ``arm``: elements that each source is cut to; ``None`` for all of them."""
    assume_pure: tuple[
        str, ...
    ] = ()  # Functions (``module.function``) that the user says are pure: hazards pass them over
    jitter: bool = False  # For the kind ``elements``: hold calls of Python functions up at random
    checkout: Checkout | None = None  # Where the code is that of another revision
    whole: bool = False
    """An edit is to be proved, whose sources may be others. For the kind ``elements``: none of them is cut, rows are
    told apart by the first dimension of the components, and all elements are digested that the window leaves time for.
    For the kind ``script``: nothing is measured once the script has run."""
    had: tuple[str, ...] | None = None
    """For the kind ``elements`` of a new version: traits of the old one; the hazards of further ones are read."""
    shown: Place | None = None  # For the kind ``elements``: only the values at this place are read
    shown_file: str | None = None  # File of those values: the first trial writes it, the second compares
    turns: bool = False
    """For the kind ``arm``: measure in turns, each when the parent says so, and stand still in between."""
    hashed: bool = False  # For the kind ``arm``: digests of the batches are taken, after each turn
    fill_caches: bool = False  # For the kind ``arm``: fill caches before anything is measured, as the main trial does
    fill_s: float | None = Field(None, gt=0)
    """Seconds at most that filling may take, where a first pass is expected to take longer than the window leaves."""
    private: str | None = None
    """Directory of the run, where a script's writes elsewhere are kept in memory; ``None``: they go to the disk."""
    no_step_s: float | None = Field(None, gt=0)
    """For the kind ``script``: seconds without a step, in which nothing is imported, read or compiled, after which it
    is stopped."""
    profile_dir: str | None = None  # Directory for a TensorFlow profile of a window of steady steps
    seed: int = 0
    arm: str | None = None
    """For the kind ``arm``: id of the configuration; for ``parity``: id of the baseline, whose arguments ``kwargs``
    are."""
    group: str | None = None  # The comparison that the trial belongs to
    others: dict[str, dict[str, Any]] = {}
    """For the kind ``parity``: id of a configuration -> keyword arguments, each compared with ``kwargs``."""
    same_data: tuple[str, ...] = ()
    """Configurations, among the others, whose data are the baseline's by construction: only their losses are compared.
    """
    loss_steps: int = Field(0, ge=0)
    """Steps on one batch whose losses are compared, where both sides have a step; 0 compares none."""
    loss_tolerance: float = Field(1e-3, gt=0)  # Largest relative difference of two losses that count as the same
    service: Served | None = None  # For the kind ``service``: the one whose costs are measured
    workers: Workers | None = None  # For the kind ``workers``


class Turn(Record):
    """Order to a live process to measure: a number of batches, after some that it draws and does not count."""

    round: int = Field(ge=-1)  # Number of the round; -1 before the first one, for the pace and for pipelines to settle
    batches: int = Field(ge=1)
    discarded: int = Field(1, ge=0)
    least_s: float = Field(0.0, ge=0.0)
    """Seconds that the counted batches take at least, by more of them, and a third of it that is drawn before: what a
    pipeline made ahead while it stood still, or makes in bursts, would be all that few batches show."""


class Segment(Record):
    """Consecutive steps under one condition, as columns of equal length (:class:`~xttsbench.records.rows.StepRow`).

    The first ``warmup_steps`` rows are the segment's own warm-up (first step, tracing, filling of buffers), known as
    such before the measurement; the steady state is cut from the rest by the analysis.
    """

    name: str  # ``as_is``, ``step_only``, ``input_only``, ``anatomy``, or the mode's name
    columns: dict[str, tuple[int, ...]] = {}
    warmup_steps: int = 0

    @model_validator(mode="after")
    def _equal_lengths(self) -> Segment:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"segment {self.name!r}: columns of unequal length: {lengths}")
        return self

    @property
    def steps(self) -> int:
        """Rows of the segment, warm-up included."""
        return len(next(iter(self.columns.values()), ()))


class RoundMark(Record):
    """One turn of a live process: its part of a round, with what a fixed piece of work took at both its ends.

    Times are ``time.perf_counter_ns``, as those of the rows and of the readings.
    """

    round: int = Field(ge=0)
    start_ns: int
    end_ns: int
    canary_before_ns: int | None = None
    """Time of :func:`xttsbench.probes.clock.canary_ns` just before the turn, or before its step alone; ``None`` where
    it was not run."""
    canary_after_ns: int | None = None
    input_idle: bool | None = None
    """Whether the input, its children included, was seen to stand still before the step alone; ``None`` without one."""


class Look(Record):
    """Verdict at the end of a round, from all that had been measured until then."""

    after_s: float = Field(ge=0)  # Since the trial's start
    bottleneck: str
    probability: float
    final: bool
    """True where what was still to be measured was not expected to change it."""


class Trace(Record):
    """One trace of a tf.function after the first step, with why it happened."""

    step: int
    function: str
    reason: Literal["first", "new function object", "shape", "python value", "other"]
    signature: str
    time_s: float


class StackLine(Record):
    """Share of the step's time in which the main thread was at (or below) one line of the user's code."""

    file: str
    line: int
    function: str
    kind: Literal["function", "tensorflow", "python", "io", "sync", "python_function"]
    """``function``: inside a tf.function called from the line; ``tensorflow``: eager ops and the library's Python;
    ``python``: the line itself or a library that is neither; ``io``: TensorFlow saving or writing summaries; ``sync``:
    fetching a device value; ``python_function``: a Python function inside the compiled step."""
    share: float
    steps_share: float  # Share of the steps in which it was seen at all: 1 is every step, 0.1 is every tenth


class StepProfile(Record):
    """Profile of the step, from a segment on cached batches with counters and a stack sampler that no timing uses."""

    steps: int
    samples: int
    eager_ops_per_step: float
    eager_op_time_s: float  # Mean time per step inside eager ops (launch and kernel)
    op_floor_s: float  # Launching one tiny eager op from Python on this machine
    step_s: float | None = None  # Mean time of a step while it was looked at, which makes it slower
    function_calls_per_step: float
    ops: dict[str, float] = {}  # Eager ops per step by type, the most frequent ones
    kinds: dict[str, float] = {}  # Share of the step's time by kind of :class:`StackLine`
    lines: tuple[StackLine, ...] = ()
    python_functions_in_step: tuple[str, ...] = ()  # ``name (file:line)`` of Python functions inside the compiled step


class Batches(Record):
    """Shapes and sizes of the cached batches."""

    cached: int
    bytes: int
    shapes: tuple[str, ...]  # Distinct shape signatures seen in the whole trial, in order of appearance
    padding_share: float | None = None
    """Share of the padded tensors that is trailing padding; ``None`` where nothing is padded."""
    padding_component: str | None = None
    nonfinite: tuple[str, ...] = ()  # Components that hold NaN or infinity


class MeasurementOverhead(Record):
    """Measurement overhead per step: with all that is recorded and without, in turn within the process."""

    overhead_s: float
    pairs: int
    method: str


class Devices(Record):
    """Devices and versions that TensorFlow has in the child."""

    gpus: tuple[str, ...] = ()
    cpus: int = 1
    built_with_cuda: bool = False
    inter_op_threads: int = 0
    intra_op_threads: int = 0
    versions: dict[str, str] = {}


class ProfileSummary(Record):
    """Profiler window, as its XPlane and XProf describe it."""

    directory: str
    steps: int
    gpu: GpuActivity | None = None
    xprof: XProfVerdict | None = None
    unmeasured: dict[str, str] = {}


class Parity(Record):
    """Whether other configurations yield the baseline's batches and losses.

    Each configuration that was reached is in one of ``same``, ``differences`` and ``failed``. These are told apart
    since only a difference refuses a configuration.
    """

    batches: int  # Batches of the baseline that were compared
    tolerance: float
    reproducible: bool = True
    """Whether the baseline yields the same batches twice; where it does not, no configuration can be compared."""
    why_not: str | None = None  # How the baseline's two passes differ, where they do
    same: tuple[str, ...] = ()
    differences: dict[str, str] = {}
    """Variant -> where it differs first: batch, clip, frame, values; or step and losses."""
    failed: dict[str, str] = {}  # Variant -> why its batches could not be had
    losses: dict[str, float] = {}
    """Variant -> largest relative difference of its losses from the baseline's, of those that were compared."""
    losses_unknown: dict[str, str] = {}
    """Variant -> why its losses tell nothing, so that it is judged by its data alone."""
    other_losses: tuple[str, ...] = ()
    """Configurations that differ from the baseline in their losses and not in their data."""


class TrialError(Record):
    """Error in the child, in one sentence and with its place in the user's code."""

    type: str
    message: str
    file: str | None = None
    line: int | None = None
    step: int | None = None
    traceback: str = ""
    batch_size: int | None = None  # First dimension of the batch at which the step raised


class TrialRecord(Record):
    """One line of ``trials.jsonl``."""

    schema_version: int = Field(SCHEMA_VERSION, strict=True)
    spec: TrialSpec
    machine: MeasuredOn | None = None  # ``None`` where it ran on the machine of ``environment.json``
    status: TrialStatus
    cause: str | None = None
    error: TrialError | None = None
    target_kind: str | None = None  # ``dataset``, ``dataset+step``, ``dataset+model``, ``workload`` or ``script``
    started_utc: str
    duration_s: float
    setup_s: float | None = None  # Seconds that the target took to build
    segments: tuple[Segment, ...] = ()
    rounds: tuple[RoundMark, ...] = ()
    """Turns of a trial that took turns with others or measured in several stretches; empty for one stretch."""
    looks: tuple[Look, ...] = ()  # At the ends of its rounds, as far as there were any
    traces: tuple[Trace, ...] = ()
    anatomy: StepProfile | None = None
    batches: Batches | None = None
    step_ops: StepOps | None = None
    pipeline: Pipeline | None = None
    source: tuple[SourceFact, ...] = ()
    step_place: Location | None = None  # Where the user's step is defined; ``None`` where it is a Keras model's
    script: ScriptRun | None = None
    overhead: MeasurementOverhead | None = None
    devices: Devices | None = None
    profile: ProfileSummary | None = None
    cache_filled: bool | None = None
    """Whether the dataset's cache in memory was full before the steps; ``None`` where it has none."""
    handoff_s: float | None = None  # Cost of ``next()`` on batches that are ready: the floor under every wait
    handoff_after_pause_s: float | None = None
    """The same after a pause as long as an emulated accelerator's: whoever slept wakes to cold caches."""
    transfer_s: float | None = None  # Mean time to copy a batch to the device, where there is one
    readings: Readings = Readings()
    notes: tuple[str, ...] = ()
    parity: Parity | None = None
    elements: Elements | None = None
    shown: Shown | None = None
    contents: Contents | None = None  # What the batches of a configuration held; ``None`` where nothing looked
    files: tuple[str, ...] = ()  # The user's own Python files that its process had loaded
    changed_file: str | None = None
    """File of the user's whose saving ``interrupted`` the trial; else ``None``."""
    watched: WatchedRun | None = None
    """Totals of a run that was watched to its end, of which the rows are the newest part."""
    service: tuple[ServiceCost, ...] = ()  # Of each stretch, in the order in which they were measured
    workers: tuple[WorkersRate, ...] = ()  # Of each stretch; each round has one of each number of workers

    @property
    def stretch_s(self) -> float:
        """Seconds for which the target went on as it is after the last look at its rounds."""
        if not self.looks or len(self.rounds) <= len(self.looks):
            return 0.0
        return (self.rounds[-1].end_ns - self.rounds[-1].start_ns) / 1e9

    def segment(self, name: str) -> Segment | None:
        """The segment of that name, or ``None``."""
        return next((segment for segment in self.segments if segment.name == name), None)


def interrupted(trials: Iterable[TrialRecord]) -> bool:
    """Whether the user ended the run during one of these trials."""
    return any(trial.status == "interrupted" for trial in trials)


def changed_file(trials: Iterable[TrialRecord]) -> str | None:
    """The file of the user's that was saved while the run went on, and ended it; ``None`` where none was."""
    return next((trial.changed_file for trial in trials if trial.changed_file is not None), None)


PRECISIONS: Final = ("mixed_bfloat16", "mixed_float16", "tf32", "no-tf32")
"""``tf32`` is TensorFloat-32 switched on where it was off, ``no-tf32`` off where it was on, as it is by default."""
HALF_BATCH: Final = "half-batch"
NOT_APPLICABLE: Final = "not applicable"

KIND_OF: Final[dict[str, TrialKind]] = {
    "eager": "eager",
    "graph": "graph",
    "xla": "xla",
    **dict.fromkeys(PRECISIONS, "precision"),
    HALF_BATCH: "batch",
}
"""Name of a condition -> the kind of trial that measures it."""


def not_applicable(name: str, reason: str) -> str:
    """The note of a trial that a condition cannot be measured on this step."""
    return f"{name}: {NOT_APPLICABLE}: {reason}"


def reason_of(name: str, notes: tuple[str, ...]) -> str | None:
    """Why the condition could not be measured, from a trial's notes; ``None`` where none says so."""
    begins = not_applicable(name, "")
    return next((note.removeprefix(begins) for note in notes if note.startswith(begins)), None)
