"""Everything that the rules look at, taken once from the trials of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xttsbench.analysis.attribution import THRESHOLD, StepFacts
from xttsbench.analysis.steps import SteadyState, Steps
from xttsbench.analysis.variation import Explanation
from xttsbench.records.base import Estimate
from xttsbench.records.gpu_activity import GpuActivity
from xttsbench.records.pipeline import Pipeline, Prediction
from xttsbench.records.report import Oscillation
from xttsbench.records.source_fact import SourceFact
from xttsbench.records.step_ops import StepOps
from xttsbench.records.trial import Batches, Devices, ScriptRun, StepProfile, Trace, TrialRecord


@dataclass(frozen=True)
class Compared:
    """A mode of the step, or a fix of the pipeline, beside the target as given.

    ``speedup`` is the ratio of mean times, above 1 where this is faster; its interval is over resamples of processes
    and steps. ``compile_s`` is what its tracing and compilation took, apart.
    """

    name: str
    status: str
    cause: str | None = None
    time_s: Estimate | None = None
    speedup: Estimate | None = None
    processes: int = 0
    compile_s: float | None = None
    fetches_removed: bool = False


@dataclass(frozen=True)
class Evidence:
    """What was measured and derived; ``None`` and empty mean not measured.

    Attributes:
        ladder: trials of the main rung that gave steps, in order.
        steps: steady steps of the first of them, the series that oscillation and stragglers are found in.
        wall_s: mean step time, and with ``parts`` its attribution in seconds (the estimate).
        max_speedups: by part, the speed-up of the step if that part cost nothing, with its interval.
        facts: what the attribution took as known of the step.
        length_has_the_period: the period of the steps is gone once the length of their batches is considered.
        given_mode: how the step runs as given, see :func:`xttsbench.evidence.facts.given_mode`.
        input_cpu_s: processor time that making a batch takes.
        cores_wanted: see :func:`xttsbench.analysis.attribution.cores_wanted`.
        gpu: a profiled window; ``None`` where none was asked for.
        modes, fixes: by name.
        predictions: of the target as it is, with each candidate fix, and if its input cost nothing.
        source: what the text of the user's source shows.
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
    oscillation: Oscillation = field(default_factory=Oscillation)
    explanation: Explanation | None = None
    length_has_the_period: bool = False
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> Pipeline:
        """The pipeline as far as it was read: without ops where it was not."""
        return self.pipeline or Pipeline()

    def known(self, name: str) -> Mapping[str, Any]:
        """What the environment says under a name: ``cpu``, ``memory``, ``variables``; empty where it says nothing."""
        found = self.environment.get(name)
        return found if isinstance(found, Mapping) else {}

    def share(self, part: str) -> float:
        """Share of the mean step that goes to a part of the attribution; 0 where there is none."""
        return self.parts.get(part, 0.0) / self.wall_s if self.wall_s else 0.0

    def predicted(self, name: str) -> Prediction | None:
        """What the model predicts with the fix, or under the condition, of that name; ``None`` where nothing."""
        return next((found for found in self.predictions if found.name == name and found.batches_per_s), None)

    def limits(self, part: str) -> bool:
        """Whether the step loses enough to that part for a finding about it to be limiting."""
        return self.bottleneck == part or (self.bottleneck != "inconclusive" and self.share(part) >= THRESHOLD)


def allowed_cpus(evidence: Evidence) -> int:
    """Processors that the process may use, at least one, affinity and quota considered."""
    allowed = evidence.known("cpu").get("allowed_cpus")
    return max(round(float(allowed)), 1) if allowed else 1
