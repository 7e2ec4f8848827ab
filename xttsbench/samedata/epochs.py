"""Whether the epochs of two runs hold the same samples, whatever the order, and whether they are drawn anew as often.

An endless dataset (``repeat``) is one epoch that never ends; where its samples come round, each stretch in which all of
them come once is taken for an epoch. A run that was cut off elsewhere is judged by the samples of its first half: they
must be among all those of the other run, and the other way round; what came shortly before the cut may be missing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import eq
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.samedata.runs import Pass, Run

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
    """Place of the difference, or the reason for no answer."""


def same_bags(first: Run, second: Run, columns: Sequence[int]) -> Bags:
    """Compare the samples of each epoch with those of the first run, by the components that count."""
    compared = False
    for number, (ours, theirs) in enumerate(zip(first.passes, second.passes, strict=False), start=1):
        before, after = Counter(first.keys(columns, ours)), Counter(second.keys(columns, theirs))
        missing, new = (before - after).total(), (after - before).total()
        if ours.ended and theirs.ended:
            if missing or new:
                return Bags(False, _counted(number, before, after))
            compared = True
        elif ours.ended and new:
            return Bags(False, f"{new} of the {theirs.rows} samples of epoch {number} are not among the original's")
        elif theirs.ended and missing:
            return Bags(False, f"epoch {number} ends without {missing} samples of the original")
        elif not ours.ended and not theirs.ended:
            halves = _halves(first.keys(columns, ours), second.keys(columns, theirs), number)
            if halves.same is not True:
                return halves
            compared = True
    if not compared:
        return Bags(None, "no whole epoch was seen, so that a missing sample would not have shown")
    return Bags(True)


def round_length(runs: Sequence[Run], columns: Sequence[int]) -> int | None:
    """Rows after which the same samples have come in all runs of one endless epoch; ``None`` where there are none."""
    if any(len(run.passes) != 1 or run.passes[0].ended or run.passes[0].rows < 2 * (_SHORTEST + 1) for run in runs):
        return None
    sums = [_running_sums(run.keys(columns, run.passes[0])) for run in runs]
    for length in range(_SHORTEST + 1, min(len(total) - 1 for total in sums) // 2 + 1):
        rounds = np.concatenate([np.diff(total[::length]) for total in sums])
        if (rounds == rounds[0]).all():
            return length
    return None


def cut_into_rounds(run: Run, length: int) -> Run:
    """A run of one endless epoch as epochs of ``length`` rows, each one element of one shape."""
    whole = run.passes[0]
    starts = range(whole.start, whole.stop - length + 1, length)
    shape = (("",) * run.codes.shape[1],)
    return replace(run, passes=tuple(Pass(start, start + length, (length,), shape, True) for start in starts))


def _running_sums(keys: Sequence[tuple[int, ...]]) -> npt.NDArray[np.uint64]:
    """Sums of the first 0, 1, 2, ... samples, each as a random number, modulo 2 ** 64.

    Two stretches with the same sum hold the same samples, but for one chance in 2 ** 64.
    """
    mixed = scattered(np.array([hash(key) & (2**64 - 1) for key in keys], dtype=np.uint64))
    return np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)])


def scattered(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Random numbers in place of numbers, the same in every process: those of SplitMix64 (Steele et al., 2014)."""
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _counted(epoch: int, before: Bag, after: Bag) -> str:
    missing, new = before - after, after - before
    strange = sum(count for key, count in new.items() if key not in before)
    lost = sum(count for key, count in missing.items() if key not in after)
    counts = {
        "missing": lost,
        "less often there than before": missing.total() - lost,
        "new": strange,
        "more often there than before": new.total() - strange,
    }
    words = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    had = before.total()
    return f"epoch {epoch} had {had} {'sample' if had == 1 else 'samples'} and has {after.total()}; {words}"


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
        doubt = f"{strangers} of the first {half} samples are not among the original's, {lost} of the original's"
        return Bags(None, f"epoch {epoch} was cut off, and {doubt} not among them")
    return Bags(True)


_LEVEL: Final = 1e-6  # Of each test that two shares are the same
_MATTERS: Final = 0.1  # Shares that differ by less are taken for the same, however many rows there are
_SURE_ROWS: Final = 16
"""With so many rows, that shuffled epochs have one order is no coincidence, even with a buffer of two."""
EPOCHS: Final = 3
"""Epochs compared where something is drawn at random: a repeat after two of them shows in the third."""
_LEAST_BATCHES: Final = 4  # Of an epoch
_REPEATED_BATCHES: Final = 0.5
_FEW_REPEATED: Final = 0.1
Share = tuple[int, int]
"""Count, and the total that it is of."""


def order_frozen(
    originals: Sequence[Run], fixed: Run, columns: Sequence[int], *, free: bool
) -> tuple[bool | None, str]:
    """Whether the fixed run's epochs still come in different orders where those of the original do.

    ``True`` with a sentence where they do not, or do where the original's did not and they are not ``free`` to;
    ``None`` where that may be chance; ``False`` where nothing speaks for it.
    """
    runs = (*originals, fixed)
    count = min(sum(1 for part in run.passes if part.ended and part.rows) for run in runs)
    *before, now = [len({tuple(run.keys(columns, part)) for part in run.passes[:count]}) for run in runs]
    rows = min((part.rows for run in runs for part in run.passes[:count]), default=0)
    if count >= 2 and now < min(before):
        sentence = f"the original's {count} epochs came in {min(before)} orders, those of the fixed one in {now}"
        # Few files that are shuffled have few orders, and two of several epochs may well have the same.
        return (True, f"{sentence}: the order is frozen") if now == 1 and rows >= _SURE_ROWS else (None, sentence)
    if count >= 2 and max(before) == 1 < now and not free:
        return True, "the original's epochs all come in one order, those of the fixed one in several"
    return _batches_frozen(originals, fixed, columns)


def _batches_frozen(originals: Sequence[Run], fixed: Run, columns: Sequence[int]) -> tuple[bool, str]:
    """Whether batches hold the same samples in each epoch, where they did not, or the other way round."""
    *before, after = [_repeated_batches(run, columns) for run in _as_long((*originals, fixed))]
    known = [share for share in before if share is not None]
    if after is None or len(known) < len(before):
        return False, ""
    if max(known) <= _FEW_REPEATED and after >= _REPEATED_BATCHES:
        return True, "the batches of the fixed one hold the same samples in each epoch, those of the original do not"
    if min(known) >= 1 - _FEW_REPEATED and after <= _REPEATED_BATCHES:
        return True, "the batches of the original hold the same samples in each epoch, those of the fixed one do not"
    return False, ""


def _repeated_batches(run: Run, columns: Sequence[int]) -> float | None:
    """Largest share of a later epoch's batches of two rows and more that an earlier one had, whatever their order."""
    every = [_batches(run, columns, number) for number in range(len(run.passes))]
    if len(every) < 2 or len(every[1]) < _LEAST_BATCHES:
        return None
    known, shares = set(every[0]), []
    for batches in every[1:]:
        if len(batches) >= _LEAST_BATCHES:
            shares.append(sum(batch in known for batch in batches) / len(batches))
        known |= set(batches)
    return max(shares)


def _batches(run: Run, columns: Sequence[int], number: int) -> list[tuple[tuple[int, ...], ...]]:
    part, begin, found = run.passes[number], 0, []
    keys = run.keys(columns, part)
    for size in part.sizes:
        if size > 1:
            found.append(tuple(sorted(keys[begin : begin + size])))
        begin += size
    return found


def values_frozen(originals: Sequence[Run], fixed: Run, column: int) -> tuple[bool, str]:
    """Whether the fixed run draws a component as often anew as runs of the original, over epochs and over samples."""
    for count, what in _COUNTS:
        *before, after = [count(run, column) for run in _as_long((*originals, fixed))]
        known = [share for share in before if share is not None]
        if after is None or len(known) < len(before) or not known:
            continue
        shares = [many / of for many, of in known]
        pooled = (sum(many for many, _ in known), sum(of for _, of in known))
        gap = after[0] / after[1] - pooled[0] / pooled[1]
        spread = max(shares) - min(shares)
        if abs(gap) > max(_MATTERS, 3 * spread) and _shares_differ(pooled, after):
            ours, theirs = pooled[0] / pooled[1], after[0] / after[1]
            return True, f"{what}: {ours:.0%} of the original's, {theirs:.0%} of the fixed one's"
    return False, ""


def repeated(run: Run, column: int) -> Share | None:
    """Rows of a later epoch whose value an earlier one had; of the epoch with the largest share of them."""
    known: set[int] = set()
    shares: list[Share] = []
    for number, codes in enumerate(_codes(run, column)):
        if number and len(codes):
            shares.append((sum(code in known for code in codes), len(codes)))
        known.update(codes)
    return _largest(shares)


def _repeated_in_place(run: Run, column: int) -> Share | None:
    """The same of rows whose value an earlier epoch had at the same place."""
    pairs = combinations(_codes(run, column), 2)
    return _largest(
        [(sum(map(eq, before, codes)), rows) for before, codes in pairs if (rows := min(len(before), len(codes)))]
    )


def _codes(run: Run, column: int) -> list[list[int]]:
    return [run.codes[part.start : part.stop, column].tolist() for part in run.passes]


def _largest(shares: Sequence[Share]) -> Share | None:
    return max(shares, key=lambda share: share[0] / share[1], default=None)


def _twice(run: Run, column: int) -> Share | None:
    """Rows of the first epoch whose value was there before, in the same epoch."""
    if not run.passes or not run.passes[0].rows:
        return None
    codes = _codes(run, column)[0]
    return len(codes) - len(set(codes)), len(codes)


def _as_long(runs: Sequence[Run]) -> list[Run]:
    count = min(EPOCHS, *(len(run.passes) for run in runs))
    return [replace(run, passes=run.passes[:count]) for run in runs]


_COUNTS: Final[tuple[tuple[Callable[[Run, int], Share | None], str], ...]] = (
    (repeated, "values repeated from an epoch before"),
    (_repeated_in_place, "values repeated from an epoch before at the same place"),
    (_twice, "values that come more than once in an epoch"),
)


def _shares_differ(first: Share, second: Share) -> bool:
    """Two-sided z test of two proportions, with the pooled variance."""
    from scipy import special

    rate = (first[0] + second[0]) / (first[1] + second[1])
    variance = rate * (1 - rate) * (1 / first[1] + 1 / second[1])
    gap = abs(first[0] / first[1] - second[0] / second[1])
    return variance > 0 and 2 * float(special.ndtr(-gap / math.sqrt(variance))) < _LEVEL
