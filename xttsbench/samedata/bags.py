"""Two runs held against each other without regard to order: the same samples, each as often, in each epoch.

An endless dataset (``repeat``) is one epoch that never ends; where its samples come round, each stretch in which all of
them come once is taken for an epoch. A run that was cut off elsewhere is judged by the samples of its first half: they
must be among all those of the other run, and the other way round; what came shortly before the cut may be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.samedata.seen import Pass, Seen

Key = tuple[int, ...]
Bag = Counter[Key]
_STRANGE: Final = 0.5
"""From this share of strangers on, two runs that were cut off show different samples; below, it cannot be told."""
_SHORTEST: Final = 2
"""An epoch of an endless dataset has more rows than this, or any order would look like one that comes round."""


@dataclass(frozen=True, slots=True)
class Bags:
    """Whether two runs yield the same samples."""

    same: bool | None
    """``None`` where too little was seen to tell."""
    sentence: str = ""
    """Where they differ, or why it cannot be told."""


def same_bags(first: Seen, second: Seen, columns: Sequence[int]) -> Bags:
    """Compare the samples of each epoch, by the components that count.

    Args:
        first: the run of reference.
        second: the other one.
        columns: the components that count.
    """
    told = False
    for number, (ours, theirs) in enumerate(zip(first.passes, second.passes, strict=False), start=1):
        before, after = Counter(first.keys(columns, ours)), Counter(second.keys(columns, theirs))
        missing, new = (before - after).total(), (after - before).total()
        if ours.ended and theirs.ended:
            if missing or new:
                return Bags(False, _counted(number, before, after))
            told = True
        elif ours.ended and new:
            return Bags(False, f"{new} of the {theirs.rows} samples of epoch {number} are not among the original's")
        elif theirs.ended and missing:
            return Bags(False, f"epoch {number} ends without {missing} samples of the original")
        elif not ours.ended and not theirs.ended:
            halves = _halves(first.keys(columns, ours), second.keys(columns, theirs), number)
            if halves.same is not True:
                return halves
            told = True
    return Bags(True) if told else Bags(None, "no whole epoch was seen, so that a missing sample would not have shown")


def round_length(runs: Sequence[Seen], columns: Sequence[int]) -> int | None:
    """Rows after which the same samples have come, in every run of one epoch that did not end.

    Args:
        runs: those of the original.
        columns: the components that come round.

    Returns:
        ``None`` where there is no such number.
    """
    if any(len(run.passes) != 1 or run.passes[0].ended or run.passes[0].rows < 2 * (_SHORTEST + 1) for run in runs):
        return None
    sums = [_running_sums(run.keys(columns, run.passes[0])) for run in runs]
    for length in range(_SHORTEST + 1, min(len(total) - 1 for total in sums) // 2 + 1):
        rounds = np.concatenate([np.diff(total[::length]) for total in sums])
        if (rounds == rounds[0]).all():
            return length
    return None


def cut_into_rounds(run: Seen, length: int) -> Seen:
    """A run of one endless epoch as epochs of ``length`` rows, each one element of one shape."""
    whole = run.passes[0]
    starts = range(whole.start, whole.stop - length + 1, length)
    shape = (("",) * run.codes.shape[1],)
    return replace(run, passes=tuple(Pass(start, start + length, (length,), shape, True) for start in starts))


def _running_sums(keys: Sequence[tuple[int, ...]]) -> npt.NDArray[np.uint64]:
    """Sums of the first 0, 1, 2, ... samples, each as a random number, modulo 2 ** 64.

    Two stretches with the same sum hold the same samples, but for one chance in 2 ** 64. The numbers are those of
    SplitMix64 (Steele et al., 2014).
    """
    mixed = np.array([hash(key) & (2**64 - 1) for key in keys], dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)])


def _counted(epoch: int, before: Bag, after: Bag) -> str:
    """How the samples of an epoch differ, in words."""
    missing, new = before - after, after - before
    strange = sum(count for key, count in new.items() if key not in before)
    again = new.total() - strange
    lost = sum(count for key, count in missing.items() if key not in after)
    seldom = missing.total() - lost
    words = [
        f"{count} {what}"
        for count, what in (
            (lost, "missing"),
            (seldom, "less often there than before"),
            (strange, "new"),
            (again, "more often there than before"),
        )
        if count
    ]
    return f"epoch {epoch} had {before.total()} {_samples(before.total())} and has {after.total()}; {', '.join(words)}"


def _samples(count: int) -> str:
    return "sample" if count == 1 else "samples"


def _halves(ours: list[Key], theirs: list[Key], epoch: int) -> Bags:
    """Two runs that were cut off: the first half of each against the whole of the other."""
    length = min(len(ours), len(theirs))
    half = length // 2
    if not half:
        return Bags(None, f"of epoch {epoch} too little was seen")
    strangers = (Counter(theirs[:half]) - Counter(ours)).total()
    lost = (Counter(ours[:half]) - Counter(theirs)).total()
    if max(strangers, lost) >= _STRANGE * half:
        return Bags(False, f"{strangers} of the first {half} samples of epoch {epoch} are not among the original's")
    if strangers or lost:
        return Bags(
            None,
            f"epoch {epoch} was cut off, and {strangers} of the first {half} samples are not among the original's, "
            f"{lost} of the original's not among them",
        )
    return Bags(True)
