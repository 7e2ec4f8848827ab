"""Sides of ``xttsbench compare``, and their configurations in pairs: processes, effects, figures side by side.

A side is a run's directory or a report, with a configuration where one is named: ``PATH[:ARM[@ACCELERATOR]]``. Both
paths and ids may hold colons, so the longest beginning that exists is the path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import InvalidInputError, NothingMeasuredError, UsageError
from xttsbench.execution.journal import TRIALS
from xttsbench.execution.run_directory import PLAN, read_json, record_of
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import Report, Variant
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting.words import configuration
from xttsbench.workflows.reports.modes import GROUP as MODES
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
