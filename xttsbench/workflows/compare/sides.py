"""Sides of ``xttsbench compare``, and their configurations in pairs: processes, effects, figures side by side.

A side is a run's directory or a report, with a configuration where one is named: ``PATH[:ARM[@ACCELERATOR]]``. Both
paths and ids may hold colons, so the longest beginning that exists is the path.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from xttsbench.analysis.disturbance import gate, without
from xttsbench.analysis.evidence import Sample, unpaired
from xttsbench.analysis.steps import Steps
from xttsbench.comparison.comparable import Measured
from xttsbench.comparison.effects import Effect, decide_pairs, log_ratios, pooled, reported
from xttsbench.comparison.runs import settled, turns_of
from xttsbench.errors import InvalidInputError, NothingMeasuredError, UsageError
from xttsbench.execution.run_directory import PLAN, TRIALS, read_json, record_of
from xttsbench.records.base import Estimate
from xttsbench.records.comparison_result import ComparedPair, Figures, Method
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import Report, Variant
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting.words import configuration
from xttsbench.workflows.reports.diagnose import GROUP as MODES
from xttsbench.workflows.runs import read_run, report_of

REPORT: Final = "report.json"
AS_GIVEN: Final = "as-given"
_MILLISECONDS: Final = re.compile(r"emulated accelerator, ([0-9.]+) ms a step")
_LISTED: Final = 20  # configurations that an error names at most


@dataclass(frozen=True)
class Side:
    """One of the two.

    Attributes:
        given: as the user named it.
        path: the run's directory, or the report alone.
        report: as written, or as the trials of a run without one have it.
        plan: ``None`` for a report alone.
        trials: empty for a report alone.
        configuration, accelerator: what was asked for, ``None`` where nothing was.
    """

    given: str
    path: Path
    report: Report
    plan: RunPlan | None = None
    trials: tuple[TrialRecord, ...] = ()
    arm: str | None = None
    accelerator: str | None = None


def read_side(given: str) -> Side:
    """Read a run or a report.

    Raises:
        UsageError: nothing was named.
        InvalidInputError: it is missing, malformed, of another schema version, or a comparison itself.
    """
    path, selector = _split(given)
    arm, _, accelerator = (part or None for part in selector.partition("@"))
    directory = path if path.is_dir() else path.parent
    whole = path.is_dir() or (path.name == REPORT and (directory / PLAN).exists() and (directory / TRIALS).exists())
    if not whole:
        return Side(given, path, _read_report(path), arm=arm, accelerator=accelerator)
    run = read_run(directory)
    # A run that was killed before its report has everything in its journal.
    report = _read_report(directory / REPORT) if (directory / REPORT).exists() else report_of(run)
    return Side(given, directory, report, run.plan, tuple(run.trials), arm, accelerator)


def _read_report(path: Path) -> Report:
    value = read_json(path, name="a run's directory or a report.json")
    if isinstance(value, dict) and value.get("kind") == "compare":
        raise InvalidInputError(f"{path} is a comparison itself; name the two runs that are to be compared.")
    return record_of(value, Report, path, "a report of a run")


def same_run(a: Side, b: Side) -> bool:
    """Whether the two are one measurement."""
    return a.path.resolve() == b.path.resolve() or (
        a.report.created_utc == b.report.created_utc and a.report.trials == b.report.trials and bool(a.report.trials)
    )


def pair_arms(a: Side, b: Side) -> tuple[tuple[tuple[str, Variant, Variant], ...], tuple[str, ...]]:
    """Pairs of configurations by name, and the names of those without a counterpart.

    Raises:
        UsageError: a configuration does not exist, is ambiguous, or stands beside itself.
        NothingMeasuredError: a side has no configuration at all.
    """
    for side in (a, b):
        if not side.report.arms:
            raise NothingMeasuredError(
                f"{side.given}: nothing was measured in this run ({side.report.verdict.summary.rstrip('.')}); "
                "run it again."
            )
    chosen = any(asked is not None for side in (a, b) for asked in (side.arm, side.accelerator))
    if same_run(a, b) and not chosen:
        raise UsageError(
            f"{a.given} and {b.given} are the same run; name two runs, or two configurations of this one: "
            f"{a.given}:CONFIGURATION, one of {_names(a.report.arms)}."
        )
    if not chosen and "diagnose" not in (a.report.kind, b.report.kind):
        ours, theirs = _candidates(a), _candidates(b)
        if common := [key for key in theirs if key in ours]:
            repeated = len({key[0] for key in common}) < len(common)
            pairs = [(f"{key[0]}@{_short(key[1])}" if repeated else key[0], ours[key], theirs[key]) for key in common]
            alone = [
                f"{key[0]} is in {side.given} only"
                for side, own, other in ((a, ours, theirs), (b, theirs, ours))
                for key in own
                if key not in other
            ]
            return tuple(pairs), tuple(dict.fromkeys(alone))
    # The side that names its configuration decides which accelerator the other's default is of.
    if a.arm is None and b.arm is not None:
        right = _pick(b, None)
        left = _pick(a, accelerator_of(b, right))
    else:
        left = _pick(a, None)
        right = _pick(b, accelerator_of(a, left))
    if same_run(a, b) and (left.id, left.accelerator, left.group) == (right.id, right.accelerator, right.group):
        raise UsageError(
            f"{a.given} and {b.given} are the same configuration of the same run; "
            f"name another of {_names(a.report.arms)}."
        )
    name = left.id if left.id == right.id else f"{left.id} vs {right.id}"
    return ((configuration(name), left, right),), ()


def accelerator_of(side: Side, arm: Variant) -> str:
    """Label of the accelerator that a configuration ran on."""
    return arm.accelerator or str(side.report.accelerator.get("label", "real device"))


def trials_of(side: Side, arm: Variant) -> tuple[TrialRecord, ...]:
    """The configuration's own trials that ended well, in the order of the journal; none for a report alone.

    A configuration of a sweep has trials in several rounds; those of its last one count.
    """
    ok = [trial for trial in side.trials if trial.status == "ok"]
    if arm.id == AS_GIVEN and not arm.group:
        return tuple(trial for trial in ok if trial.spec.kind == "ladder")
    if arm.id.startswith("fix:") and not arm.group:
        return tuple(trial for trial in ok if trial.spec.kind == "fix" and f"fix:{trial.spec.fix}" == arm.id)
    comparison = side.plan.comparison if side.plan else None
    if comparison is None or arm.group == MODES:
        return ()
    times = next((own.step_times_ms for own in comparison.accelerators if own.label == arm.accelerator), None)
    own = [
        trial
        for trial in ok
        if trial.spec.kind == "arm"
        and trial.spec.arm == arm.id
        and trial.spec.emulated_ms == times
        and (trial.spec.group == arm.group or str(trial.spec.group).startswith(f"{arm.group}: "))
    ]
    return tuple(trial for trial in own if trial.spec.group == own[-1].spec.group)


def kwargs_of(side: Side, arm: Variant) -> dict[str, Any] | None:
    """Keyword arguments of the target in that configuration, as far as they are recorded."""
    if side.plan and side.plan.comparison and arm.group:
        planned = next((own.kwargs for own in side.plan.comparison.arms if own.id == arm.id), None)
        if planned is not None:
            return dict(planned)
    base = side.report.target.get("kwargs")
    own = arm.config if arm.group and arm.group != MODES else {}
    return base | own if isinstance(base, dict) else None


def _split(given: str) -> tuple[Path, str]:
    if not given:
        raise UsageError("Nothing was named; name a run's directory or a report.json.")
    ends = [len(given), *(found.start() for found in reversed(list(re.finditer(":", given))))]
    for end in ends:
        if end and os.path.exists(given[:end]):  # os.path: a name with NUL is no file, not an error
            return Path(given[:end]), given[end + 1 :]
    raise InvalidInputError(
        f"{given!r} does not exist; name a run's directory (one under reports/) or a report.json, with a configuration "
        "after a colon where one is meant."
    )


def _candidates(side: Side) -> dict[tuple[str, str], Variant]:
    """Id and accelerator of the configurations of a comparison, its baseline included and the second run of it not."""
    return {
        (arm.id, arm.accelerator): arm
        for arm in side.report.arms
        if arm.group and arm.group != MODES and arm.role != "aa"
    }


def _pick(side: Side, accelerator: str | None) -> Variant:
    """The configuration that was asked for, or the side's own default, if possible on that accelerator."""
    arms = side.report.arms
    if side.arm is None:
        default = [arm for arm in arms if arm.id == AS_GIVEN and not arm.group]
        found = default or [arm for arm in arms if arm.role == "baseline"]
        asked = [arm for arm in found if _is_of(arm, side.accelerator)]
        if side.accelerator is None:
            asked = [arm for arm in found if arm.accelerator == accelerator] or found
        if not asked:
            raise UsageError(
                f"{side.given}: no configuration ran on {side.accelerator!r}; the configurations are {_names(arms)}."
            )
        return asked[0]
    called = configuration(side.arm)
    named = [arm for arm in arms if configuration(arm.id) == called and _is_of(arm, side.accelerator)]
    if not named:  # an id may hold an @ of its own
        named = [arm for arm in arms if arm.id == f"{side.arm}@{side.accelerator}"]
    if not named:
        raise UsageError(f"{side.given}: there is no such configuration; the configurations are {_names(arms)}.")
    if len({arm.accelerator for arm in named}) > 1:
        named = [arm for arm in named if arm.accelerator == accelerator] or named
    if len({arm.accelerator for arm in named}) > 1:
        raise UsageError(f"{side.given}: the configuration ran on several accelerators; say which: {_names(named)}.")
    return named[-1]


def _is_of(arm: Variant, accelerator: str | None) -> bool:
    if accelerator is None:
        return True
    short = _short(arm.accelerator)
    return accelerator in (arm.accelerator, short) or (accelerator == "emulated" and short.startswith("emulated"))


def _short(label: str) -> str:
    """``real`` or ``emulated:10``, as on the command line; a label that is neither as it is."""
    if label.startswith("real device"):
        return "real"
    found = _MILLISECONDS.fullmatch(label)
    return f"emulated:{found[1]}" if found else label


def _names(arms: Sequence[Variant]) -> str:
    ids = [arm.id for arm in arms]
    named = [f"{arm.id}@{_short(arm.accelerator)}" if ids.count(arm.id) > 1 else arm.id for arm in arms]
    names = list(dict.fromkeys(map(configuration, named)))
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


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
        first_step_s=first_s,
        memory_bytes=memory_bytes,
    )


def _first_step_s(trial: TrialRecord) -> float:
    segment = trial.segment("warm_up") or trial.segment("as_is")
    return segment.columns["wall_ns"][0] / 1e9 if segment else math.nan
