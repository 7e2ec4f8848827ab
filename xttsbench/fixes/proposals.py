"""Fixes worth verifying, alone and together, the most promising first, and the reasons against the others.

Pure. Nothing here is a finding: whether a fix helps, and leaves the data alone, is for the trials to say. What is
expected comes from the model where that can be believed, and from what the pipeline is made of where not. What a mode
gives the step alone was measured; what that gives the whole is the model's, since a faster step waits longer for the
same input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from xttsbench.evidence import Evidence, allowed_cpus
from xttsbench.fixes.cache import cache_places, first_pass_batches
from xttsbench.fixes.dataset import DATASET, WORTH_S, expected
from xttsbench.fixes.model import (
    Modelled,
    combine,
    infer_cardinality,
    modelled,
    predict,
    with_faster_step,
    workers_asked,
)
from xttsbench.fixes.predictions import step_alone_s
from xttsbench.fixes.proposal import Proposal, ranked
from xttsbench.fixes.registry import SPECS, candidates, said
from xttsbench.fixes.spec import WORTH, Candidate, Setting, Spec
from xttsbench.fixes.step_proposals import of_step, step_ratio
from xttsbench.records.base import Location
from xttsbench.records.fix import Fix, FixSet
from xttsbench.records.pipeline import Pipeline, Prediction, place

_UNRANKED: Final = 10  # rank of what is not tried where nothing is predicted
_CALLING: Final = ("parallel-map", "parallel-interleave")  # fixes that call functions in parallel
_LONGEST_PASS_S: Final = 30.0  # a first pass that takes longer leaves no time to see what a cache gives after it
_READ_ONCE: Final = 0.75  # of a script's steps that were seen; in its sampling windows they are not counted


def _places(names: Iterable[str], pipeline: Pipeline) -> tuple[Location, ...]:
    """The user's lines that made the named ops, with those of the Python functions that they run, each once."""
    wanted, found = set(names), list[Location]()
    for op in (one for one in pipeline.ops if one.name in wanted):
        own = [one.location for one in pipeline.python_functions if one.token in op.python_functions]
        found += [place(op), *(location.model_copy(update={"op": op.name}) for location in own)]
    return tuple(dict.fromkeys(location for location in found if location.file))


def of_input(evidence: Evidence, said_of: Modelled | None, idle: str | None) -> Iterator[Proposal]:
    """Every candidate alone, and the combinations that the model likes, or that need one another."""
    if evidence.pipeline is None:
        return
    off: str | None
    if said_of is None:
        workers = workers_asked(evidence)
        setting = Setting(infer_cardinality(evidence), allowed_cpus(evidence), evidence.environment, workers=workers)
        known, off = candidates(setting), "no cost of it is known"
        groups = [*((one,) for one in known), *_needed_together(known)]
        rows: list[Prediction | None] = [None] * len(groups)
    else:
        by_name, off = {one.name: one for one in said_of.known}, said_of.off
        groups = [(one,) for one in said_of.known]
        groups += [tuple(by_name[fix] for fix in row.fixes) for row in said_of.combined]
        rows = [*said_of.rows, *said_of.combined]
        if off is not None:
            more = _needed_together(said_of.known)
        else:  # the model says nothing of what was not priced
            more = [*_native_with(said_of.known), *_generators_elsewhere(said_of.known)]
        more = [fixes for fixes in more if fixes not in groups]
        groups += more
        rows += [predict(said_of.model, fixes) for fixes in more]
    wanted = {fix.name for fixes in groups if len(fixes) > 1 for fix in fixes}
    for fixes, row in zip(groups, rows, strict=True):
        yield option(evidence, fixes, row, off=off, idle=idle, wanted=wanted)


def of_own_batches(evidence: Evidence, idle: str | None) -> Iterator[Proposal]:
    """A dataset around the batches of a script's loop that has none."""
    own = evidence.script.own_batches if evidence.script is not None else None
    if own is None:
        return
    wait_s, name = evidence.parts.get("input", 0.0), DATASET.name
    sooner = f"a batch takes {1e3 * wait_s:.1f} ms: it is made sooner than a dataset hands it over"
    ahead = "another thread or process makes the batches ahead already" if own.elsewhere else None
    why_not = idle or ahead or (sooner if wait_s < WORTH_S else None)
    speedup = expected(evidence.wall_s, wait_s) if evidence.wall_s else None
    at = Location(file=own.place.file, line=own.place.line)
    score = speedup or WORTH
    yield Proposal(name, (name,), speedup, DATASET.words, (at,), why_not is None, why_not, score=score)


def without_room(evidence: Evidence) -> Iterator[Proposal]:
    """The place that would spare most, where what it holds has no room."""
    if evidence.pipeline is None:
        return
    for spot in cache_places(infer_cardinality(evidence), evidence.environment):
        if spot.held_bytes is not None and not spot.fits:
            where = _places((spot.op.name,), evidence.pipeline)
            yield Proposal(spot.name, (spot.name,), None, said(FixSet.of((spot.name,))), where, False, spot.why_not)
            return


def forbidden(fixes: Sequence[Candidate]) -> str | None:
    """Why the data, or what is not known, forbid a fix."""
    for fix in fixes:
        if fix.refused is not None:
            return fix.refused
        if fix.why_not and not _spec(fix).tried_unpriced:
            return fix.why_not
    return None


def _spec(fix: Candidate) -> Spec:
    return SPECS[Fix.parse(fix.name).kind]


def takes_long(evidence: Evidence, pass_s: float | None) -> str | None:
    """Why a cache gives nothing, or cannot be verified, by the seconds until it is full; ``None`` where it can.

    It is verified on a part of the data where they are many, but not of a script, which says itself what it reads.
    """
    script = evidence.script
    if script is None or pass_s is None:
        return None
    if script.ended in ("returned", "exited") and evidence.wall_s:
        steps = script.steps_seen + script.lost_steps
        if pass_s > _READ_ONCE * steps * evidence.wall_s:
            return f"the script ends, after {steps} steps, before it reads the same data a second time"
    if pass_s <= _LONGEST_PASS_S:
        return None
    return f"its first pass takes {pass_s:.0f} s, too long for a trial to see what it gives after that"


def _needed_together(known: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
    """Pairs of which one gives nothing without the other: threads and calls that wait in them, processes and calls."""
    calling = [one for one in known if one.kind in (*_CALLING, "open-generator")]
    needed = [one for one in known if one.kind in ("thread-pool", "processes")]
    found = [(one, other) for one in calling for other in needed if set(one.ops) & set(other.ops)]
    return [*_native_with(known), *found]


def _native_with(known: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
    """Python functions as ops with parallel calls, which gain from the lock that is free then."""
    calling = [one for one in known if one.kind in _CALLING]
    native = [one for one in known if one.kind == "native"]
    return [(one, other) for one in native for other in calling if set(one.ops) & set(other.ops)]


def _generators_elsewhere(known: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
    """Opened generators with processes for their bodies, which compete for more than the lock in one."""
    by_kind = {one.kind: one for one in known}
    opened, moved = by_kind.get("open-generator"), by_kind.get("processes")
    return [(opened, moved)] if opened is not None and moved is not None and opened.edit is not None else []


def option(
    evidence: Evidence,
    fixes: Sequence[Candidate],
    row: Prediction | None,
    *,
    off: str | None = None,
    idle: str | None = None,
    wanted: Collection[str] = (),
) -> Proposal:
    """Proposal of some fixes together: their expected speed-up, and the reasons against them.

    Args:
        evidence: of the run.
        fixes: in the order in which they are applied.
        row: what the model says of them.
        off: why it is not believed, where it is not.
        idle: why no fix of the input can help, where that is so.
        wanted: fixes that are part of a combination.
    """
    pipeline, names = evidence.pipeline, FixSet.of(fix.name for fix in fixes)
    raw = row.speedup if row is not None else None
    speedup = evidence.within_losses(raw) if off is None else None
    pass_s = first_pass_s(evidence, fixes)
    cannot, asked = _cannot(evidence, fixes) or forbidden(fixes), {fix.name for fix in fixes} <= {*evidence.asked}
    little = takes_long(evidence, pass_s) or _gives_little(fixes, speedup, raw, wanted)
    why_not = cannot if asked else idle or cannot or little
    hazard = next((fix.hazard for fix in fixes if fix.hazard), None) if why_not is None else None
    to_prove, _, held_bytes = simplicity(fixes)
    return Proposal(
        name=str(names),
        fixes=tuple(fix.name for fix in fixes),
        predicted_speedup=speedup,
        what=said(names),
        places=_places((op for fix in fixes for op in fix.ops), pipeline) if pipeline is not None else (),
        worth=why_not is None and hazard is None,
        why_not=why_not,
        hazard=hazard,
        first_pass_s=pass_s,
        score=(speedup and raw) or max(raw or 0.0, _guess(fixes)),
        to_prove=to_prove,
        held_bytes=held_bytes,
    )


def simplicity(fixes: Sequence[Candidate]) -> tuple[bool, int, float]:
    """The simpler of two that give the same is the smaller: nothing to prove, few fixes, little memory."""
    return any(fix.proof for fix in fixes), len(fixes), sum(fix.held_bytes for fix in fixes)


def _guess(fixes: Sequence[Candidate]) -> float:
    """Rank of fixes without a prediction: a speed-up a little above the bar, by kind."""
    ranks = [rank for fix in fixes if (rank := _spec(fix).rank) is not None]
    return WORTH * (1.2 - 0.01 * min(ranks, default=_UNRANKED)) + 0.1 * (len(fixes) - 1)


def _cannot(evidence: Evidence, fixes: Sequence[Candidate]) -> str | None:
    """Why there is nothing to rewrite."""
    unread = evidence.pipeline.unserialisable if evidence.pipeline is not None else None
    if not unread or not any(_spec(fix).needs_graph for fix in fixes):
        return None
    return f"its graph cannot be rewritten: {unread}"


def _gives_little(
    fixes: Sequence[Candidate], speedup: float | None, raw: float | None, wanted: Collection[str]
) -> str | None:
    """Why too little is to be expected; with a prediction by that, without one by what kind of fix it is."""
    if len(fixes) == 1 and not fixes[0].alone and (speedup is None or speedup < WORTH):
        return "alone it gives nothing" + (", see the combination" if fixes[0].name in wanted else "")
    if speedup is not None:
        return None if speedup >= WORTH else f"estimated {speedup:.2f} times as fast: less than 5 %"
    if (raw or 0.0) >= WORTH or all(_spec(fix).rank is not None for fix in fixes):
        return None
    return "nothing says that it helps"


def first_pass_s(evidence: Evidence, fixes: Sequence[Candidate]) -> float | None:
    """Seconds until a cache among some fixes is full; ``None`` where there is none, or that is not known."""
    pipeline, step_s = infer_cardinality(evidence), evidence.wall_s
    cached = next((fix for fix in fixes if fix.kind == "cache"), None)
    op = next((op for op in pipeline.ops if cached is not None and op.name in cached.ops), None)
    batches = first_pass_batches(op, pipeline) if op is not None else None
    return batches * step_s if batches is not None and step_s else None


_WAITS: Final = 0.05  # share of the step in which it waits for data, from which its input is worth changing


def proposals(evidence: Evidence) -> tuple[Proposal, ...]:
    """Fixes, alone and together, those that are worth verifying first, of these the most promising first."""
    said_of = modelled(evidence, wall_s=evidence.wall_s, alone_s=step_alone_s(evidence))
    believed = said_of.model if said_of is not None and said_of.off is None else None
    idle = _does_not_wait(evidence)
    options = [
        *of_input(evidence, said_of, idle),
        *of_own_batches(evidence, idle),
        *without_room(evidence),
    ]
    steps = list(of_step(evidence, believed))
    both = _of_both(evidence, said_of, options, steps)
    every = [*options, *steps, *both]
    missing = [name for name in evidence.asked if name not in {one.name for one in every}]
    none = "it was asked for, and would change nothing here"
    every += [Proposal(name, (name,), None, said(FixSet.of((name,))), (), False, none) for name in missing]
    return ranked(every)


def _does_not_wait(evidence: Evidence) -> str | None:
    """Why no fix of the input can help; ``None`` where one may."""
    if not evidence.has_step and not evidence.emulated:
        return None
    share = evidence.share("input")
    if evidence.limits("input") or evidence.limits("contention") or share >= _WAITS or not evidence.parts:
        return None
    limits = "" if evidence.bottleneck == "inconclusive" else f", and what limits it is {evidence.bottleneck}"
    return f"the step waits for data {share:.1%} of its time{limits}"


def _of_both(
    evidence: Evidence,
    said_of: Modelled | None,
    inputs: Sequence[Proposal],
    steps: Sequence[Proposal],
) -> Iterator[Proposal]:
    """The best fix of the step with the input's fix that is best beside it, where together they give more.

    A faster step alone gives nothing where the input sets the pace, and shows once the input is mended too.
    """
    ratios = {one.name: step_ratio(evidence, one.name) for one in steps}
    faster_steps = [one for one in steps if one.worth or (ratios[one.name] or 0.0) >= WORTH]
    step = max(faster_steps, key=lambda one: (one.score, ratios[one.name] or 0.0), default=None)
    if step is None:
        return
    usable = [one for one in inputs if one.worth]
    ratio = ratios[step.name]
    if said_of is None or said_of.off is not None or ratio is None:
        best = max(usable, key=lambda one: one.score, default=None)
        if best is not None and step.predicted_speedup is not None and evidence.limits("input"):
            yield _joined(best, step, None, best.score * max(step.score, WORTH))
        return
    faster = with_faster_step(said_of.model, ratio)
    before = predict(faster, ()).speedup
    known = [one for one in said_of.known if one.edit is not None and forbidden((one,)) is None]
    known = [one for one in known if takes_long(evidence, first_pass_s(evidence, (one,))) is None]
    rows = [predict(faster, (one,)) for one in known]
    rows += combine(faster, known, rows)
    if not rows or not before:
        return
    found = [_joined_best(evidence, rows, known, step, before, ratio)]
    without = [row for row in rows if "cache" not in FixSet.of(row.fixes)]
    if "cache" in FixSet.of(found[0].fixes) and without:  # which long data may be too long to fill
        found.append(_joined_best(evidence, without, known, step, before, ratio))
    least = WORTH * max([step.score, *(one.score for one in usable)])
    input_alone = max((one.predicted_speedup or 0.0 for one in usable), default=0.0)
    yield from (one for one in found if one.score >= least and (one.predicted_speedup or 0.0) > input_alone)


def _joined_best(
    evidence: Evidence,
    rows: Sequence[Prediction],
    known: Sequence[Candidate],
    step: Proposal,
    before: float,
    ratio: float,
) -> Proposal:
    """The simplest of the best of some predictions, with the step's fix; ``before`` is that of the step's alone.

    With all that the input costs removed as well, the step is faster by no more than its own ``ratio``.
    """
    by_name = {one.name: one for one in known}
    most = max(row.speedup or 0.0 for row in rows)
    near = [(row, [by_name[fix] for fix in row.fixes]) for row in rows if (row.speedup or 0.0) * WORTH >= most]
    row, fixes = min(near, key=lambda pair: simplicity(pair[1]))
    # What the step's fix gives is told more surely by its own measurement than by the model.
    both = step.score * (row.speedup or 0.0) / before
    possible = min(both, ratio * (evidence.within_losses(both) or both))
    return _joined(option(evidence, fixes, row), step, possible, both)


def _joined(one: Proposal, step: Proposal, speedup: float | None, score: float) -> Proposal:
    fixes = (*one.fixes, *step.fixes)
    return replace(
        one,
        name=str(FixSet.of(fixes)),
        fixes=fixes,
        predicted_speedup=speedup,
        what=f"{one.what}, {step.what}",
        places=(*one.places, *step.places),
        worth=True,
        why_not=None,
        score=score,
    )
