"""Pairs of configurations of two sides: their processes, the effect between them, figures side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Literal

import numpy as np

from xttsbench.analysis.disturbance import gate, without
from xttsbench.analysis.evidence import Sample, unpaired
from xttsbench.analysis.steps import Steps
from xttsbench.comparison.comparable import Measured
from xttsbench.comparison.effects import Effect, decide_pairs, log_ratios, pooled, reported
from xttsbench.comparison.figures import cv_interval
from xttsbench.comparison.runs import settled, turns_of
from xttsbench.errors import InvalidInputError
from xttsbench.records.base import Estimate
from xttsbench.records.comparison_result import ComparedPair, Figures, Method
from xttsbench.records.report import Variant
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.compare.sides import (
    AS_GIVEN,
    Side,
    accelerator_of,
    kwargs_of,
    pair_arms,
    read_side,
    same_run,
    trials_of,
)

Unit = Literal["samples", "steps"]


_beside = attrgetter("spec.kind", "spec.group", "spec.emulated_ms")  # the same of trials in the same rounds


@dataclass(frozen=True)
class Runs:
    """One configuration of one side: its record, and the steady steps of each of its processes by block."""

    side: Side
    arm: Variant
    trials: tuple[TrialRecord, ...]
    steps: Mapping[int, Steps]

    @property
    def counts_samples(self) -> bool:
        """Whether the size of the batches is known."""
        if self.steps:
            return all(int(steps.batch_size.sum()) > 0 for steps in self.steps.values())
        return self.arm.throughput_per_s is not None and self.arm.throughput_per_s.estimate > 0

    @property
    def processes(self) -> int:
        """Number of processes, from the trials or from the report."""
        return len(self.steps) or self.arm.blocks


def _rate(steps: Steps, unit: Unit) -> float:
    return (float(steps.batch_size.sum()) if unit == "samples" else len(steps)) / float(steps.wall_s.sum())


def runs_of(side: Side, arm: Variant) -> Runs:
    """The processes of a configuration without the rounds that others disturbed; none for a report alone."""
    found: dict[int, Steps] = {}
    trials, own = [], trials_of(side, arm)
    invalid = gate([trial for trial in side.trials if own and _beside(trial) == _beside(own[0])]).invalid
    for trial in own:
        steps = settled(trial)
        if steps is not None and (left := without(steps, trial.spec.block, invalid)).wall_s.sum() > 0:
            found[trial.spec.block] = left
            trials.append(trial)
    return Runs(side, arm, tuple(trials), found)


def measured_of(runs: Runs) -> Measured:
    """Conditions of a configuration's measurement, for :func:`xttsbench.comparison.comparable.differences`."""
    side, arm, plan = runs.side, runs.arm, runs.side.plan
    comparison = plan.comparison if plan and arm.group else None
    # How long somebody trains says nothing of how it was measured.
    steps = None if plan is None or plan.kind == "train" else (comparison or plan).steps
    batch = None
    if runs.steps and runs.counts_samples:
        batch = float(np.mean([steps.batch_size.mean() for steps in runs.steps.values()]))
    elif arm.throughput_per_s is not None and arm.step_time_s is not None:
        batch = arm.throughput_per_s.estimate * arm.step_time_s.estimate
    return Measured(
        environment=side.report.environment,
        accelerator=accelerator_of(side, arm),
        steps=steps,
        batch=batch,
        kwargs=kwargs_of(side, arm),
        data=plan.data if plan else None,
        code=plan.code if plan else None,
        target=str(side.report.target.get("name", "")) or None,
    )


@dataclass(frozen=True)
class Sides:
    """Two runs beside one another, their configurations in pairs by name."""

    a: Side
    b: Side
    same_run: bool  # they are one measurement, be it in two copies, whose blocks and rounds pair them
    pairs: tuple[tuple[str, Runs, Runs], ...]
    alone: tuple[str, ...]  # configurations that stand beside none, in words


def read_sides(a_given: str, b_given: str) -> Sides:
    """Read two runs or reports, and put their configurations in pairs.

    Raises:
        UsageError, NothingMeasuredError: see :func:`pair_arms`.
        InvalidInputError: see :func:`read_side`; or both are one report, which does not hold the rounds.
    """
    a, b = read_side(a_given), read_side(b_given)
    same = same_run(a, b)
    if same and not (a.trials and b.trials):
        raise InvalidInputError(
            f"{a_given} and {b_given} are configurations of one report, which does not hold their rounds; "
            "name the run's directory."
        )
    named, alone = pair_arms(a, b)
    return Sides(a, b, same, tuple((name, runs_of(a, ours), runs_of(b, theirs)) for name, ours, theirs in named), alone)


def compare_pairs(
    sides: Sides, *, margin: float, session_noise: float | None
) -> tuple[tuple[ComparedPair, ...], dict[str, Effect]]:
    """Every pair, decided together, and the effects that gates rest on; see :func:`decide_pairs`."""
    units: dict[str, Unit] = {
        name: "samples" if a.counts_samples and b.counts_samples else "steps" for name, a, b in sides.pairs
    }
    made = {name: (_paired if sides.same_run else _apart)(a, b, units[name]) for name, a, b in sides.pairs}
    samples = {name: sample for name, sample in made.items() if sample is not None}
    effects = decide_pairs(samples, margin=margin, session_noise=session_noise)
    found = []
    for name, a, b in sides.pairs:
        effect = effects.get(name)
        method: Method = "paired blocks" if sides.same_run else "separate sessions"
        if effect is None:
            method, effect = "not measured", Effect(why=_absent(a, b))
        elif not effect.sure:
            few = f"there are too few processes ({a.processes} of A and {b.processes} of B)"
            method, effect = "one process", effect.withheld(f"{few}: what the next would do is not known")
        elif (doubt := _doubt(a, b, same_run=sides.same_run)) is not None:
            effect = effect.withheld(doubt)
        effects[name] = effect
        found.append(
            ComparedPair(
                name=name,
                a=_figures(a, units[name]),
                b=_figures(b, units[name]),
                method=method,
                unit=units[name],
                effect=effect.ratio,
                decision=effect.word,
                evidence=effect.evidence,
                smallest_visible_effect=effect.smallest_visible_effect,
                why=effect.why,
            )
        )
    return tuple(found), effects


def _paired(a: Runs, b: Runs, unit: Unit) -> Sample | None:
    return pooled(log_ratios(turns_of(a.steps), turns_of(b.steps), partial(_rate, unit=unit)))


def _apart(a: Runs, b: Runs, unit: Unit) -> Sample | None:
    """Mean log rates of two sessions, of the processes where they are at hand, else as reported."""
    if a.steps and b.steps:
        return unpaired(*(np.log([_rate(steps, unit) for steps in runs.steps.values()]) for runs in (a, b)))
    ours, theirs = _reported(a.arm, unit), _reported(b.arm, unit)
    try:
        return reported(ours, a.processes, theirs, b.processes) if ours and theirs else None
    except ValueError:
        return None


def _reported(arm: Variant, unit: Unit) -> Estimate | None:
    """The reported rate, from the step time where steps are counted."""
    if unit == "samples":
        return arm.throughput_per_s
    time = arm.step_time_s
    if time is None or not 0 < time.low <= time.estimate <= time.high:
        return None
    return Estimate(estimate=1 / time.estimate, low=1 / time.high, high=1 / time.low)


def _absent(a: Runs, b: Runs) -> str:
    words = [
        f"{name} was not measured ({runs.arm.status})"
        for name, runs in (("A", a), ("B", b))
        if not runs.steps and runs.arm.step_time_s is None
    ]
    return "; ".join(words) or "the two have no unit in common"


def _doubt(a: Runs, b: Runs, *, same_run: bool) -> str | None:
    for name, runs in (("A", a), ("B", b)):
        if runs.arm.status != "ok":
            return f"the configuration of {name} did not end well: {runs.arm.status}"
    failed = (a.side.report.parity or {}).get("failed") or {}
    if same_run and (unknown := next((arm for arm in (a.arm.id, b.arm.id) if arm in failed), None)):
        return f"whether {unknown} yields the baseline's data is not known: {failed[unknown]}"
    return None


def _figures(runs: Runs, unit: Unit) -> Figures:
    arm, report = runs.arm, runs.side.report
    own, verdict = arm.id == AS_GIVEN and not arm.group, report.verdict
    memory = [max(host.rss_bytes) for trial in runs.trials if (host := trial.readings.host) and host.rss_bytes]
    first_s = float(np.median([_first_step_s(trial) for trial in runs.trials])) if runs.trials else None
    memory_bytes = float(max(memory)) if memory else None
    if own and not runs.trials:
        host = report.readings.get("host")
        first_s = report.warm_up.first_step_s
        memory_bytes = host.get("rss_bytes_max") if isinstance(host, dict) else None
    return Figures(
        arm=arm.id,
        accelerator=accelerator_of(runs.side, arm),
        processes=runs.processes,
        steps=sum(len(steps) for steps in runs.steps.values()) or arm.steps or None,
        rate_per_s=_reported(arm, unit),
        **{name: getattr(arm, name) for name in ("status", "step_time_s", "padding_efficiency")},
        throughput_per_s=arm.throughput_per_s if runs.counts_samples else None,
        utilization=verdict.accelerator_utilization if own else arm.utilization,
        input_wait_fraction=verdict.input_wait_fraction if own else arm.input_wait_fraction,
        cv=report.oscillation.cv if own else arm.cv,
        cv_interval=cv_interval(list(runs.steps.values())),
        first_step_s=first_s,
        memory_bytes=memory_bytes,
    )


def _first_step_s(trial: TrialRecord) -> float:
    segment = trial.segment("warm_up") or trial.segment("as_is")
    return segment.columns["wall_ns"][0] / 1e9 if segment else math.nan
