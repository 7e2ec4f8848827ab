"""What a random pipeline draws anew, and a fixed one may have frozen: orders, batches, values.

A cache behind a shuffle or an augmentation repeats in every epoch what was drawn in the first; a pool of processes
whose generators have one state draws the same for several samples. Neither shows in what one sample looks like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from scipy import special

from xttsbench.samedata.seen import Seen

_LEVEL: Final = 1e-6
"""Of each test that two shares are the same."""
_MATTERS: Final = 0.1
"""Shares that differ by less are taken for the same, however many rows there are."""
_SURE_ROWS: Final = 16
"""With so many rows, that shuffled epochs have one order is no coincidence, even with a buffer of two."""
_REPEATED_BATCHES: Final = 0.5
_FEW_REPEATED: Final = 0.1
Share = tuple[int, int]
"""How many, of how many."""


def order_frozen(
    originals: Sequence[Seen], fixed: Seen, columns: Sequence[int], *, free: bool
) -> tuple[bool | None, str]:
    """Whether the fixed run's epochs still come in different orders where those of the original do.

    Args:
        originals: runs of the original.
        fixed: the fixed one.
        columns: the components that tell the samples apart.
        free: whether epochs may come in different orders where those of the original do not.

    Returns:
        ``True`` with a sentence where they do not, or do where the original's did not; ``None`` where that may be
        chance; ``False`` where nothing speaks for it.
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


def _batches_frozen(originals: Sequence[Seen], fixed: Seen, columns: Sequence[int]) -> tuple[bool, str]:
    """Whether batches hold the same samples in each epoch, where they did not, or the other way round."""
    found = [_repeated_batches(run, columns) for run in (*originals, fixed)]
    shares = [share for share in found if share is not None]
    if len(shares) < len(found):
        return False, ""
    *before, after = shares
    if max(before) <= _FEW_REPEATED and after >= _REPEATED_BATCHES:
        return True, "the batches of the fixed one hold the same samples in each epoch, those of the original do not"
    if min(before) >= 1 - _FEW_REPEATED and after <= _REPEATED_BATCHES:
        return True, "the batches of the original hold the same samples in each epoch, those of the fixed one do not"
    return False, ""


def _repeated_batches(run: Seen, columns: Sequence[int], least: int = 4) -> float | None:
    """Share of the second epoch's batches of two rows and more that were there in the first, whatever their order."""
    if len(run.passes) < 2:
        return None
    first, second = (_batches(run, columns, number) for number in (0, 1))
    if len(second) < least:
        return None
    return sum(batch in set(first) for batch in second) / len(second)


def _batches(run: Seen, columns: Sequence[int], number: int) -> list[tuple[tuple[int, ...], ...]]:
    part, begin, found = run.passes[number], 0, []
    keys = run.keys(columns, part)
    for size in part.sizes:
        if size > 1:
            found.append(tuple(sorted(keys[begin : begin + size])))
        begin += size
    return found


def values_frozen(originals: Sequence[Seen], fixed: Seen, column: int) -> tuple[bool, str]:
    """Whether the fixed run draws a component as often anew as the original does, over epochs and over samples.

    Args:
        originals: runs of the original that differ from one another.
        fixed: the fixed run.
        column: a component whose values vary.
    """
    for count, what in _COUNTS:
        *before, after = [count(run, column) for run in (*originals, fixed)]
        known = [share for share in before if share is not None]
        if after is None or len(known) < len(before) or not known:
            continue
        shares = [many / of for many, of in known]
        pooled = (sum(many for many, _ in known), sum(of for _, of in known))
        gap = after[0] / after[1] - pooled[0] / pooled[1]
        spread = max(shares) - min(shares)
        if abs(gap) > max(_MATTERS, 3 * spread) and _shares_differ(pooled, after):
            return (
                True,
                f"{what}: {pooled[0] / pooled[1]:.0%} of the original's, {after[0] / after[1]:.0%} of the fixed one's",
            )
    return False, ""


def repeated(run: Seen, column: int) -> Share | None:
    """Rows of the second epoch whose value was there in the first."""
    if len(run.passes) < 2 or not run.passes[0].rows or not run.passes[1].rows:
        return None
    first, second = (run.codes[part.start : part.stop, column].tolist() for part in run.passes[:2])
    known = set(first)
    return sum(code in known for code in second), len(second)


def _repeated_in_place(run: Seen, column: int) -> Share | None:
    """Rows of the second epoch whose value was there in the first, at the same place."""
    if len(run.passes) < 2:
        return None
    first, second = (run.codes[part.start : part.stop, column].tolist() for part in run.passes[:2])
    rows = min(len(first), len(second))
    return (sum(a == b for a, b in zip(first, second, strict=False)), rows) if rows else None


def _twice(run: Seen, column: int) -> Share | None:
    """Rows of the first epoch whose value was there before, in the same epoch."""
    if not run.passes or not run.passes[0].rows:
        return None
    part = run.passes[0]
    return part.rows - len(set(run.codes[part.start : part.stop, column].tolist())), part.rows


_COUNTS: Final[tuple[tuple[Callable[[Seen, int], Share | None], str], ...]] = (
    (repeated, "values that an epoch repeats from the one before"),
    (_repeated_in_place, "values that an epoch repeats from the one before, at the same place"),
    (_twice, "values that come more than once in an epoch"),
)


def _shares_differ(first: Share, second: Share) -> bool:
    """Two-sided z test of two proportions, with the pooled variance."""
    rate = (first[0] + second[0]) / (first[1] + second[1])
    variance = rate * (1 - rate) * (1 / first[1] + 1 / second[1])
    gap = abs(first[0] / first[1] - second[0] / second[1])
    return variance > 0 and 2 * float(special.ndtr(-gap / math.sqrt(variance))) < _LEVEL
