"""Which fixes are worth verifying, the most promising first, and why the others are not.

Pure. Nothing here is a finding: whether a fix helps, and leaves the data alone, is for the trials to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from xttsbench.analysis.steps import measured
from xttsbench.evidence.evidence import Evidence
from xttsbench.fixes.model import Modelled, modelled, predict, together
from xttsbench.fixes.predictions import COSTS_NOTHING
from xttsbench.fixes.words import said
from xttsbench.rules.input_proposals import (
    first_pass_s,
    forbidden,
    of_input,
    option,
    simplicity,
    takes_long,
    without_room,
)
from xttsbench.rules.proposal import WORTH, Option, Proposal, ranked
from xttsbench.rules.step_proposals import StepFix, faster_step, step_fixes

__all__ = ["Proposal", "model_of", "proposals"]

_WAITS: Final = 0.05
"""Share of the step in which it waits for data, from which its input is worth changing."""


def proposals(evidence: Evidence, *, any_order: bool = False) -> tuple[Proposal, ...]:
    """Fixes, alone and together, those that are worth verifying first, of these the most promising first.

    Args:
        evidence: as :func:`xttsbench.rules.gather.gather` makes it.
        any_order: whether fixes that yield the same elements in another order are asked for.
    """
    said_of = model_of(evidence, any_order=any_order)
    believed = said_of.model if said_of is not None and said_of.off is None else None
    idle = _does_not_wait(evidence)
    options = [*of_input(evidence, said_of, idle, any_order=any_order), *without_room(evidence)]
    steps = [_of_step(evidence, fix) for fix in step_fixes(evidence, believed)]
    both = _of_both(evidence, said_of, options, steps, any_order=any_order)
    return ranked([*options, *steps, *both])


def model_of(evidence: Evidence, *, any_order: bool = False) -> Modelled | None:
    """The model that proposals are made from; ``None`` where nothing was priced."""
    return modelled(evidence, wall_s=evidence.wall_s, alone_s=_alone_s(evidence), any_order=any_order)


def _does_not_wait(evidence: Evidence) -> str | None:
    """Why no fix of the input can help; ``None`` where one may."""
    if not evidence.has_step and not evidence.emulated:
        return None
    share = evidence.share("input")
    if evidence.limits("input") or evidence.limits("contention") or share >= _WAITS or not evidence.parts:
        return None
    limits = "" if evidence.bottleneck == "inconclusive" else f", and what limits it is {evidence.bottleneck}"
    return f"the step waits for data {share:.1%} of its time{limits}"


def _alone_s(evidence: Evidence) -> float | None:
    """Mean step alone: as the predictions were given it, or as the trials of the main rung measured it."""
    ceiling = next((row for row in evidence.predictions if row.name == COSTS_NOTHING), None)
    if ceiling is not None and ceiling.measured_per_s is not None:
        return 1 / ceiling.measured_per_s.estimate
    alone = [steps for trial in evidence.ladder if (steps := measured(trial, "step_only")) is not None]
    times_s = [float(steps.working_s.mean()) for steps in alone if len(steps)]
    return sum(times_s) / len(times_s) if times_s else None


def _of_step(evidence: Evidence, fix: StepFix) -> Option:
    why_not = fix.why_not
    if why_not is None and fix.speedup is not None and fix.speedup < WORTH:
        why_not = f"predicted {fix.speedup:.2f} times: less than 5 %"
    ceiling = evidence.max_speedups.get("dispatch")
    where = (fix.place,) if fix.place.file else ()
    return Option(
        Proposal(fix.name, (fix.name,), fix.speedup, said((fix.name,)), where, why_not is None, why_not),
        fix.speedup or (ceiling.estimate if ceiling is not None else WORTH),
    )


def _of_both(
    evidence: Evidence,
    said_of: Modelled | None,
    inputs: Sequence[Option],
    steps: Sequence[Option],
    *,
    any_order: bool,
) -> Iterator[Option]:
    """The best fix of the step with the input's fix that is best beside it, where together they give more."""
    step = max((one for one in steps if one.proposal.worth), key=lambda one: one.score, default=None)
    if step is None:
        return
    usable = [one for one in inputs if one.proposal.worth]
    ratio = _step_ratio(evidence, step.proposal.name)
    if said_of is None or said_of.off is not None or ratio is None:
        best = max(usable, key=lambda one: one.score, default=None)
        if best is not None and step.proposal.predicted_speedup is not None and evidence.limits("input"):
            yield _joined(best, step, None, best.score * step.score)
        return
    faster = faster_step(said_of.model, ratio)
    before = predict(faster, ()).speedup
    known = [one for one in said_of.known if one.edit is not None and forbidden((one,), any_order=any_order) is None]
    known = [one for one in known if takes_long(first_pass_s(evidence, (one,))) is None]
    rows = [predict(faster, (one,)) for one in known]
    rows += together(faster, known, rows, any_order=any_order)
    if not rows or not before:
        return
    by_name = {one.name: one for one in known}
    most = max(row.speedup or 0.0 for row in rows)
    near = [(row, [by_name[fix] for fix in row.fixes]) for row in rows if (row.speedup or 0.0) * WORTH >= most]
    row, fixes = min(near, key=lambda pair: simplicity(pair[1]))
    # What the step's fix gives is told more surely by its own measurement than by the model.
    both = step.score * (row.speedup or 0.0) / before
    if both >= WORTH * max([step.score, *(one.score for one in usable)]):
        yield _joined(option(evidence, fixes, row), step, both, both)


def _step_ratio(evidence: Evidence, name: str) -> float | None:
    mode = evidence.modes.get(name.partition(":")[2])
    return mode.speedup.estimate if mode is not None and mode.speedup is not None else None


def _joined(one: Option, step: Option, speedup: float | None, score: float) -> Option:
    first, second = one.proposal, step.proposal
    both = replace(
        first,
        name=f"{first.name} + {second.name}",
        fixes=(*first.fixes, *second.fixes),
        predicted_speedup=speedup,
        what=f"{first.what}, {second.what}",
        places=(*first.places, *second.places),
        worth=True,
        why_not=None,
    )
    return Option(both, score, one.to_prove, one.held_bytes)
