"""The report of a scenario from the files of its run: plan, environment and trials in, record out. Pure.

Its verdict is on the baseline, and names a bottleneck only where that is certain without the experiments of a
diagnosis: a dataset alone has nothing but its input and, behind an emulated accelerator, a wait of known length.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from xttsbench import __version__
from xttsbench.analysis.attribution import THRESHOLD, Means, StepFacts, attribute, verdicts
from xttsbench.analysis.disturbance import disturbance_of
from xttsbench.analysis.evidence import interval, paired
from xttsbench.analysis.steps import measured, steady
from xttsbench.analysis.variation import oscillation
from xttsbench.comparison.arms import ComparedVariants, compare
from xttsbench.comparison.figures import PROCESSOR
from xttsbench.comparison.runs import VariantRuns
from xttsbench.comparison.sweep import Choice, again, baseline_gone, choose, seen_in
from xttsbench.diagnosis.bottleneck import Classified, why_undecided
from xttsbench.diagnosis.verdict import RunVerdict, unmeasured_verdict
from xttsbench.evidence import mean_of_known
from xttsbench.records.base import DECIDED, Estimate
from xttsbench.records.missing import nulls
from xttsbench.records.plan import Comparison, PlannedVariant, Procedure, RunPlan
from xttsbench.records.report import Attribution, Best, Bottleneck, Oscillation, Report, Variant, Verdict, WarmUp
from xttsbench.records.trial import TrialRecord, interrupted
from xttsbench.workflows import reports
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.saved import fingerprint_of

_DIAGNOSED = "a trial of a configuration costs what it measures, and nothing more; 'xttsbench diagnose' reads it"


def assemble_run(run: Recorded) -> Report:
    """Everything that the run's files say, as the report record.

    Raises:
        JournalError: the plan holds no comparison, so it is not that of a scenario.
    """
    return assemble_compared(run, run.comparison, compare(run.comparison, run.trials))


def assemble_compared(run: Recorded, comparison: Comparison, compared: ComparedVariants) -> Report:
    """The report of configurations that have been compared; its verdict is that on their baseline."""
    plan, trials = run.plan, run.trials
    told = baseline_verdict(compared)
    used = comparison.accelerators[told.group]
    warm = WarmUp(reason=told.verdict.summary)
    if told.trial is not None and told.steps is not None and told.steady is not None:
        warm = reports.warm_up(told.trial, told.steps, told.steady)
    own = [trial for trial in trials if trial.spec.arm == comparison.baseline.id]
    record = Report(
        **reports.shared(run),
        target=reports.target(plan, own) | {"scenario": comparison.name, "description": comparison.description},
        verdict=told.verdict.model_copy(update={"verdict_final_s": reports.verdict_final_s(trials)}),
        oscillation=told.oscillation,
        arms=compared.arms,
        aa=compared.aa,
        disturbance=disturbance_of(trials),
        accelerator=reports.accelerator(used, told.verdict.accelerator_utilization),
        warm_up=warm,
        readings=reports.readings_beside(told.trial),
        warnings=_warnings(plan, comparison, compared, trials),
        parity=compared.parity,
        comparison=compared.sentences,
    )
    return record.model_copy(update={"unmeasured": _unmeasured(record, compared, told)})


def _unmeasured(record: Report, compared: ComparedVariants, told: BaselineVerdict) -> dict[str, str]:
    found = {**told.unmeasured, **compared.unmeasured}
    why = "there is no step to trace or compile" if told.trial is not None else record.verdict.summary
    found |= nulls("warm_up", record.warm_up, why, but=("reason",)) | reports.unread(record.disturbance)
    if record.verdict.verdict_final_s is None:
        found["verdict.verdict_final_s"] = "no trial was run"
    return found | {"pipeline": _DIAGNOSED, "overhead": _DIAGNOSED, "profile": _DIAGNOSED}


def _warnings(
    plan: RunPlan, comparison: Comparison, compared: ComparedVariants, trials: Sequence[TrialRecord]
) -> tuple[str, ...]:
    found = [*compared.remarks, *reports.endings(trials)]
    if (unknown := compared.unknown) and compared.failed is None:
        reasons = dict.fromkeys(unknown.values())
        found += [f"{', '.join(arm for arm in unknown if unknown[arm] == reason)}: {reason}" for reason in reasons]
    measured = [trial for trial in trials if trial.spec.kind == "arm"]
    found += _machines(measured)
    rounds = max((sum(map(_rounds, own)) for own in _by_arm(measured)), default=0)
    stopped = interrupted(trials) or any(group.ended for group in compared.groups)
    if plan.kind != "sweep" and measured and rounds < comparison.blocks and not stopped and _runs_on(compared):
        found.append(
            f"{rounds} of {comparison.blocks} rounds were measured: another was not expected to end within the budget "
            f"of {plan.budget_s:g} s (--budget)"
        )
    if measured and (window_s := measured[0].spec.window_s) < comparison.window_s:
        found.append(
            f"each trial measured {window_s:.2g} s at most in place of {comparison.window_s:g} s, so that the rounds "
            f"fit into the budget of {plan.budget_s:g} s"
        )
    return tuple(dict.fromkeys(found))


def _machines(trials: Sequence[TrialRecord]) -> list[str]:
    """Machines of a cluster that measured, and what that means; nothing where there is only one."""
    found = {one.label: one.fingerprint for trial in trials if (one := trial.machine) is not None}
    if len(found) < 2:
        return []
    kinds = len({*found.values()})
    mixed = f", which are of {kinds} kinds, so that an effect is the mean over unlike machines" if kinds > 1 else ""
    return [
        f"measured on {len(found)} devices of a cluster{mixed}: {', '.join(sorted(found))}; a configuration is "
        "compared with the baseline in turns on one device, and step times are means over devices"
    ]


def _rounds(trial: TrialRecord) -> int:
    return len(trial.rounds) if trial.spec.turns else 1


def _by_arm(trials: Sequence[TrialRecord]) -> list[list[TrialRecord]]:
    found: defaultdict[object, list[TrialRecord]] = defaultdict(list)
    for trial in trials:
        found[trial.spec.arm, trial.spec.emulated_ms].append(trial)
    return list(found.values())


def _runs_on(compared: ComparedVariants) -> bool:
    """Whether a candidate could have been measured further."""
    candidates = [arm for arm in compared.arms if arm.role == "candidate"]
    return not candidates or any(arm.decision not in (*DECIDED, "ended") for arm in candidates)


_NAMES: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "compile_s", "outside_s")
_DIAGNOSE: Final = "'xttsbench diagnose' names what limits a step"


@dataclass(frozen=True)
class BaselineVerdict(RunVerdict):
    """The verdict on the baseline of one accelerator's group."""

    group: int = 0  # index of the accelerator


def baseline_verdict(compared: ComparedVariants) -> BaselineVerdict:
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
    return BaselineVerdict(verdict, vector, trial, steps, found, unmeasured, index)


def _nothing(compared: ComparedVariants) -> BaselineVerdict:
    baseline = compared.groups[0].baseline
    ended = compared.groups[0].ended or compared.failed
    why = f"the baseline {baseline.arm.id} ended ({ended})" if ended else "no configuration was measured to its end"
    if compared.refused and not ended:
        why = "the configurations do not feed the baseline's data, so none was measured"
    said = unmeasured_verdict(f"Nothing could be concluded: {why.rstrip('. ')}.")
    unmeasured = nulls("verdict", said, why, but=("verdict_final_s",)) | nulls("oscillation", Oscillation(), why)
    return BaselineVerdict(said, unmeasured=unmeasured)


def _bottleneck(
    runs: VariantRuns, arm: Variant, *, emulated: bool
) -> tuple[Bottleneck, float, Attribution | None, str | None]:
    """Bottleneck, its probability, and attribution; or why there is none."""
    if runs.has_step:
        return "inconclusive", 0.0, None, f"where the step's time goes is not broken down; {_DIAGNOSE}"
    series, trials = list(runs.steps.values()), list(runs.trials.values())
    facts = StepFacts(
        has_step=False,
        handoff_s=mean_of_known(trial.handoff_s for trial in trials),
        handoff_after_pause_s=mean_of_known(trial.handoff_after_pause_s for trial in trials),
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
    """Probability that the share lost to the input is above the threshold, from the interval of the waits' share."""
    from scipy import special

    if waits is None:
        return 0.5
    reach = max(waits.high - waits.low, 1e-6) / 2
    return float(special.ndtr((loss - THRESHOLD) / (reach / special.ndtri(0.975))))


def _summary(
    compared: ComparedVariants,
    arm: Variant,
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


def _quantile(runs: VariantRuns, share: float, noise_scale: float) -> Estimate:
    """A quantile of the step time over all steps, with an interval over rounds."""
    each = [math.log(float(np.quantile(steps.wall_s, share))) for steps in runs.turns.values()]
    found = interval(paired(each, [block for block, _ in runs.turns]), noise_scale)
    value = float(np.quantile(np.concatenate([steps.wall_s for steps in runs.steps.values()]), share))
    return Estimate(estimate=value, low=value * found.low / found.estimate, high=value * found.high / found.estimate)


def assemble_sweep(run: Recorded) -> Report:
    """Everything that the run's files say, as the report record.

    All configurations are one group, whatever they were measured in; the verdict is on the baseline.

    Raises:
        JournalError: the plan holds no comparison or no procedure, so it is not that of a sweep.
    """
    plan, trials = run.plan, run.trials
    comparison, procedure = run.comparison, plan.procedure or Procedure()
    comparison = comparison.model_copy(
        update={"arms": _with_again(comparison), "accelerators": comparison.accelerators[:1]}
    )
    seen = seen_in(comparison, trials)
    choice = choose(comparison, procedure, seen)
    compared = replace(compare(comparison, trials), sentences=(choice.why,))
    report = assemble_compared(run, comparison, compared)
    waiting = any(arm.role == "candidate" and arm.id not in seen.gone for arm in comparison.arms)
    begun = any(trial.spec.kind == "arm" for trial in trials)
    if (not any(seen.processes.values()) and (waiting or not begun)) or baseline_gone(comparison, seen) is not None:
        why = "the sweep ended before anything could be chosen"
        return report.model_copy(update={"unmeasured": report.unmeasured | {"best": why}})
    return report.model_copy(update={"best": _best(run, comparison, choice)})


def _with_again(comparison: Comparison) -> tuple[PlannedVariant, ...]:
    arms = comparison.arms
    return arms if any(arm.role == "aa" for arm in arms) else (*arms, again(comparison))


def _best(run: Recorded, comparison: Comparison, choice: Choice) -> Best:
    arm = next(arm for arm in comparison.arms if arm.id == choice.winner)
    used = comparison.accelerators[0]
    chosen = {one.name: getattr(choice, one.name) for one in fields(choice) if one.name != "winner"}
    return Best(
        **chosen,
        run=run.directory.name,
        target=None if comparison.bundled else comparison.target,
        workload="xtts" if comparison.bundled else None,
        arm=arm.id,
        config=arm.kwargs,
        baseline={"arm": comparison.baseline.id, "config": comparison.baseline.kwargs},
        accelerator={"kind": used.kind, "label": used.label, "source": used.source},
        steps_per_trial=comparison.steps,
        fingerprint=fingerprint_of(run.environment, code=run.plan.code, data=run.plan.data),
        xttsbench_version=__version__,
    )
