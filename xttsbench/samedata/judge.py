"""Whether a fixed pipeline yields the data of the original: fingerprints of runs in, a judgement out.

What is compared depends on what the original does by itself. Two runs with one seed and one with another tell: what is
the same in all of them must be the same in the fixed one, at its place where the place is the same; what only moves
must be there as often, and go on moving; what is drawn at random is compared in distribution, and must be drawn anew as
often as before. An order that TensorFlow does not promise may change. Where too little was seen to tell, the answer is
``None``, never ``True``, and so it is where the code itself gives a reason for doubt; ``False`` is for other data that
were seen.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from xttsbench.records.fix import How, Semantics
from xttsbench.records.pipeline import Contents, Elements
from xttsbench.samedata.epochs import cut_into_rounds, round_length, same_bags
from xttsbench.samedata.runs import InOrder, Run, in_order, rounded_anywhere, rounded_in_place, runs_of
from xttsbench.samedata.varying import Case, all_bags, judge_moved, judge_random, judgement, lost_components, many

_SHAPE: Final = re.compile(
    r"shape=\((?P<plain>[^()]*)\)|TensorShape\(\[(?P<listed>[^\]]*)\]\)|(?P<unknown>shape=<unknown>|shape=None|TensorShape\(None\))"
)
_NAME: Final = re.compile(r",?\s*name=(?:None|'[^']*'|\"[^\"]*\")")
_SPACE: Final = re.compile(r"\s+")
_HOLE: Final = "<shape>"

Shape = tuple[int | None, ...] | None
"""``None`` where even the rank is unknown; a dimension that may vary is ``None``."""


def spec_difference(original: str, fixed: str) -> str | None:
    """Difference of the elements' specs as a sentence; ``None`` where they are compatible."""
    structure, shapes = _taken_apart(original)
    other_structure, other_shapes = _taken_apart(fixed)
    if structure != other_structure:
        return f"the elements are of another kind: {_short(original)} before, {_short(fixed)} after"
    for before, after in zip(shapes, other_shapes, strict=True):
        if not _compatible(before, after):
            return f"the elements have another shape: {before} before, {after} after"
    return None


def _taken_apart(spec: str) -> tuple[str, list[Shape]]:
    """The spec with holes where shapes were, and the shapes; names of tensors mean nothing."""
    shapes: list[Shape] = []

    def hole(found: re.Match[str]) -> str:
        shapes.append(_shape(found))
        return _HOLE

    return _SPACE.sub("", _NAME.sub("", _SHAPE.sub(hole, spec))), shapes


def _shape(found: re.Match[str]) -> Shape:
    if found["unknown"]:
        return None
    text = found["plain"] if found["plain"] is not None else found["listed"]
    words = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(int(word) if word.isdigit() else None for word in words)


def _compatible(before: Shape, after: Shape) -> bool:
    if before is None or after is None:
        return True
    pairs = zip(before, after, strict=False)
    return len(before) == len(after) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _short(spec: str, most: int = 160) -> str:
    return spec if len(spec) <= most else f"{spec[: most - 3]}..."


_NOTHING = InOrder(0, 0, None)


def judge(
    originals: Sequence[Elements], fixed: Elements, *, allow_other_order: bool = False, shared_out: bool = False
) -> Semantics:
    """Judge whether a fix leaves the data alone; ``elements``, ``epochs`` and ``rows`` count what was compared.

    Args:
        originals: runs of the original: two with the same seed and one with another, in this order. With one alone,
            what differs from it can only be called different where its length or its spec does.
        fixed: a run with the fix, with the seed of the first original.
        allow_other_order: whether a fix may give up an order that the original promises, because that was asked for.
        shared_out: whether several workers may yield the samples: in another order, with a last batch each.

    Raises:
        ValueError: there is no original.
    """
    if not originals:
        raise ValueError("a fix can only be judged against a run of the original; got none")
    allow_other_order = allow_other_order or shared_out
    found = _judgement(originals, fixed, allow_other_order=allow_other_order, shared_out=shared_out)
    doubts = fixed.objections
    if all(run.ordered for run in originals) and not fixed.ordered and not allow_other_order:
        doubts += ("the fixed pipeline gives up the order of the samples, which the original promises",)
    if doubts and found.equivalent is not False:
        found = judgement(None, "unknown", "; ".join(doubts), found.elements, found.epochs)
    elif doubts:
        reason = judgement(False, "different", "; ".join(doubts)).sentence
        found = found.model_copy(update={"sentence": f"{reason} Seen: {found.sentence}"})
    # Distinct ones, since what is endless comes round within a pass.
    passes = ({row.hashes for element in epoch.elements for row in element.rows} for epoch in fixed.epochs)
    seen = max(map(len, passes), default=0)
    of = originals[0].rows_of
    return found.model_copy(update={"rows": seen if of is None else min(seen, of), "rows_of": of})


def _judgement(
    originals: Sequence[Elements], fixed: Elements, *, allow_other_order: bool, shared_out: bool
) -> Semantics:
    if difference := spec_difference(originals[0].spec, fixed.spec):
        return judgement(False, "different", difference)
    if len({run.source_limit for run in (*originals, fixed)}) > 1:
        why = "the sources of the runs were cut to different lengths: they cannot be compared"
        return judgement(None, "unknown", why)
    if len({run.last_batch_kept for run in (*originals, fixed)}) > 1:
        why = "only one of the two drops a last, smaller batch behind its shuffle: they cannot be compared"
        return judgement(None, "unknown", why)
    try:
        case = replace(_case(originals, fixed, allow_other_order=allow_other_order), shared_out=shared_out)
    except ValueError as error:
        return judgement(False, "different", str(error))
    return _unless_lost(_too_little(case) or _judged(case), lost_components((*originals, fixed)))


def _case(originals: Sequence[Elements], fixed: Elements, *, allow_other_order: bool) -> Case:
    *before, after = runs_of((*originals, fixed))
    lost = lost_components((*originals, fixed))
    paths = next((run.components for run in (*originals, fixed) if run.components), ())
    width = after.codes.shape[1]
    named = len(paths)
    paths += ("",) * (width - len(paths))
    promised = all(run.ordered for run in originals)
    return Case(
        originals=tuple(before),
        fixed=after,
        columns=tuple(c for c in range(width) if c >= named or (paths[c] or "element") not in lost),
        names=tuple(path or f"component {number}" for number, path in enumerate(paths[:width], start=1)),
        free=not promised or (allow_other_order and not fixed.ordered),
        gives_up=promised and not fixed.ordered,
        shuffles=any(run.random_ops for run in originals),
        caches="cache" in (fixed.fix or "cache"),  # one without a name may be anything
        compared=_NOTHING,
    )


def _too_little(case: Case) -> Semantics | None:
    """Judgement where one side yielded no element; ``None`` where both yielded some."""
    theirs = any(part.sizes for part in case.fixed.passes)
    ours = any(part.sizes for run in case.originals for part in run.passes)
    ended = any(part.ended for part in case.fixed.passes)
    all_end = all(any(part.ended for part in run.passes) for run in case.originals)
    if not theirs and not ended:
        return case.unknown("the run of the fixed pipeline was cut off before its first element")
    if not ours and not all_end:
        return case.unknown("the runs of the original were cut off before their first element")
    if theirs and ours:
        return None
    if not theirs and not ours:
        return judgement(True, "identical", "both pipelines end without an element", 0, len(case.fixed.passes))
    return case.different("only the original yields elements" if ours else "only the fixed pipeline yields elements")


def _judged(case: Case) -> Semantics:
    first = case.originals[0]
    runs = (first, *(rounded_in_place(first, run).run for run in case.originals[1:]))
    varies = any(in_order(first, run, case.columns).difference is not None for run in runs[1:])
    for run in runs:
        near = rounded_in_place(run, case.fixed)
        compared = in_order(run, near.run, case.columns)
        if compared.difference is None:
            same = replace(case, compared=compared)
            return _same(same, rounded=near.any_in(case.columns), varies=varies)
    near = rounded_in_place(first, case.fixed)
    case = replace(case, compared=in_order(first, near.run, case.columns))
    if len(runs) < 2:
        return _against_one(case, near.run)
    if not varies and not case.free:
        return _other(case, near.run)
    return _varying(case, runs, near.run, rounded=near.any_in(case.columns))


def _same(case: Case, *, rounded: bool, varies: bool) -> Semantics:
    compared = case.compared
    if not compared.elements:
        return case.unknown("nothing was seen of the same epoch in both")
    if varies and case.caches and compared.epochs < 2 and round_length(case.originals, case.columns) is None:
        return case.unknown(
            "the original varies at random, and only one epoch was seen, so that frozen values would not have shown"
        )
    what = f"{many(compared.elements, 'element')} of {many(compared.epochs, 'epoch')} are the same"
    how: How = "rounding" if rounded else "identical"
    what += ", but for the rounding of floats" if rounded else ", bit for bit"
    return judgement(True, how, what, compared.elements, compared.epochs)


def _against_one(case: Case, fixed: Run) -> Semantics:
    """Judgement against a single run of the original, whose own variation is unknown.

    Only another length counts against the fix.
    """
    found = case.compared.difference
    if found is not None and found.kind in ("missing", "extra"):
        return case.different(f"the data differ: {case.where(found)}")
    if case.free and same_bags(case.originals[0], fixed, case.columns).same:
        return judge_moved(case, case.originals, fixed, all_bags(case.originals, case.columns), rounded=False)
    return case.unknown(f"the data differ ({case.where(found)}), and how the original varies by itself is not known")


def _other(case: Case, fixed: Run) -> Semantics:
    bags = same_bags(case.originals[0], rounded_anywhere(case.originals, fixed).run, case.columns)
    found, where = case.compared.difference, case.where(case.compared.difference)
    if bags.same and found is not None and found.kind == "value":
        return case.different(f"the same samples come in another order, which this pipeline promises: first at {where}")
    if bags.same and found is not None and found.kind == "size":
        return case.different(f"the same samples are cut into other batches: first at {where}")
    reason = f" ({bags.sentence})" if bags.same is False else ""
    return case.different(f"the data differ: first at {where}{reason}")


def _varying(case: Case, runs: Sequence[Run], fixed: Run, *, rounded: bool) -> Semantics:
    runs = (runs[0], *(rounded_anywhere(runs[:1], run).run for run in runs[1:]))
    near = rounded_anywhere(runs, fixed)
    rounded = rounded or near.any_in(case.columns)
    length = None if case.free else round_length(runs, case.columns)
    if length is not None and all(len(run.passes) == 1 and not run.passes[0].ended for run in (*runs, fixed)):
        rounds, now = [cut_into_rounds(run, length) for run in runs], cut_into_rounds(near.run, length)
        return judge_moved(case, rounds, now, all_bags(rounds, case.columns), rounded=rounded)
    known = all_bags(runs, case.columns)
    if known.same is not False:
        return judge_moved(case, runs, near.run, known, rounded=rounded)
    return judge_random(case, runs, near.run)


def _unless_lost(found: Semantics, lost: dict[str, str]) -> Semantics:
    """Components that could not be read leave a doubt, unless all else differs."""
    if not found.equivalent or not lost:
        return found
    reasons = "; ".join(f"{path or 'element'}: {why}" for path, why in sorted(lost.items()))
    sentence = f"what could be read is the same, but not all could be read ({reasons})"
    return judgement(None, "unknown", sentence, found.elements, found.epochs)


_FORM: Final = 32  # Bits of a digest below which dtypes and shapes are
Digests = dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Timed:
    """Comparison of the batches of timed runs.

    Attributes:
        same: whether those of a fix are the original's; ``None`` where they cannot be compared.
        compared: batches that both have.
        of: batches that the fix was timed on; the original may have been timed on fewer.
        sentence: where they differ first, or why they cannot be compared.
    """

    same: bool | None
    compared: int = 0
    of: int = 0
    sentence: str = ""


Timings = Mapping[Any, Sequence[Contents]]
"""By block, whose seeds are its own."""


def compare_timed(originals: Timings, fixed: Timings, *, bits: bool) -> Timed:
    """Compare the batches of a fix with the original's, process by process: all ``bits``, or dtypes and shapes."""
    of = sum(run.seen for runs in fixed.values() for run in runs)
    twice = False
    known: dict[Any, Digests] = defaultdict(dict)
    for block, runs in originals.items():
        before = known[block]
        for run in runs:
            own = _digests(run, bits=bits)
            both = own.keys() & before.keys()
            twice = twice or bool(both)
            if any(own[place] != before[place] for place in both):
                return Timed(None, 0, of, "the original's own batches differ from run to run")
            before.update(own)
    compared = 0
    for block, runs in fixed.items():
        before = known[block]
        for run in runs:
            own = _digests(run, bits=bits)
            shared = sorted(own.keys() & before.keys())
            compared += len(shared)
            for epoch, batch in shared:
                if own[epoch, batch] != before[epoch, batch]:
                    formed = own[epoch, batch] >> _FORM == before[epoch, batch] >> _FORM
                    what = "other values" if formed else "another dtype or shape"
                    where = f"batch {batch + 1:,} of epoch {epoch + 1}, as it was timed, has {what} than the original's"
                    return Timed(False if twice else None, compared, of, where)
    return Timed(True, compared, of) if compared else Timed(None, 0, of, "there are none of both")


def _digests(run: Contents, *, bits: bool) -> Digests:
    places = zip(run.epochs, run.batches, strict=True)
    return {
        place: digest if bits else digest >> _FORM << _FORM for place, digest in zip(places, run.digests, strict=True)
    }
