"""A fixed pipeline against an original that draws some of its values at random."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xttsbench.records.fix import Semantics
from xttsbench.samedata.bags import cut_into_rounds, round_length, same_bags
from xttsbench.samedata.case import Case, elements_of, many, told
from xttsbench.samedata.drawn import LEAST_ROWS, drawn_alike
from xttsbench.samedata.fresh import repeated, values_frozen
from xttsbench.samedata.moved import all_bags, order_problem
from xttsbench.samedata.order import in_order
from xttsbench.samedata.rounding import rounded_in_place
from xttsbench.samedata.seen import Seen, first_pass, sorted_by


def judge_random(case: Case, runs: Sequence[Seen], fixed: Seen) -> Semantics:
    """Judge where components of the original vary in value.

    Args:
        case: what is known of the runs.
        runs: those of the original, with rounding taken out.
        fixed: the fixed one, likewise.
    """
    placed = [column for column in case.columns if all(not in_order(runs[0], run, [column]).difference for run in runs)]
    moved = [column for column in case.columns if column not in placed and all_bags(runs, [column]).same]
    if moved and not all_bags(runs, [*placed, *moved]).same:
        moved = []  # each by itself comes as often, but not together with the others
    stable = sorted([*placed, *moved])
    drawn = [column for column in case.columns if column not in stable]
    length = None if case.free or not stable else round_length(runs, stable)
    if length is not None and len(fixed.passes) == 1 and not fixed.passes[0].ended:
        runs, fixed = [cut_into_rounds(run, length) for run in runs], cut_into_rounds(fixed, length)
    if problem := _stable(case, runs, fixed, stable, in_place=not moved and not case.free):
        return problem
    if not stable and not all(part.ended for run in runs for part in run.passes[:1]):
        return case.unknown("all components vary, and no whole epoch was seen: other samples would not have shown")
    distinct = _distinct(runs, drawn)
    if problem := _frozen(case, distinct, fixed, drawn):
        return problem
    if moved or case.free:
        if not stable:
            return case.unknown("all components vary, and the order does: nothing tells which samples are the same")
        distinct, fixed = [sorted_by(run, stable) for run in distinct], sorted_by(fixed, stable)
    return _alike(case, distinct, fixed, drawn, all_drawn=not stable)


def _stable(
    case: Case, runs: Sequence[Seen], fixed: Seen, stable: Sequence[int], *, in_place: bool
) -> Semantics | None:
    """The components that the original does not draw; without any, how many samples there are."""
    if not stable:
        other_length = _length_problem(runs, fixed)
        return case.different(other_length) if other_length else None
    if in_place:
        compared = in_order(runs[0], rounded_in_place(runs[0], fixed).seen, stable)
        if compared.difference is None:
            return None
        return case.different(f"the data differ where the original does not vary: {case.where(compared.difference)}")
    bags = same_bags(runs[0], fixed, stable)
    if bags.same is False:
        return case.different(f"the samples are not those of the original: {bags.sentence}")
    if problem := order_problem(case, runs, fixed, stable):
        return problem
    return None if bags.same else case.unknown(f"it cannot be told whether the samples are the same: {bags.sentence}")


def _length_problem(runs: Sequence[Seen], fixed: Seen) -> str | None:
    """Epochs of another length than those of the original may have, taken for Poisson's where they vary."""
    for number, parts in enumerate(zip(*(run.passes for run in (*runs, fixed)), strict=False), start=1):
        *before, after = [part.rows for part in parts]
        if not all(part.ended for part in parts):
            continue
        low, high = min(before), max(before)
        room = 0.0 if low == high else 5 * math.sqrt(max(high, 1)) + high - low
        if not low - room <= after <= high + room:
            return f"epoch {number} had {low} to {high} samples, and has {after}"
    return None


def _distinct(runs: Sequence[Seen], columns: Sequence[int]) -> list[Seen]:
    """The runs that drew something else than those before: a seed gives the same draws again."""
    found: list[Seen] = []
    for run in runs:
        if not any(np.array_equal(run.codes[:, list(columns)], other.codes[:, list(columns)]) for other in found):
            found.append(run)
    return found


def _frozen(case: Case, runs: Sequence[Seen], fixed: Seen, drawn: Sequence[int]) -> Semantics | None:
    for column in drawn:
        frozen, why = values_frozen(runs, fixed, column)
        if frozen:
            return case.different(f"what is drawn for {case.name(column)} is not drawn anew as before: {why}")
    if case.caches and len(fixed.passes) < 2:
        return case.unknown(
            "values vary at random, and only one epoch was seen, so that frozen ones would not have shown"
        )
    return None


def _alike(case: Case, runs: Sequence[Seen], fixed: Seen, drawn: Sequence[int], *, all_drawn: bool) -> Semantics:
    """Each component that is drawn, in distribution; where epochs repeat what was drawn, by the first alone."""
    doubts, rows = [], []
    for column in drawn:
        shares = [share for run in runs if (share := repeated(run, column)) is not None]
        again = any(2 * same > of for same, of in shares)
        *before, after = [first_pass(run) if again else run for run in (*runs, fixed)]
        found = drawn_alike(before, after, column, tests=len(drawn))
        if found.alike is False:
            return case.different(f"{case.name(column)} varies at random, but {found.sentence}")
        if found.alike is None:
            doubts.append(f"{case.name(column)}: {found.sentence}")
        rows.append(found.rows)
    if doubts:
        return case.unknown(f"it cannot be told whether what is drawn is alike: {'; '.join(doubts)}")
    names = ", ".join(case.name(column) for column in drawn)
    rest = "" if all_drawn else ", and all else is the same"
    return told(
        True,
        "distribution",
        f"what is drawn at random for {names} looks drawn from the same distribution (tests on "
        f"{many(min(rows), 'independent draw')}, {LEAST_ROWS} at least){rest}",
        elements_of(case.fixed),
        len(case.fixed.passes),
    )
