"""The arms of two sides in pairs: their processes read, their effects decided, their figures side by side. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from xttsbench.analysis.pooling import Columns, Pooled, interval_of, mean_of, pool
from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.records.base import Estimate
from xttsbench.records.comparison_result import ComparedPair, Figures, Method
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.report import Arm
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.arm_effects import throughput
from xttsbench.rules.comparable import Measured
from xttsbench.rules.regression import (
    MIN_PROCESSES,
    Effect,
    LogMean,
    decide_apart,
    decide_paired,
    log_mean,
    reported_mean,
    welch,
    withheld,
)
from xttsbench.workflows.compare_sides import AS_GIVEN, Side, accelerator_of, kwargs_of, trials_of

Unit = Literal["samples", "steps"]
_ALONE: Final = "a report alone does not hold it"


@dataclass(frozen=True)
class Runs:
    """One arm of one side: its record, and the steady steps of each of its processes by block."""

    side: Side
    arm: Arm
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
        """How many there are, from the trials or from the report."""
        return len(self.steps) or self.arm.blocks

    def rates(self, unit: Unit) -> dict[int, float]:
        """Samples or steps per second of each process, by block."""
        return {
            block: (float(steps.batch_size.sum()) if unit == "samples" else len(steps)) / float(steps.wall_s.sum())
            for block, steps in self.steps.items()
        }


def runs_of(side: Side, arm: Arm) -> Runs:
    """The processes of an arm; none for a report alone."""
    found: dict[int, Steps] = {}
    trials = []
    for trial in trials_of(side, arm):
        rows = measured(trial, "as_is")
        steps = steady(rows)[0] if rows is not None else None
        if steps is not None and steps.wall_s.sum() > 0:
            found[trial.spec.block] = steps
            trials.append(trial)
    return Runs(side, arm, tuple(trials), found)


def measured_of(runs: Runs) -> Measured:
    """What the arm was measured on and how, for :func:`xttsbench.rules.comparable.differences`."""
    side, arm, plan = runs.side, runs.arm, runs.side.plan
    comparison = plan.comparison if plan and arm.group else None
    batch = None
    if runs.steps and runs.counts_samples:
        batch = float(np.mean([steps.batch_size.mean() for steps in runs.steps.values()]))
    elif arm.throughput_per_s is not None and arm.step_time_s is not None:
        batch = arm.throughput_per_s.estimate * arm.step_time_s.estimate
    return Measured(
        environment=side.report.environment,
        accelerator=accelerator_of(side, arm),
        steps=_steps_of(plan, comparison),
        batch=batch,
        kwargs=kwargs_of(side, arm),
        data=plan.data if plan else None,
        code=plan.code if plan else None,
        target=str(side.report.target.get("name", "")) or None,
    )


def _steps_of(plan: RunPlan | None, comparison: Comparison | None) -> int | None:
    """Steps that a trial was to measure; how long somebody trains says nothing of how it was measured."""
    if plan is None or plan.kind == "train":
        return None
    return comparison.steps if comparison else plan.steps


def compare_pairs(
    pairs: Sequence[tuple[str, Runs, Runs]], *, same_run: bool, margin: float, session_noise: float, seed: int = 0
) -> tuple[tuple[ComparedPair, ...], dict[str, Effect]]:
    """Every pair, decided together, and the effects that gates rest on.

    Args:
        pairs: name, and the arm of either side.
        same_run: the two sides are one run, so that their blocks pair them.
        margin: the smallest difference that matters, as a share.
        session_noise: standard deviation between sessions, as a share.
        seed: of the bootstrap where there is one process a side.
    """
    rng = np.random.default_rng(seed)
    units: dict[str, Unit] = {
        name: "samples" if a.counts_samples and b.counts_samples else "steps" for name, a, b in pairs
    }
    effects: dict[str, Effect] = {}
    if same_run:
        effects = decide_paired({name: _log_ratios(a, b, units[name]) for name, a, b in pairs}, margin=margin)
    else:
        apart: dict[str, LogMean] = {}
        for name, a, b in pairs:
            left, right = _mean(a, units[name]), _mean(b, units[name])
            if left is not None and right is not None:
                apart[name] = welch(left, right, session_noise)
        effects = decide_apart(apart, margin=margin)
    found = []
    for name, a, b in pairs:
        effect = effects.get(name, Effect())
        method: Method = "paired blocks" if same_run else "separate sessions"
        if effect.ratio is None:
            ratio = _within(a, b, units[name], rng)
            method = "not measured" if ratio is None else "one process"
            why = effect.why or _too_few(a, b)
            effect = Effect(ratio=ratio, why=why if ratio is not None else _absent(a, b))
        elif (doubt := _doubt(a, b, same_run=same_run)) is not None:
            effect = withheld(effect, doubt)
        effects[name] = effect
        found.append(
            ComparedPair(
                name=name,
                a=_figures(a, units[name]),
                b=_figures(b, units[name]),
                method=method,
                unit=units[name],
                effect=effect.ratio,
                decision=effect.decision,
                p_value=effect.p_value,
                smallest_visible_effect=effect.log_ratio.smallest_visible_effect() if effect.log_ratio else None,
                why=effect.why,
            )
        )
    return tuple(found), effects


def _log_ratios(a: Runs, b: Runs, unit: Unit) -> list[float]:
    ours, theirs = a.rates(unit), b.rates(unit)
    return [math.log(theirs[block] / ours[block]) for block in sorted(ours.keys() & theirs.keys())]


def _mean(runs: Runs, unit: Unit) -> LogMean | None:
    """Mean log rate over the processes; from the reported interval where there are no trials."""
    if runs.steps:
        return log_mean(list(runs.rates(unit).values())) if len(runs.steps) >= MIN_PROCESSES else None
    estimate = _reported(runs.arm, unit)
    try:
        return reported_mean(estimate, runs.arm.blocks) if estimate is not None else None
    except ValueError:
        return None


def _reported(arm: Arm, unit: Unit) -> Estimate | None:
    """The reported rate, from the step time where steps are counted."""
    if unit == "samples":
        return arm.throughput_per_s
    time = arm.step_time_s
    if time is None or not 0 < time.low <= time.estimate <= time.high:
        return None
    return Estimate(estimate=1 / time.estimate, low=1 / time.high, high=1 / time.low)


def _within(a: Runs, b: Runs, unit: Unit, rng: np.random.Generator) -> Estimate | None:
    """The ratio with an interval over the steps of the processes at hand, which tells nothing of further ones."""
    if a.steps and b.steps:
        before, after = _pooled(a, unit, rng), _pooled(b, unit, rng)
        return interval_of(after.value / before.value, after.resamples / before.resamples)
    left, right = _reported(a.arm, unit), _reported(b.arm, unit)
    if left is None or right is None or not 0 < left.low <= left.estimate <= left.high:
        return None
    return Estimate(estimate=right.estimate / left.estimate, low=right.low / left.high, high=right.high / left.low)


def _pooled(runs: Runs, unit: Unit, rng: np.random.Generator) -> Pooled:
    columns: list[Columns] = [
        {"wall_s": steps.wall_s, "batch_size": steps.batch_size.astype(np.float64)} for steps in runs.steps.values()
    ]
    if unit == "samples":
        return pool(columns, {"rate": throughput}, rng)["rate"]
    time = pool(columns, {"time": mean_of("wall_s")}, rng)["time"]
    return Pooled(1 / time.value, 1 / time.resamples)


def _too_few(a: Runs, b: Runs) -> str:
    counts = f"{a.processes} of A and {b.processes} of B"
    if a.steps and b.steps:
        return f"there are too few processes ({counts}): the interval is within them and tells nothing of the next"
    return (
        f"too few processes stand behind the reported intervals ({counts}); name the runs' directories, or more blocks"
    )


def _absent(a: Runs, b: Runs) -> str:
    words = [f"{name} was not measured ({runs.arm.status})" for name, runs in (("A", a), ("B", b)) if not _any(runs)]
    return "; ".join(words) or "the two have no unit in common"


def _any(runs: Runs) -> bool:
    return bool(runs.steps) or runs.arm.step_time_s is not None


def _doubt(a: Runs, b: Runs, *, same_run: bool) -> str | None:
    """Why nothing may be decided although there are numbers."""
    for name, runs in (("A", a), ("B", b)):
        if runs.arm.status != "ok":
            return f"the arm of {name} did not end well: {runs.arm.status}"
        first = next((arm for arm in runs.side.report.arms if arm.group), None)
        place = (runs.arm.group, runs.arm.accelerator)
        # A report tells of the noise of its first group alone.
        if runs.side.report.aa.noisy and first is not None and place == (first.group, first.accelerator):
            return f"the session of {name} was noisy: its baseline differed from itself"
    failed = (a.side.report.parity or {}).get("failed") or {}
    if same_run and (unknown := next((arm for arm in (a.arm.id, b.arm.id) if arm in failed), None)):
        return f"whether {unknown} yields the baseline's data is not known: {failed[unknown]}"
    return None


def _figures(runs: Runs, unit: Unit) -> Figures:
    arm, report = runs.arm, runs.side.report
    own = arm.id == AS_GIVEN and not arm.group
    verdict = report.verdict
    memory = [max(host.rss_bytes) for trial in runs.trials if (host := trial.readings.host) and host.rss_bytes]
    first = [_first_step_s(trial) for trial in runs.trials]
    alone: dict[str, Any] = {}
    if own and not runs.trials:
        host = report.readings.get("host")
        alone = {
            "first_step_s": report.warm_up.first_step_s,
            "memory_bytes": host.get("rss_bytes_max") if isinstance(host, dict) else None,
        }
    return Figures(
        arm=arm.id,
        accelerator=accelerator_of(runs.side, arm),
        status=arm.status,
        processes=runs.processes,
        steps=sum(len(steps) for steps in runs.steps.values()) or arm.steps or None,
        rate_per_s=_reported(arm, unit),
        step_time_s=arm.step_time_s,
        throughput_per_s=arm.throughput_per_s if runs.counts_samples else None,
        utilization=verdict.accelerator_utilization if own else arm.utilization,
        input_wait_fraction=verdict.input_wait_fraction if own else arm.input_wait_fraction,
        cv=report.oscillation.cv if own else arm.cv,
        padding_efficiency=arm.padding_efficiency,
        first_step_s=float(np.median(first)) if first else alone.get("first_step_s"),
        memory_bytes=float(max(memory)) if memory else alone.get("memory_bytes"),
    )


def _first_step_s(trial: TrialRecord) -> float:
    segment = trial.segment("warm_up") or trial.segment("as_is")
    return segment.columns["wall_ns"][0] / 1e9 if segment else math.nan
