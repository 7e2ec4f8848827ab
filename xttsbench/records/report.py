"""The report record (``report.json``), as `contracts` fixes it, with additions at the end; and ``best.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import PrivateAttr

from xttsbench.records.base import SCHEMA_VERSION, Estimate, Location, Record, Word
from xttsbench.records.fix import FixResult, Optimized
from xttsbench.records.missing import Reasoned
from xttsbench.records.pipeline import Leaving, Prediction
from xttsbench.records.proof import Proof
from xttsbench.records.scale import Scale
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
Kind = Literal["diagnose", "sweep", "run", "compare", "optimize", "train", "watch", "prove", "plan"]


class Fingerprint(Record):
    """Conditions under which a winner was found; it holds where all of them are the same."""

    environment: str
    """Hash of the machine and the versions."""
    cpu: str | None = None
    cpus: float | None = None
    gpus: tuple[str, ...] = ()
    gpu_driver: str | None = None
    tensorflow: str | None = None
    code: str | None = None
    data: str | None = None


class Best(Record):
    """The content of ``best.yaml``: the choice of a sweep."""

    schema_version: int = SCHEMA_VERSION
    run: str
    target: str | None = None
    workload: str | None = None
    arm: str
    config: dict[str, Any]
    """All keyword arguments that were set: the base and what the configuration changes of it."""
    proven: bool
    """Whether the winner was shown to be faster than the baseline."""
    decided: bool
    """False where the baseline was kept for want of evidence."""
    why: str
    effect: Estimate | None
    """Speed against the baseline, as a ratio."""
    baseline: dict[str, Any]
    blocks: int
    """Processes of each side that measured the winner; where the baseline was kept, the most of any candidate."""
    accelerator: dict[str, Any]
    steps_per_trial: int
    """The scenario's ``steps``: a process by itself measures more where they are fast; turns have as many as fit."""
    tied_with: tuple[str, ...] = ()
    """Ids of configurations that are as fast, as far as can be told."""
    smallest_visible_effect: float | None = None
    """The smallest effect, as a share, that so many rounds would decide in four cases of five."""
    fingerprint: Fingerprint
    xttsbench_version: str
    rounds: int = 0
    evidence: float | None = None
    """The e-value of the winner."""


class Attribution(Record):
    """Mean seconds of a step by what they go to; together they are the mean step."""

    input: float
    """Waiting for the next batch."""
    dispatch: float
    """Launch overhead: launching ops from Python, and handing over batches."""
    compute: float
    """The rest of ``next()`` and the step: as a rule the device's own work."""
    compile: float
    """Tracing and XLA compilation, the warm-up left out."""
    host: float
    """Work of the host's own Python: logging, checkpoints, fetched values."""
    transfer: float
    """Copying a batch to the GPU."""
    contention: float
    """Time that input and step lose to each other on the same cores or under the interpreter lock."""
    residual: float
    """Unattributed."""


class Verdict(Record):
    """Bottleneck of the step, and the confidence in it."""

    bottleneck: Bottleneck
    """The largest avoidable loss; ``compute`` where none reaches 10 % of the step, ``inconclusive`` where undecided."""
    summary: str
    confidence: float
    """Probability of the bottleneck, 0..1; where ``inconclusive``, of the likeliest one, if any."""
    at_threshold: bool = False
    """Whether the largest avoidable loss is so near 10 % that the verdict may be either of two."""
    verdict_final_s: float | None = None
    """Seconds from the start of the first trial until the verdict was final."""
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
    """Id of the rule, as ``xttsbench explain`` takes it."""
    severity: Severity
    limiting: bool
    """Whether the finding is a bottleneck: it limits the step now, or is part of what does."""
    title: str
    location: Location = Location()
    evidence: dict[str, float | int | str | bool | None] = {}
    """The numbers that the finding rests on, by name."""
    remedy: str = ""
    patch: str | None = None
    """A unified diff of the user's source, where there is one."""
    predicted_speedup: Estimate | None = None
    """Estimated speed-up of the step by the remedy, or without the loss that the finding is about: 2 is twice as
    fast."""
    verified_speedup: Estimate | None = None
    """Speed-up of the step by a fix that mends the finding, measured."""
    same_data: Literal["proved", "differs", "not_proved"] = "not_proved"
    """Whether the remedy leaves the data as they are; ``differs`` only where a difference was seen."""


class Oscillation(Record):
    """Variation of the step time, as several numbers."""

    cv: float | None = None
    """Robust coefficient of variation, 1.4826 MAD / median."""
    p99_over_p50: float | None = None
    period_steps: float | None = None
    period_s: float | None = None
    variance_share: float | None = None
    """Share of the variance of the step time that the period has."""
    burstiness: float | None = None
    """Burstiness of the gaps between outlying steps: -1 regular, 0 at random, towards 1 in bursts."""
    p_value: float | None = None
    """P-value of the period, against no period."""
    autocorrelation: float | None = None
    """Autocorrelation of the step times at lag 1."""
    ljung_box_p: float | None = None
    """P-value of the Ljung-Box test against independent steps."""
    effective_steps: float | None = None
    """Number of independent steps that would tell as much as these."""
    std_over_mean: float | None = None


class Variant(Record):
    """One configuration or mode of the step that was measured; baselines are among them."""

    id: str
    role: Literal["baseline", "aa", "candidate"]
    """``aa`` is the noise check: the baseline against itself."""
    config: dict[str, Any] = {}
    """Arguments that the configuration sets, or the mode of the step."""
    blocks: int
    """Processes that measured it."""
    status: str
    """``ok``, or how its trials ended, or why it was not measured."""
    step_time_s: Estimate | None = None
    throughput_per_s: Estimate | None = None
    effect: Estimate | None = None
    """Speed against the baseline, as a ratio: 2 is twice as fast (samples per second, where configurations of a
    scenario are compared)."""
    decision: Word | Literal["ended"] | None = None
    """Result against the baseline by the evidence; ``ended`` where it failed or was refused."""
    group: str = ""
    """The comparison that it belongs to."""
    accelerator: str = ""
    """Label of the accelerator, such as ``real device`` or ``emulated accelerator, 10 ms a step``."""
    utilization: Estimate | None = None
    utilization_of: str = ""
    """The device whose ``utilization`` it is."""
    valid_frames_per_s: Estimate | None = None
    """Frames without padding, a second of wall time."""
    padding_efficiency: float | None = None
    """Valid frames over padded frames, 0..1."""
    cv: float | None = None
    """Robust coefficient of variation of the step time, 1.4826 MAD / median, the mean over the processes."""
    std_over_mean: float | None = None
    input_wait_fraction: Estimate | None = None
    steps: int = 0
    """Steady steps over all its processes; 0 for ``as-given``."""
    processes: int = 0
    """Processes of both sides that the effect rests on; 0 for a baseline and for a mode of the step."""
    rounds: int = 0
    evidence: float | None = None
    """The e-value that it differs from the baseline."""
    gain_ruled_out: bool = False
    """Whether a gain that matters is ruled out at 95 %."""


class AA(Record):
    """The baseline against itself."""

    effect: Estimate | None = None
    """Speed of one copy against the other, as a ratio."""
    noisy: bool | None = None
    """Whether equal configurations differ by more than 5 % in this session."""
    smallest_visible_effect: float | None = None
    """The smallest effect, as a share, that so many rounds would decide in four cases of five."""


class Disturbance(Record):
    """Load of other processes while the target was measured, in shares of the processors that it may use."""

    steal_share: float | None
    """Share that the hypervisor gave to other machines."""
    foreign_share: float | None
    """Share that other processes of this machine used."""
    throttled_share: float | None
    """Share for which the control group's processor quota stopped the target."""
    rounds: int
    invalid_rounds: int
    """Rounds that others, or a slower processor, disturbed."""
    widened: bool = False
    """Whether so many rounds were disturbed that all are kept, with wider intervals."""
    sentence: str


class Experiment(Record):
    """One isolation experiment: mean seconds per step under one condition."""

    name: str
    what: str
    step_time_s: Estimate | None
    steps: int
    processes: int


class WarmUp(Record):
    """Steps before the steady state, kept apart."""

    first_step_s: float | None = None
    """Seconds of the first step; of a training run, of its whole warm-up."""
    steps_cut: int = 0
    """Measured steps that were left out as warm-up."""
    steady_state: bool = False
    steps_measured: int = 0
    certified: bool = False
    """Whether a steady state was found, of 240 steps at least."""
    reason: str | None = None
    """Why there is no steady state, or why it is not certified."""
    trace_s: float | None = None
    """Seconds of tracing functions in the warm-up."""
    traces: int | None = None
    xla_compile_s: float | None = None
    """Seconds in XLA's compiler in the warm-up."""
    xla_compiles: int | None = None


class Report(Reasoned):
    """``report.json``: the results of a run."""

    schema_version: int = SCHEMA_VERSION
    kind: Kind
    """The command that made it."""
    command: str
    """The command line, or the call from Python."""
    created_utc: str
    target: dict[str, Any]
    """Measured target: its name, kind, arguments and how it ended."""
    environment: dict[str, Any]
    """Machine, versions, devices, quotas and their fingerprint."""
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    """Findings of the rules, the most important first."""
    oscillation: Oscillation = Oscillation()
    arms: tuple[Variant, ...] = ()
    """The target as it is, configurations, and modes of the step, baselines among them."""
    aa: AA = AA()
    """The noise check: the baseline against itself."""
    disturbance: Disturbance | None = None
    unmeasured: dict[str, str] = {}
    """Path -> reason, of what has no place for one."""
    # What contracts leave open.
    accelerator: dict[str, Any] = {}
    """``{"kind": "real" | "emulated", "label": text, ...}``."""
    ladder: tuple[Experiment, ...] = ()
    """The isolation experiments."""
    warm_up: WarmUp = WarmUp()
    overhead: dict[str, Any] = {}
    readings: dict[str, Any] = {}
    """Summary of the readings of host and GPUs while the target ran as it is."""
    pipeline: dict[str, Any] | None = None
    """The ops of the input pipeline, with their costs as far as they are known."""
    leaving: Leaving | None = None
    """Part of the pipeline that other machines could run, and what keeps the rest; ``None`` where none was read."""
    predictions: tuple[Prediction, ...] = ()
    """Throughput as it is and with fixes, as predicted by the model of the pipeline."""
    step: dict[str, Any] | None = None
    """Content of the step: its phases and the lines that made its ops, among others."""
    profile: dict[str, Any] | None = None
    """The TensorFlow profile's path and analysis, XProf's verdict among it where it has one."""
    trials: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    """Cautions for the reader, a sentence each."""
    notes: tuple[str, ...] = ()
    """Remarks on how the run went, a sentence each."""
    parity: dict[str, Any] | None = None
    """Whether configurations yield the baseline's batches (``same``), and where they differ (``differences``)."""
    comparison: tuple[str, ...] = ()
    best: Best | None = None
    """Choice of a sweep, as in ``best.yaml``."""
    training: Training | None = None
    """Losses, evaluations and checkpoints of a training run."""
    fixes: tuple[FixResult, ...] = ()
    """Fixes that were proposed, with what each was estimated and measured to give, and what it does to the data."""
    proof: Proof | None = None
    """Result of ``prove``: whether an edit leaves the data as they are, and its speed."""
    scale: Scale | None = None
    """Result of ``plan``: what more cores, input workers, replicas, networks and accelerators would give."""
    optimized: Optimized | None = None
    """Fixes that ``optimize`` proposes, as in ``optimized.yaml``."""
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
