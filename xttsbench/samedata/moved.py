"""A fixed pipeline against an original whose samples are the same each time, in an order that may change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from xttsbench.records.fix import Semantics
from xttsbench.samedata.bags import Bags, same_bags
from xttsbench.samedata.case import Case, elements_of, many, told
from xttsbench.samedata.fresh import order_frozen
from xttsbench.samedata.seen import Seen


def all_bags(runs: Sequence[Seen], columns: Sequence[int]) -> Bags:
    """Whether all runs have the samples of the first."""
    found = [same_bags(runs[0], run, columns) for run in runs[1:]]
    for answer in (False, None):
        if worst := [bags for bags in found if bags.same is answer]:
            return worst[0]
    return Bags(True)


def judge_moved(case: Case, runs: Sequence[Seen], fixed: Seen, known: Bags, *, rounded: bool) -> Semantics:
    """Judge where only the order of the original varies.

    Args:
        case: what is known of the runs.
        runs: those of the original, with rounding taken out, and in rounds where they are endless.
        fixed: the fixed one, likewise.
        known: whether the runs of the original have the same samples, as far as that could be told.
        rounded: whether rounding was taken out of the fixed one.
    """
    bags = same_bags(runs[0], fixed, case.columns)
    if bags.same is False:
        return case.different(f"the samples are not those of the original: {bags.sentence}")
    if problem := order_problem(case, runs, fixed, case.columns):
        return problem
    if bags.same is None or known.same is None:
        return case.unknown(f"it cannot be told whether the samples are the same: {bags.sentence or known.sentence}")
    rows, epochs = sum(part.rows for part in fixed.passes), len(fixed.passes)
    why = (
        "given up as asked for" if case.gives_up else "which nobody was promised" if case.free else "shuffled as before"
    )
    close = ", but for the rounding of floats" if rounded else ""
    return told(
        True,
        "other order",
        f"the same {many(rows, 'sample')} over {many(epochs, 'epoch')} come in another order, {why}{close}",
        elements_of(case.fixed),
        epochs,
    )


def order_problem(case: Case, runs: Sequence[Seen], fixed: Seen, columns: Sequence[int]) -> Semantics | None:
    """What is wrong with how the same samples are ordered and cut into batches, if anything.

    Args:
        case: what is known of the runs.
        runs: those of the original.
        fixed: the fixed one.
        columns: the components that tell the samples apart.
    """
    if _other_sizes(runs, fixed):
        return case.different("the batches are of other sizes than the original's")
    if case.free and not case.shuffles:
        return None
    frozen, why = order_frozen(runs, fixed, columns, free=case.free)
    if frozen:
        return case.different(why)
    if frozen is None:
        return case.unknown(f"{why}, but of so few samples that it may be chance")
    if not case.free and case.caches and len(fixed.passes) < 2:
        return case.unknown("only one epoch was seen, so that a frozen order would not have shown")
    return None


def _other_sizes(runs: Sequence[Seen], fixed: Seen) -> bool:
    """Whether whole epochs are cut into batches of other sizes, where the original always has the same."""
    parts = list(zip(*(run.passes for run in (*runs, fixed)), strict=False))
    whole = [part for part in parts if all(each.ended for each in part)]
    for *ours, theirs in whole:
        sizes = [Counter(part.sizes) for part in ours]
        if all(each == sizes[0] for each in sizes) and Counter(theirs.sizes) != sizes[0]:
            return True
    return False
