"""One fix that might be verified, or several together: what is to be expected of it, what is against it, its rank.

Pure. What is expected comes from the model where that can be believed, and from what the pipeline is made of where not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xttsbench.evidence import Evidence, allowed_cpus
from xttsbench.fixes.cache import CACHE, cache_places, first_pass_batches, over_a_training
from xttsbench.fixes.model import Modelled, infer_cardinality, predict
from xttsbench.fixes.registry import SPECS, candidates, said
from xttsbench.fixes.rounds import WHOLE_S
from xttsbench.fixes.spec import WORTH, Candidate, Setting, Spec
from xttsbench.records.base import Location
from xttsbench.records.fix import Fix, FixSet
from xttsbench.records.pipeline import Pipeline, Prediction, place

_UNRANKED: Final = 10  # rank of what is not tried where nothing is predicted
_MOST: Final = 6  # fixes that are worth verifying at most
_CALLING: Final = ("parallel-map", "parallel-interleave", "calls")  # fixes that call functions in parallel
_LONGEST_PASS_S: Final = 30.0  # a first pass that takes longer leaves no time to see what a cache gives after it
_READ_ONCE: Final = 0.75  # of a script's steps that were seen; in its sampling windows they are not counted


@dataclass(frozen=True)
class Proposal:
    """A fix, or several together, that might be verified."""

    name: str  # the fixes joined by ` + `, in the order in which they are applied
    fixes: tuple[str, ...]  # each by its name
    predicted_speedup: float | None  # of the whole; `None` where nothing is predicted
    what: str  # for a person, in a few words
    places: tuple[Location, ...]  # the user's lines that it changes
    worth: bool  # whether it is worth verifying
    why_not: str | None = None  # why it is not, or cannot be
    first_pass_s: float | None = None  # seconds until a cache is full, which a trial of it has to wait for

    @property
    def fills_long(self) -> bool:
        """Whether it fills a cache that takes long, or nobody knows how long."""
        return CACHE.name in FixSet.of(self.fixes) and (self.first_pass_s or math.inf) > WHOLE_S


@dataclass(frozen=True)
class Option:
    """A proposal with what it is ranked by: a speed-up, expected or guessed, and how simple it is."""

    proposal: Proposal
    score: float
    to_prove: bool = False
    held_bytes: float = 0.0


def ranked(options: Sequence[Option]) -> tuple[Proposal, ...]:
    """Those worth verifying first; nearly equal ones by what has to be proved, their number of fixes, and memory."""

    def key(option: Option) -> tuple[float, bool, int, float]:
        score = round(math.log(max(_over_a_training(option, options), 1e-6)) / math.log(WORTH))
        return (-score, option.to_prove, len(option.proposal.fixes), option.held_bytes)

    worth = sorted((one for one in options if one.proposal.worth), key=key)
    others = sorted((one for one in options if not one.proposal.worth), key=key)
    late = [
        replace(one.proposal, worth=False, why_not=f"{_MOST} others are expected to give more") for one in worth[_MOST:]
    ]
    return (*(one.proposal for one in worth[:_MOST]), *late, *(one.proposal for one in others))


def _over_a_training(option: Option, options: Sequence[Option]) -> float:
    """The score of an option, in which a first pass counts that is too long to be waited for."""
    proposal = option.proposal
    if not proposal.fills_long:
        return option.score
    others = FixSet.of(proposal.fixes).without(CACHE.name)
    # Its other fixes are at work while the cache is filled.
    first = [one.score for one in options if one.proposal.worth and FixSet.of(one.proposal.fixes) <= others]
    return over_a_training(max(first, default=1.0), max(option.score, 1e-6))


def _places(names: Iterable[str], pipeline: Pipeline) -> tuple[Location, ...]:
    """The user's lines that made the named ops, with those of the Python functions that they run, each once."""
    wanted, found = set(names), list[Location]()
    for op in (one for one in pipeline.ops if one.name in wanted):
        own = [one.location for one in pipeline.python_functions if one.token in op.python_functions]
        found += [place(op), *(location.model_copy(update={"op": op.name}) for location in own)]
    return tuple(dict.fromkeys(location for location in found if location.file))


def of_input(
    evidence: Evidence, said_of: Modelled | None, idle: str | None, *, asked: Collection[str]
) -> Iterator[Option]:
    """Every candidate alone, and the combinations that the model likes, or that need one another."""
    if evidence.pipeline is None:
        return
    off: str | None
    if said_of is None:
        padded = evidence.batches.padding_share if evidence.batches is not None else None
        setting = Setting(
            infer_cardinality(evidence), allowed_cpus(evidence), evidence.environment, padding_share=padded
        )
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
        yield option(evidence, fixes, row, off=off, idle=idle, wanted=wanted, asked=asked)


def without_room(evidence: Evidence) -> Iterator[Option]:
    """The place that would spare most, where what it holds has no room."""
    if evidence.pipeline is None:
        return
    for spot in cache_places(infer_cardinality(evidence), evidence.environment):
        if spot.held_bytes is not None and spot.fits is None:
            where = _places((spot.op.name,), evidence.pipeline)
            found = Proposal(spot.name, (spot.name,), None, said(FixSet.of((spot.name,))), where, False, spot.why_not)
            yield Option(found, 1.0)
            return


def forbidden(fixes: Sequence[Candidate], *, asked: Collection[str]) -> str | None:
    """Why the data, or what is not known, forbid a fix that nobody asked for."""
    for fix in fixes:
        spec = _spec(fix)
        if fix.refused is not None:
            return fix.refused
        if spec.asked_for is not None:
            if spec.name not in asked:
                return spec.asked_for
        elif fix.why_not and not spec.tried_unpriced:
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
    """Python functions as ops with parallel calls, which gain from the lock that is free then, or of an open loop."""
    calling = [one for one in known if one.kind in _CALLING]
    opened = [one for one in known if one.kind == "open-generator" and one.edit is not None]
    found = list[tuple[Candidate, ...]]()
    for native in (one for one in known if one.kind == "native"):
        own = set(native.ops)
        found += [(native, other) for other in calling if own & set(other.ops)]
        found += [(other, native) for other in opened if own & set(other.ops)]
    return found


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
    asked: Collection[str] = (),
) -> Option:
    """What is to be expected of some fixes together, and what is against them.

    Args:
        evidence: of the run.
        fixes: in the order in which they are applied.
        row: what the model says of them.
        off: why it is not believed, where it is not.
        idle: why no fix of the input can help, where that is so.
        wanted: fixes that are part of a combination.
        asked: kinds of fix that were asked for.
    """
    pipeline, name = evidence.pipeline, str(FixSet.of(fix.name for fix in fixes))
    raw = row.speedup if row is not None else None
    speedup = raw if off is None else None
    pass_s = first_pass_s(evidence, fixes)
    if any(_spec(fix).helps_step for fix in fixes):
        idle = None
    why_not = (
        idle
        or _cannot(evidence, fixes)
        or forbidden(fixes, asked=asked)
        or takes_long(evidence, pass_s)
        or _measured_worse(evidence, name)
        or _gives_little(fixes, speedup, raw, wanted)
    )
    proposal = Proposal(
        name=name,
        fixes=tuple(fix.name for fix in fixes),
        predicted_speedup=speedup,
        what=said(FixSet.of(fix.name for fix in fixes)),
        places=_places((op for fix in fixes for op in fix.ops), pipeline) if pipeline is not None else (),
        worth=why_not is None,
        why_not=why_not,
        first_pass_s=pass_s,
    )
    to_prove, _, held_bytes = simplicity(fixes)
    return Option(proposal, speedup or max(raw or 0.0, _guess(fixes)), to_prove, held_bytes)


def simplicity(fixes: Sequence[Candidate]) -> tuple[bool, int, float]:
    """The simpler of two that give the same is the smaller: nothing to prove, few fixes, little memory."""
    return any(fix.proof for fix in fixes), len(fixes), sum(fix.held_bytes for fix in fixes)


def _guess(fixes: Sequence[Candidate]) -> float:
    """What a fix of which nothing is predicted is ranked by: a little above the bar, by kind."""
    ranks = [rank for fix in fixes if (rank := _spec(fix).rank) is not None]
    return WORTH * (1.2 - 0.01 * min(ranks, default=_UNRANKED)) + 0.1 * (len(fixes) - 1)


def _cannot(evidence: Evidence, fixes: Sequence[Candidate]) -> str | None:
    """Why there is nothing to rewrite."""
    unread = evidence.pipeline.unserialisable if evidence.pipeline is not None else None
    if not unread or not any(_spec(fix).needs_graph for fix in fixes):
        return None
    return f"its graph cannot be rewritten: {unread}"


def _measured_worse(evidence: Evidence, name: str) -> str | None:
    fix = evidence.fixes.get(name)
    if fix is None or fix.speedup is None or fix.speedup.high >= 1 / WORTH:
        return None
    return f"measured in this run: {fix.speedup.estimate:.2f} times as fast"


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
