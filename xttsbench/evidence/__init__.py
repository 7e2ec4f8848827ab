"""Everything that the rules look at, taken once from the trials of a run; the facts of its step besides its times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import THRESHOLD, StepFacts
from xttsbench.analysis.disturbance import Gate, shares
from xttsbench.analysis.readings import spans_of
from xttsbench.analysis.steps import SteadyState, Steps
from xttsbench.analysis.variation import Explanation, explain
from xttsbench.records.base import Estimate
from xttsbench.records.code import ScriptRun, SourceFact, StepOps
from xttsbench.records.pipeline import Pipeline, Prediction
from xttsbench.records.readings import GpuActivity
from xttsbench.records.report import Oscillation
from xttsbench.records.trial import Batches, Devices, StepProfile, Trace, TrialRecord

_EAGER_OPS: Final = 10  # A step with this many eager ops and calls of tf.functions is dispatched from Python
_OPAQUE_SHARE: Final = 0.20  # Without tf.functions and with less of its time in TensorFlow a step works elsewhere
ALWAYS: Final = 0.90
"""A step that traces or compiles in this share of its calls has no time of its own to compare them with."""
_FEW_SAMPLES: Final = 20
_QUIET: Final = 0.05  # Of the capacity: what others take of a quiet machine
_MOST_LOST: Final = 0.9
_AS_GIVEN: Final = ("warm_up", "as_is", "step_only")  # Segments of the step; a script has those of other modes, too


def step_facts(
    ladder: Sequence[TrialRecord],
    series: Sequence[Steps],
    anatomy: StepProfile | None,
    pipeline: Pipeline | None,
    environment: Mapping[str, Any],
    *,
    has_step: bool,
    judged: Gate,
) -> StepFacts:
    """The facts of the step, from its anatomy and the readings of the trials that gave the steady steps of ``series``.

    ``judged`` says which rounds count; what is ``None`` was not read.
    """
    taken_share, foreign_share = _taken(ladder, judged)
    compiling = float(np.mean([steps.compiling.mean() for steps in series])) if series else 0.0
    known = profile_facts(anatomy, has_step=has_step, compiling=compiling)
    return replace(
        known,
        host_share=max(_stalled(series) - taken_share, 0.0) if known.opaque else known.host_share,
        handoff_s=mean_of_known(trial.handoff_s for trial in ladder),
        handoff_after_pause_s=mean_of_known(trial.handoff_after_pause_s for trial in ladder),
        transfer_s=mean_of_known(trial.transfer_s for trial in ladder),
        cores_busy=_cores_busy(ladder, series, environment),
        allowed_cpus=known_cpus(environment),
        lost_share=_lost_share(ladder),
        taken_share=taken_share,
        foreign_share=foreign_share,
        holds_gil=any(function.gil == "holds" for function in (pipeline.python_functions if pipeline else ())),
    )


def profile_facts(anatomy: StepProfile | None, *, has_step: bool, compiling: float) -> StepFacts:
    """Facts of the step from the profile of the step alone.

    The share ``compiling`` is of the steps that trace or compile. What a loop does beside an emulated accelerator that
    stands for its step is the host's.
    """
    if not has_step:
        return StepFacts(has_step=False, host_share=float(anatomy is not None))
    return StepFacts(
        has_step=has_step,
        eager=is_eager(anatomy),
        opaque=is_opaque(anatomy),
        recompiles=compiling >= ALWAYS,
        host_share=_host_share(anatomy),
        dispatch_floor_s=_dispatch_floor_s(anatomy),
    )


def mean_of_known(measured: Iterable[float | None]) -> float:
    """The mean of what was measured; 0 where nothing was."""
    values = [value for value in measured if value is not None]
    return sum(values) / len(values) if values else 0.0


def _dispatch_floor_s(anatomy: StepProfile | None) -> float:
    """Least seconds that launching the step's ops from Python takes, where compiling it was not measured.

    Each op costs what a tiny one does, of which there is nothing to compute; and between its ops TensorFlow's own
    Python (layers, optimizers, the tape) takes the time that no op takes.
    """
    if anatomy is None:
        return 0.0
    launching_s = anatomy.eager_ops_per_step * anatomy.op_floor_s
    if anatomy.step_s is None:
        return launching_s
    inside_s = anatomy.kinds.get("tensorflow", 0.0) * anatomy.step_s
    return launching_s + max(inside_s - anatomy.eager_op_time_s, 0.0)


def is_eager(anatomy: StepProfile | None) -> bool:
    """Whether the step is dispatched op by op (or by many small tf.functions) from Python."""
    return anatomy is not None and anatomy.eager_ops_per_step + anatomy.function_calls_per_step >= _EAGER_OPS


def is_opaque(anatomy: StepProfile | None) -> bool:
    """Whether the step does its work outside TensorFlow: it sleeps, or computes elsewhere."""
    if anatomy is None or anatomy.function_calls_per_step > 0 or is_eager(anatomy):
        return False
    inside = sum(anatomy.kinds.get(kind, 0.0) for kind in ("tensorflow", "function"))
    return inside < _OPAQUE_SHARE


def given_mode(ladder: Sequence[TrialRecord], facts: StepFacts) -> str:
    """Mode of the step as given: ``eager``, ``graph``, ``xla``, ``opaque``, or ``none`` where there is no step."""
    if not facts.has_step:
        return "none"
    if facts.opaque:
        return "opaque"
    if facts.eager:
        return "eager"
    own = [segment for trial in ladder for segment in trial.segments if segment.name in _AS_GIVEN]
    compiled = any(sum(segment.columns.get("xla_compiles", ())) for segment in own)
    return "xla" if compiled else "graph"


def _host_share(anatomy: StepProfile | None) -> float:
    """Share of the base time (see :func:`xttsbench.analysis.attribution.attribute`) that is the host's own work."""
    if anatomy is None:
        return 0.0
    own = anatomy.kinds.get("python", 0.0) + anatomy.kinds.get("io", 0.0)
    if is_eager(anatomy):
        return own
    # Compiled: the base is the time outside its functions, all of which is the host's unless it launches ops there.
    launched = anatomy.kinds.get("tensorflow", 0.0)
    if own + launched <= 0 or anatomy.samples < _FEW_SAMPLES:
        return 1.0
    return own / (own + launched)


def _stalled(series: Sequence[Steps]) -> float:
    """Share of an opaque step that only some steps have, beyond what the length of their batches explains."""
    excess = [explain(steps.working_s, steps.batch_elements).stragglers.share_of_time for steps in series if len(steps)]
    return float(np.mean(excess)) if excess else 0.0


def _cores_busy(ladder: Sequence[TrialRecord], series: Sequence[Steps], environment: Mapping[str, Any]) -> float | None:
    """Share of the processor time left by others that each process used during its steps, the mean over processes.

    Neither what others use nor what is stolen counts as busy: only threads of the target itself can stand in one
    another's way, and it takes little for that where little is left.
    """
    allowed = known_cpus(environment)
    found = []
    for trial, steps in zip(ladder, series, strict=True):
        segment, wall_s = trial.segment("as_is"), float(steps.wall_s.sum())
        if not allowed or segment is None or wall_s <= 0:
            continue
        seen = shares(trial.readings.host, spans_of(segment))
        own = max(float(steps.cpu_s.sum()) / wall_s / allowed, seen.own or 0.0)
        found.append(min(own / seen.left, 1.0))
    return float(np.mean(found)) if found else None


def _taken(ladder: Sequence[TrialRecord], judged: Gate) -> tuple[float, float]:
    """Share of the processors that others took in the rounds that count, and the part of it that neighbours took.

    0 where it is no more than what they take of a quiet machine.
    """
    found = []
    for trial in ladder:
        segment = trial.segment("as_is")
        spans = spans_of(segment) if segment is not None else ()
        valid = [span for number, span in enumerate(spans) if (trial.spec.block, number) not in judged.invalid]
        seen = shares(trial.readings.host, valid)
        if seen.taken is not None:
            found.append((seen.taken, seen.foreign or 0.0))
    taken, foreign = np.mean(found, axis=0) if found else (0.0, 0.0)
    return (float(taken), float(foreign)) if taken > _QUIET else (0.0, 0.0)


def _lost_share(ladder: Sequence[TrialRecord]) -> float:
    """Share of the step's wanted processor time that it had to wait for, when alone; the mean over processes.

    Waiting in the run queue beside neighbours, or beneath a thief: without it the step alone would have been faster.
    """
    found = []
    for trial in ladder:
        segment = trial.segment("step_only")
        seen = shares(trial.readings.host, spans_of(segment)) if segment is not None else None
        if seen is None or not seen.own or not seen.taken or seen.taken < _QUIET:
            continue
        waited = (seen.run_delay or 0.0) + (seen.steal or 0.0)
        found.append(min(waited / (seen.own + waited), _MOST_LOST))
    return float(np.mean(found)) if found else 0.0


def known_cpus(environment: Mapping[str, Any]) -> float | None:
    """Processors that the process may use, affinity and quota considered; ``None`` where that is not known."""
    cpu = environment.get("cpu")
    allowed = cpu.get("allowed_cpus") if isinstance(cpu, Mapping) else None
    return float(allowed) if allowed else None


@dataclass(frozen=True)
class Compared:
    """A mode of the step, or a verified fix, beside the target as given.

    ``speedup`` is the ratio of mean times, above 1 where this is faster; its interval is over resamples of processes
    and steps. ``compile_s`` is what its tracing and compilation took, apart. A fix is ``accepted`` where it is decided
    to be faster with the same data.
    """

    name: str
    status: str
    cause: str | None = None
    time_s: Estimate | None = None
    speedup: Estimate | None = None
    processes: int = 0
    compile_s: float | None = None
    fetches_removed: bool = False
    accepted: bool = False


@dataclass(frozen=True)
class Evidence:
    """Measurements and derived figures of a run; ``None`` and empty mean not measured.

    Attributes:
        ladder: trials of the main kind that gave steps, in order.
        steps: steady steps of the first of them, the series that oscillation and stragglers are found in.
        wall_s: mean step time, and with ``parts`` its attribution in seconds (the estimate).
        max_speedups: by part, the speed-up of the step if that part cost nothing, with its interval.
        slower_beside_input: share of the step by which it is slower beside its input than alone on the same batches
            for no reason that is known; see :func:`xttsbench.analysis.attribution.unexplained`. ``None`` where that is
            less than the threshold.
        facts: what the attribution took as known of the step.
        length_has_the_period: the period of the steps is gone once the length of their batches is considered.
        given_mode: how the step runs as given, see :func:`xttsbench.evidence.given_mode`.
        input_cpu_s: processor time that making a batch takes.
        cores_wanted: see :func:`xttsbench.analysis.attribution.cores_wanted`.
        gpu: a profiled window; ``None`` where none was asked for.
        modes: by name.
        fixes: those that were verified and leave the data alone, by name; filled in for the rules of a report.
        predictions: of the target as it is, with each candidate fix, and if its input cost nothing.
        source: what the text of the user's source shows.
        asked: fixes that the user wants verified, whatever is expected of them.
    """

    kind: str
    has_step: bool
    emulated: bool
    ladder: Sequence[TrialRecord] = ()
    steps: Steps | None = None
    steady: SteadyState | None = None
    bottleneck: str = "inconclusive"
    wall_s: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    max_speedups: Mapping[str, Estimate] = field(default_factory=dict)
    slower_beside_input: Estimate | None = None
    facts: StepFacts = field(default_factory=lambda: StepFacts(has_step=False))
    given_mode: str = "none"
    input_alone_s: Estimate | None = None
    input_cpu_s: Estimate | None = None
    cores_wanted: float | None = None
    anatomy: StepProfile | None = None
    step_ops: StepOps | None = None
    gpu: GpuActivity | None = None
    script: ScriptRun | None = None
    source: Sequence[SourceFact] = ()
    batches: Batches | None = None
    pipeline: Pipeline | None = None
    devices: Devices | None = None
    traces: Sequence[Trace] = ()
    modes: Mapping[str, Compared] = field(default_factory=dict)
    fixes: Mapping[str, Compared] = field(default_factory=dict)
    predictions: Sequence[Prediction] = ()
    asked: Sequence[str] = ()
    oscillation: Oscillation = field(default_factory=Oscillation)
    explanation: Explanation | None = None
    length_has_the_period: bool = False
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> Pipeline:
        """The pipeline as far as it was read: without ops where it was not."""
        return self.pipeline or Pipeline()

    def known(self, name: str) -> Mapping[str, Any]:
        """Section of the environment by its name: ``cpu``, ``memory``, ``variables``; empty where it was not read."""
        found = self.environment.get(name)
        return found if isinstance(found, Mapping) else {}

    def share(self, part: str) -> float:
        """Share of the mean step that goes to a part of the attribution; 0 where there is none."""
        return self.parts.get(part, 0.0) / self.wall_s if self.wall_s else 0.0

    def within_losses(self, speedup: float | None) -> float | None:
        """Speed-up of a change of the input, no larger than the step without all that the input costs it allows."""
        lost = self.share("input") + self.share("contention")
        if speedup is None or not (self.has_step or self.emulated) or not 0.0 < lost < 1.0:
            return speedup
        return min(speedup, 1.0 / (1.0 - lost))

    def predicted(self, name: str) -> Prediction | None:
        """Model's prediction for the fix, or condition, of that name; ``None`` without one."""
        return next((found for found in self.predictions if found.name == name and found.batches_per_s), None)

    @property
    def on_gpu(self) -> bool:
        """Whether TensorFlow sees a GPU."""
        return self.devices is not None and bool(self.devices.gpus)

    def limits(self, part: str) -> bool:
        """Whether the step loses enough to that part for a finding about it to be limiting."""
        return self.bottleneck == part or (self.bottleneck != "inconclusive" and self.share(part) >= THRESHOLD)


def allowed_cpus(evidence: Evidence) -> int:
    """Processors that the process may use, at least one, affinity and quota considered."""
    allowed = evidence.known("cpu").get("allowed_cpus")
    return max(round(float(allowed)), 1) if allowed else 1
