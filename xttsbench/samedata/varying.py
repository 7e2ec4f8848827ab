"""The judgement of an original that varies by itself: its samples move, or its values are drawn at random."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xttsbench.records.fix import How, Semantics
from xttsbench.records.pipeline import Elements
from xttsbench.samedata.drawn import LEAST_ROWS, drawn_alike
from xttsbench.samedata.epochs import (
    Bags,
    cut_into_rounds,
    order_frozen,
    repeated,
    round_length,
    same_bags,
    values_frozen,
)
from xttsbench.samedata.runs import Difference, InOrder, Run, first_pass, in_order, rounded_in_place, sorted_by


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Runs of an original and one of a fixed pipeline."""

    originals: tuple[Run, ...]
    fixed: Run
    columns: tuple[int, ...]
    """The components that could be read in all runs."""
    names: tuple[str, ...]
    """Names of all components."""
    free: bool
    """Whether the order may change: nobody promises it, or giving it up was asked for."""
    gives_up: bool
    """Whether the fixed pipeline gives up an order that the original promises."""
    shuffles: bool
    """Whether the original has random ops."""
    caches: bool
    """Whether the fix may replay what was drawn."""
    compared: InOrder
    """Result of comparing the runs place by place."""
    shared_out: bool = False
    """Whether several workers may yield the samples, each with a last batch of its own."""

    def name(self, column: int | None) -> str:
        """Path of a component."""
        return "element" if column is None else self.names[column]

    def where(self, found: Difference | None) -> str:
        """A place for a person, counted from 1."""
        if found is None:
            return "no place"
        place = f"epoch {found.epoch + 1}, element {found.element + 1}"
        if found.kind == "value":
            return f"{place}, sample {found.row + 1}, {self.name(found.column)}"
        what = {
            "size": "another number of samples",
            "shape": "another shape",
            "missing": "the fixed pipeline ends before it",
            "extra": "the fixed pipeline goes on where the original ends",
        }
        return f"{place} ({what[found.kind]})"

    def different(self, sentence: str) -> Semantics:
        """The judgement that the data are others."""
        return judgement(False, "different", sentence, self.compared.elements, self.compared.epochs)

    def unknown(self, sentence: str) -> Semantics:
        """The judgement that it cannot be told."""
        return judgement(None, "unknown", sentence, self.compared.elements, self.compared.epochs)


def judgement(equivalent: bool | None, how: How, sentence: str, elements: int = 0, epochs: int = 0) -> Semantics:
    """The judgement, its sentence begun and ended as one."""
    text = sentence.strip()
    text = f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
    return Semantics(equivalent=equivalent, how=how, sentence=text, elements=elements, epochs=epochs)


def many(number: int, what: str) -> str:
    """``1 epoch``, ``12 epochs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def elements_of(run: Run) -> int:
    """Elements of all epochs."""
    return sum(len(part.sizes) for part in run.passes)


def lost_components(runs: Sequence[Elements]) -> dict[str, str]:
    """Path of each component that could not be read in some run -> why."""
    paths = {path for run in runs for path in run.components}
    return {path: why for run in runs for path, why in run.unknown.items() if path in paths or path == "element"}


def all_bags(runs: Sequence[Run], columns: Sequence[int]) -> Bags:
    """Whether all runs have the samples of the first."""
    found = [same_bags(runs[0], run, columns) for run in runs[1:]]
    return min(found, key=lambda bags: (False, None, True).index(bags.same), default=Bags(True))


def judge_moved(case: Case, runs: Sequence[Run], fixed: Run, known: Bags, *, rounded: bool) -> Semantics:
    """Judge where only the order of the original varies.

    Rounding is taken out of the runs (of the fixed one where ``rounded``), and endless ones are cut into rounds;
    ``known`` says whether the runs of the original have the same samples.
    """
    bags = same_bags(runs[0], fixed, case.columns)
    if bags.same is False:
        return case.different(f"the samples are not those of the original: {bags.sentence}")
    if problem := order_problem(case, runs, fixed, case.columns):
        return problem
    if bags.same is None or known.same is None:
        return case.unknown(f"it is unknown whether the samples are the same: {bags.sentence or known.sentence}")
    rows, epochs = sum(part.rows for part in fixed.passes), len(fixed.passes)
    why = (
        "given up as asked for" if case.gives_up else "which nobody was promised" if case.free else "shuffled as before"
    )
    close = ", but for the rounding of floats" if rounded else ""
    said = f"the same {many(rows, 'sample')} over {many(epochs, 'epoch')} come in another order, {why}{close}"
    return judgement(True, "other order", said, elements_of(case.fixed), epochs)


def order_problem(case: Case, runs: Sequence[Run], fixed: Run, columns: Sequence[int]) -> Semantics | None:
    """Judgement against the order or the batches of samples, told apart by some components, or ``None``."""
    if not case.shared_out and _other_sizes(runs, fixed):
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


def _other_sizes(runs: Sequence[Run], fixed: Run) -> bool:
    """Whether whole epochs are cut into batches of other sizes, where the original always has the same."""
    for parts in zip(*(run.passes for run in (*runs, fixed)), strict=False):
        *ours, theirs = [Counter(part.sizes) for part in parts]
        if all(part.ended for part in parts) and all(each == ours[0] for each in ours) and theirs != ours[0]:
            return True
    return False


def judge_random(case: Case, runs: Sequence[Run], fixed: Run) -> Semantics:
    """Judge where components of the original vary in value; rounding is taken out of all runs."""
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


def _stable(case: Case, runs: Sequence[Run], fixed: Run, stable: Sequence[int], *, in_place: bool) -> Semantics | None:
    """The components that the original does not draw; without any, how many samples there are."""
    if not stable:
        other_length = _length_problem(runs, fixed)
        return case.different(other_length) if other_length else None
    if in_place:
        compared = in_order(runs[0], rounded_in_place(runs[0], fixed).run, stable)
        if compared.difference is None:
            return None
        return case.different(f"the data differ where the original does not vary: {case.where(compared.difference)}")
    bags = same_bags(runs[0], fixed, stable)
    if bags.same is False:
        return case.different(f"the samples are not those of the original: {bags.sentence}")
    if problem := order_problem(case, runs, fixed, stable):
        return problem
    return None if bags.same else case.unknown(f"it is unknown whether the samples are the same: {bags.sentence}")


def _length_problem(runs: Sequence[Run], fixed: Run) -> str | None:
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


def _distinct(runs: Sequence[Run], columns: Sequence[int]) -> list[Run]:
    """The runs that drew something else than those before: a seed gives the same draws again."""
    found: list[Run] = []
    for run in runs:
        if not any(np.array_equal(run.codes[:, list(columns)], other.codes[:, list(columns)]) for other in found):
            found.append(run)
    return found


def _frozen(case: Case, runs: Sequence[Run], fixed: Run, drawn: Sequence[int]) -> Semantics | None:
    for column in drawn:
        frozen, why = values_frozen(runs, fixed, column)
        if frozen:
            name = case.name(column) if len(case.names) > 1 else "what is random"
            return case.different(f"{name} is not drawn anew: {why}")
    if case.caches and len(fixed.passes) < 2:
        why = "values vary at random, and only one epoch was seen, so that frozen ones would not have shown"
        return case.unknown(why)
    return None


def _alike(case: Case, runs: Sequence[Run], fixed: Run, drawn: Sequence[int], *, all_drawn: bool) -> Semantics:
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
        return case.unknown(f"it is unknown whether what is drawn is alike: {'; '.join(doubts)}")
    names = ", ".join(case.name(column) for column in drawn)
    rest = "" if all_drawn else ", and all else is the same"
    said = (
        f"what is drawn at random for {names} looks drawn from the same distribution (tests on "
        f"{many(min(rows), 'independent draw')}, {LEAST_ROWS} at least){rest}"
    )
    return judgement(True, "distribution", said, elements_of(case.fixed), len(case.fixed.passes))
