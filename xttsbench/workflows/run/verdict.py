"""What limits the baseline of a comparison, where that is certain without the ladder of a diagnosis.

A dataset alone has nothing but its input and, behind an emulated accelerator, a wait of known length. What a step does
with its time only the ladder tells, so with a step no bottleneck is named here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from scipy import special

from xttsbench.analysis.attribution import THRESHOLD, Means, StepFacts, attribute, verdicts
from xttsbench.analysis.evidence import interval, paired
from xttsbench.analysis.oscillation import oscillation
from xttsbench.analysis.steady_state import SteadyState
from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.comparison.arms import ComparedArms
from xttsbench.comparison.figures import PROCESSOR
from xttsbench.comparison.runs import ArmRuns
from xttsbench.diagnosis.classify import Classified, why_undecided
from xttsbench.records.base import Estimate
from xttsbench.records.report import Arm, Attribution, Bottleneck, Oscillation, Verdict
from xttsbench.records.trial import TrialRecord

_NAMES: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "compile_s", "outside_s")
_DIAGNOSE: Final = "'xttsbench diagnose' names what limits a step"


@dataclass(frozen=True)
class BaselineVerdict:
    """The verdict, and what else is told of the baseline.

    Attributes:
        group: index of the accelerator that it is about.
        trial: its first process, which the oscillation and the warm-up are told from; ``None`` where none ended well.
        steps: the steady steps of that process.
        unmeasured: path in the report -> reason.
    """

    verdict: Verdict
    group: int
    oscillation: Oscillation = field(default_factory=Oscillation)
    trial: TrialRecord | None = None
    steps: Steps | None = None
    steady: SteadyState | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)


def baseline_verdict(compared: ComparedArms) -> BaselineVerdict:
    """The verdict on the baseline: of the first accelerator where its bottleneck is certain, else of the first."""
    measured_in = [index for index, group in enumerate(compared.groups) if group.baseline.steps]
    if not measured_in:
        return _nothing(compared)
    certain = [index for index in measured_in if not compared.groups[index].baseline.has_step]
    index = (certain or measured_in)[0]
    runs = compared.groups[index].baseline
    arm = compared.arms[index * len(compared.groups[index].arms)]
    emulated = bool(compared.groups[index].accelerator.step_times_ms)
    series = list(runs.steps.values())
    bottleneck, confidence, parts, why = _bottleneck(runs, arm, emulated=emulated)
    # The process with the most steady steps stands for the run.
    trial, steps = max(zip(runs.trials.values(), series, strict=True), key=lambda one: len(one[1]))
    vector, missing = oscillation(steps.wall_s)
    rows = measured(trial, "as_is")
    unmeasured = {f"oscillation.{name}": reason for name, reason in missing.items()}
    if parts is None:
        unmeasured["verdict.attribution_s"] = why or "not measured"
    utilization = arm.utilization if arm.utilization_of != PROCESSOR else None
    if utilization is None:
        unmeasured["verdict.accelerator_utilization"] = (
            "no accelerator: the processor is the device; emulated:MS shows the input side of one"
            if arm.utilization_of == PROCESSOR or not arm.utilization_of
            else "the driver gave no utilization samples during the steps"
        )
    verdict = Verdict(
        bottleneck=bottleneck,
        summary=_summary(compared, arm, bottleneck, why, labelled=len(compared.groups) > 1),
        confidence=confidence,
        step_time_s=arm.step_time_s,
        step_time_median_s=_quantile(runs, 0.5, compared.noise_scales[index]),
        step_time_p95_s=_quantile(runs, 0.95, compared.noise_scales[index]),
        input_wait_fraction=arm.input_wait_fraction,
        accelerator_utilization=utilization,
        attribution_s=parts,
    )
    found = steady(rows)[1] if rows is not None else None
    return BaselineVerdict(verdict, index, vector, trial, steps, found, unmeasured)


def _nothing(compared: ComparedArms) -> BaselineVerdict:
    baseline = compared.groups[0].baseline
    ended = compared.groups[0].ended or compared.failed
    why = f"the baseline {baseline.arm.id} ended ({ended})" if ended else "no arm was measured to its end"
    if compared.refused and not ended:
        why = "the arms do not feed the baseline's data, so none was measured"
    names = ("step_time_s", "step_time_median_s", "step_time_p95_s", "input_wait_fraction", "accelerator_utilization")
    empty: dict[str, Any] = dict.fromkeys((*names, "attribution_s"))
    unmeasured = {f"verdict.{name}": why for name in empty}
    unmeasured |= {f"oscillation.{name}": why for name in Oscillation.model_fields}
    said = Verdict(
        bottleneck="inconclusive", summary=f"Nothing could be concluded: {why.rstrip('. ')}.", confidence=0.0, **empty
    )
    return BaselineVerdict(said, 0, unmeasured=unmeasured)


def _bottleneck(runs: ArmRuns, arm: Arm, *, emulated: bool) -> tuple[Bottleneck, float, Attribution | None, str | None]:
    """Bottleneck, its probability, and attribution; or why there is none."""
    if runs.has_step:
        return "inconclusive", 0.0, None, f"what the step does with its time is not told apart; {_DIAGNOSE}"
    series, trials = list(runs.steps.values()), list(runs.trials.values())
    facts = StepFacts(
        has_step=False,
        handoff_s=_mean([trial.handoff_s for trial in trials]),
        handoff_after_pause_s=_mean([trial.handoff_after_pause_s for trial in trials]),
    )
    means = {name: np.concatenate([getattr(steps, name) for steps in series]).mean(keepdims=True) for name in _NAMES}
    parts = attribute(Means(**means), facts)
    name, confidence = "input", 1.0  # a bare dataset has nothing else to wait for
    if emulated:
        name = str(verdicts(parts, means["wall_s"])[0])
        loss = float(parts["input"][0] / means["wall_s"][0])
        confidence = _probability(loss, arm.input_wait_fraction)
        confidence = confidence if name == "input" else 1 - confidence
    told = Attribution(**{part: float(values[0]) for part, values in parts.items()})
    why = why_undecided(trials, series, Classified(name, confidence))
    if why is not None or name not in ("input", "compute"):
        return "inconclusive", confidence, told, why or "neither the input nor the accelerator takes the time"
    return ("input" if name == "input" else "compute"), confidence, told, None


def _probability(loss: float, waits: Estimate | None) -> float:
    """That the share lost to the input is above the threshold, from the interval of the share of the waits."""
    if waits is None:
        return 0.5
    reach = max(waits.high - waits.low, 1e-6) / 2
    return float(special.ndtr((loss - THRESHOLD) / (reach / special.ndtri(0.975))))


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0


def _summary(
    compared: ComparedArms,
    arm: Arm,
    bottleneck: Bottleneck,
    why: str | None,
    *,
    labelled: bool,
) -> str:
    where = f" ({arm.accelerator})" if labelled else ""
    share = arm.input_wait_fraction.estimate if arm.input_wait_fraction else 0.0
    if bottleneck == "input":
        said = f"{arm.id} waits {share:.0%} of its time for data{where}."
    elif bottleneck == "compute":
        said = (
            f"The emulated accelerator is the limit of {arm.id}, which waits {share:.0%} of its time for data{where}."
        )
    else:
        said = f"No bottleneck of {arm.id} is named{where}: {(why or 'not known').rstrip('. ')}."
    return " ".join([*compared.sentences, said])


def _quantile(runs: ArmRuns, share: float, noise_scale: float) -> Estimate:
    """A quantile of the step time over all steps, with an interval over rounds."""
    each = [math.log(float(np.quantile(steps.wall_s, share))) for steps in runs.turns.values()]
    found = interval(paired(each, [block for block, _ in runs.turns]), noise_scale)
    value = float(np.quantile(np.concatenate([steps.wall_s for steps in runs.steps.values()]), share))
    return Estimate(estimate=value, low=value * found.low / found.estimate, high=value * found.high / found.estimate)
