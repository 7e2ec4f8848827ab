"""The report record (``report.json``), as `contracts` fixes it, with additions at the end; and ``best.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import PrivateAttr

from xttsbench.records.base import SCHEMA_VERSION, Estimate, Location, Record, Word
from xttsbench.records.fix import FixResult, Optimized
from xttsbench.records.missing import Reasoned
from xttsbench.records.pipeline import Prediction
from xttsbench.records.proof import Proof
from xttsbench.records.training import Training

if TYPE_CHECKING:
    from xttsbench.records.frames import Frames
    from xttsbench.records.trial import TrialRecord

Bottleneck = Literal["input", "dispatch", "compute", "compile", "host", "transfer", "contention", "inconclusive"]
SPOKEN: Final = {
    "dispatch": "launch overhead",
    "contention": "CPU contention",
    "host": "host work",
    "residual": "unattributed",
    "inconclusive": "undecided",
}
"""Part of a step, or verdict, to what people call it; those not here are called what they are."""
Severity = Literal["info", "warning", "critical"]
Kind = Literal["diagnose", "sweep", "run", "compare", "optimize", "train", "watch", "prove"]


class Fingerprint(Record):
    """Conditions under which a winner was found; it holds where all of them are the same."""

    environment: str
    """Hash of machine and versions together; the fields below say which of them differs."""
    cpu: str | None = None
    cpus: float | None = None
    """Processors that a process may use."""
    gpus: tuple[str, ...] = ()
    """Names of the GPUs."""
    gpu_driver: str | None = None
    tensorflow: str | None = None
    code: str | None = None
    """Hash of the target's code."""
    data: str | None = None
    """Hash of the data set."""


class Best(Record):
    """The content of ``best.yaml``; also what a report says of a sweep's winner."""

    schema_version: int = SCHEMA_VERSION
    run: str
    """Directory of the run."""
    target: str | None = None
    """As it was named on the command line."""
    workload: str | None = None
    """``xtts`` in place of a target."""
    arm: str
    """The id of the configuration that was chosen."""
    config: dict[str, Any]
    """All keyword arguments that were set: the base and what the configuration changes of it."""
    proven: bool
    """Shown to be faster than the baseline, in two processes at least."""
    decided: bool
    """Whether the question is answered; a baseline may be kept for want of evidence."""
    why: str
    """The decision in one sentence."""
    effect: Estimate | None
    """Speed against the baseline; ``None`` where the baseline was kept."""
    baseline: dict[str, Any]
    """The baseline's id and configuration."""
    blocks: int
    """Processes of each side that this rests on."""
    accelerator: dict[str, Any]
    """``kind`` (real or emulated), ``label`` and the source of recorded step times."""
    steps_per_trial: int
    """Steps that each process measured, at most."""
    tied_with: tuple[str, ...] = ()
    """Ids of configurations that are as fast within the margin."""
    smallest_visible_effect: float | None = None
    """As a share: what so many rounds would have decided in four cases of five."""
    fingerprint: Fingerprint
    xttsbench_version: str
    rounds: int = 0
    """Paired rounds of these processes."""
    evidence: float | None = None
    """The e-value of the winner; ``None`` where the baseline was kept."""


class Attribution(Record):
    """Mean seconds of a step by what they go to; together they are the mean step."""

    input: float
    """Waiting for the next batch."""
    dispatch: float
    """Launch overhead: Python and the launching of ops."""
    compute: float
    """The device's own work."""
    compile: float
    """Tracing and XLA compilation after the first step."""
    host: float
    """Work between steps: logging, checkpoints, fetched values."""
    transfer: float
    """Copies between host and device."""
    contention: float
    """Time that input and step lose to each other on the same cores."""
    residual: float
    """Unattributed."""


class Verdict(Record):
    """Bottleneck of the step, and the confidence in it."""

    bottleneck: Bottleneck
    """The largest avoidable loss; ``compute`` where none reaches 10 %, ``inconclusive`` where it is undecided."""
    summary: str
    """The verdict in one sentence."""
    confidence: float
    """Probability of this verdict given what was measured, 0..1."""
    at_threshold: bool = False
    """Whether the largest avoidable loss is so near 10 % that it is worth nothing which of two words it gets."""
    verdict_final_s: float | None = None
    """Seconds from the start of the first trial until nothing that was still measured was to change the verdict."""
    step_time_s: Estimate | None
    """The mean: wall time over steps, warm-up left out."""
    step_time_median_s: Estimate | None
    step_time_p95_s: Estimate | None
    input_wait_fraction: Estimate | None
    """Share of the step that waits for the next batch, 0..1."""
    accelerator_utilization: Estimate | None
    """Share of the time in which the accelerator works, 0..1."""
    attribution_s: Attribution | None
    """Parts of a mean step, in seconds."""


class Finding(Record):
    """Something that a rule saw, with its evidence and remedy."""

    rule: str
    """Id of the rule, for ``xttsbench explain``."""
    severity: Severity
    limiting: bool
    """Whether the finding limits the step now, or is part of what does."""
    title: str
    """One line for a person."""
    location: Location = Location()
    evidence: dict[str, float | int | str | bool | None] = {}
    """The numbers that it rests on, by name."""
    remedy: str = ""
    """Advice to the user."""
    patch: str | None = None
    """A unified diff, where one can be written."""
    predicted_speedup: Estimate | None = None
    """Estimated speed-up of the remedy: 2 is twice as fast."""
    verified_speedup: Estimate | None = None
    """The same, measured."""
    same_data: Literal["proved", "differs", "not_proved"] = "not_proved"
    """Whether the remedy leaves the data as they are; ``differs`` only where a difference was seen."""


class Oscillation(Record):
    """Variation in time as a vector; ``None`` where there were too few steps, with the reason in ``unmeasured``."""

    cv: float | None = None
    """Robust coefficient of variation, 1.4826 MAD / median."""
    p99_over_p50: float | None = None
    """The 99th percentile of the step time over the median."""
    period_steps: float | None = None
    """Steps from one slow step to the next, where they come regularly."""
    period_s: float | None = None
    variance_share: float | None = None
    """Share of the variance in the periodic component."""
    burstiness: float | None = None
    """Burstiness of the gaps between stalls: -1 regular, 0 at random, towards 1 in bursts."""
    p_value: float | None = None
    """P-value of the period, against no period."""
    autocorrelation: float | None = None
    """At lag 1."""
    ljung_box_p: float | None = None
    """P-value of the Ljung-Box test against independent steps."""
    effective_steps: float | None = None
    """Effective sample size of the steps, autocorrelation considered."""
    std_over_mean: float | None = None
    """Standard deviation of the step time over its mean."""


class Variant(Record):
    """One configuration that was measured against the baseline."""

    id: str
    role: Literal["baseline", "aa", "candidate"]
    """``aa`` is the noise check: the baseline against itself."""
    config: dict[str, Any] = {}
    """Arguments that the configuration sets."""
    blocks: int
    """Processes that measured it."""
    status: str
    """``ok``, or how its trials ended."""
    step_time_s: Estimate | None = None
    throughput_per_s: Estimate | None = None
    effect: Estimate | None = None
    """Speed against the baseline, as a ratio: 2 is twice as fast (samples per second, where configurations of a
    scenario are compared)."""
    decision: Word | Literal["ended"] | None = None
    """Result against the baseline by the evidence; ``ended`` where it was given up."""
    group: str = ""
    """The comparison that it belongs to; with ``accelerator`` it names what the configuration may be compared with."""
    accelerator: str = ""
    """Label of the accelerator: ``real device`` or ``emulated accelerator, 10 ms a step``."""
    utilization: Estimate | None = None
    """0..1, of what ``utilization_of`` says."""
    utilization_of: str = ""
    """``emulated accelerator``, ``GPU (driver)`` or ``processor: share of the wall time inside the step``."""
    valid_frames_per_s: Estimate | None = None
    """Frames without padding, over the wall time."""
    padding_efficiency: float | None = None
    """Valid frames over padded frames, 0..1."""
    cv: float | None = None
    """Robust coefficient of variation of the step time, 1.4826 MAD / median, the mean over the processes."""
    std_over_mean: float | None = None
    """Standard deviation of the step time over its mean."""
    input_wait_fraction: Estimate | None = None
    """Share of the step that waits for the next batch, 0..1."""
    steps: int = 0
    """Steady steps over all blocks."""
    processes: int = 0
    """Pairs of processes, one of it and one of the baseline, that the effect rests on."""
    rounds: int = 0
    """Paired rounds of these: turns of both."""
    evidence: float | None = None
    """The e-value that it differs from the baseline; ``20 m`` decides among ``m`` candidates."""
    gain_ruled_out: bool = False
    """Whether a gain that matters is ruled out at 95 %, also where it is undecided whether it is slower."""


class AA(Record):
    """The baseline against itself."""

    effect: Estimate | None = None
    """Speed of one copy against the other, as a ratio."""
    noisy: bool | None = None
    """Rounds of equal configurations differ by more than 5 %. Nothing is withheld for that: the evidence allows for
    it."""
    smallest_visible_effect: float | None = None
    """As a share: what so many rounds would have decided in four cases of five."""


class Disturbance(Record):
    """Load of other processes while the target was measured, in shares of the processors that it may use."""

    steal_share: float | None
    """Share that the hypervisor gave to other machines."""
    foreign_share: float | None
    """Share that other processes of this machine used."""
    throttled_share: float | None
    """Share for which the control group's processor quota stopped the target."""
    rounds: int
    """Rounds (or fresh processes, where there were no turns) that were measured."""
    invalid_rounds: int
    """Rounds in which others took 5 % of the processors more than in the quiet ones, or the canary was 10 % slower."""
    widened: bool = False
    """Whether more than half were invalid, so that all are kept, with a wider noise scale."""
    sentence: str
    """The same in words."""


class Experiment(Record):
    """One isolation experiment: mean seconds per step under one condition."""

    name: str
    """``as_is``, ``input_only``, ``step_only``, or a mode of the step."""
    what: str
    """The condition in words."""
    step_time_s: Estimate | None
    steps: int
    processes: int


class WarmUp(Record):
    """Steps before the steady state, kept apart."""

    first_step_s: float | None = None
    """The first step, tracing and compilation included."""
    steps_cut: int = 0
    """Steps before the steady state."""
    steady_state: bool = False
    """Whether one was found."""
    steps_measured: int = 0
    certified: bool = False
    """Whether a steady state was found, of 240 steps at least."""
    reason: str | None = None
    """Why there is no steady state, or why it is not certified."""
    trace_s: float | None = None
    """Spent in tracing functions."""
    traces: int | None = None
    xla_compile_s: float | None = None
    """Spent in XLA's compiler."""
    xla_compiles: int | None = None


class Report(Reasoned):
    """``report.json``: everything that a person or a program wants to know of a run."""

    schema_version: int = SCHEMA_VERSION
    kind: Kind
    """The command that made it."""
    command: str
    """The command line, to be typed again."""
    created_utc: str
    """ISO 8601."""
    target: dict[str, Any]
    """Measured target: its name, kind, arguments and how it ended."""
    environment: dict[str, Any]
    """Machine, versions, devices, quotas and their fingerprint."""
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    """Limiting ones first, then by what the remedy is worth."""
    oscillation: Oscillation = Oscillation()
    arms: tuple[Variant, ...] = ()
    """Configurations, fixes and modes of the step that were measured beside the baseline."""
    aa: AA = AA()
    """The noise check."""
    disturbance: Disturbance | None = None
    unmeasured: dict[str, str] = {}
    """Path in this record -> why there is no number."""
    # What contracts leave open.
    accelerator: dict[str, Any] = {}
    """``{"kind": "real" | "emulated", "label": text, ...}``."""
    ladder: tuple[Experiment, ...] = ()
    """The isolation experiments."""
    warm_up: WarmUp = WarmUp()
    overhead: dict[str, Any] = {}
    """Measurement overhead: seconds per step, and how that was found."""
    readings: dict[str, Any] = {}
    """Summary of the host and GPU readings during the steps as they are."""
    pipeline: dict[str, Any] | None = None
    """The ops of the input pipeline, with what each costs."""
    predictions: tuple[Prediction, ...] = ()
    """Effect of each fix, as predicted by the model of the pipeline."""
    step: dict[str, Any] | None = None
    """Content of the step: its phases, the lines that made its ops, their devices, and the cost of each shape."""
    profile: dict[str, Any] | None = None
    """Path of the TensorFlow profile, and its analysis: ``gpu`` (activity of GPUs and host in its steps), ``nvml``
    (readings meanwhile), ``xprof`` (its verdict) and ``agreement`` (with ours, or why not).
    """
    trials: tuple[dict[str, Any], ...] = ()
    """Trial, status, cause and seconds of every trial."""
    warnings: tuple[str, ...] = ()
    """Cautions that the reader can act on, or that change what the verdict is worth, a sentence each."""
    notes: tuple[str, ...] = ()
    """Remarks on how the run went that change nothing, a sentence each."""
    parity: dict[str, Any] | None = None
    """Whether the configurations yield the baseline's batches: ``same``, ``tolerance``, ``batches``, ``baseline``,
    ``arms``, ``difference``, and by configuration ``differences``, ``failed`` and ``skipped``."""
    comparison: tuple[str, ...] = ()
    """Result of each group of configurations, one sentence for a group."""
    best: Best | None = None
    """Choice of a sweep, as in ``best.yaml``; ``None`` where it ended before it could choose."""
    training: Training | None = None
    """Losses, evaluations and checkpoints of a training run."""
    fixes: tuple[FixResult, ...] = ()
    """Every fix that was proposed, with what it was expected to give, what it gave, and what it does to the data."""
    proof: Proof | None = None
    """Whether an edit leaves the data as they are, and its speed; ``None`` for other kinds."""
    optimized: Optimized | None = None
    """Proposal of the run in the end, as in ``optimized.yaml``; ``None`` where no fix was to be verified."""
    _read_trials: Callable[[], Sequence[TrialRecord]] | None = PrivateAttr(default=None)

    @property
    def frames(self) -> Frames:
        """Steps, configurations, findings and trials as pandas data frames."""
        from xttsbench.records.frames import Frames  # which knows this record

        return Frames(self, self._read_trials)

    def beside(self, read_trials: Callable[[], Sequence[TrialRecord]]) -> Self:
        """The report with a reader of its journal, from which :attr:`frames` has the steps."""
        made = self.model_copy()
        made._read_trials = read_trials
        return made
