"""Whether a quantity grows from repetition to repetition; pure.

The slope is Theil's and Sen's, the median of the slopes of all pairs, which a single disturbed repetition does not
move. A count that stands still most of the time has no slope that is sure; it grows where it has risen twice for good.
What a process needs once (imports, caches, pools of memory) comes in the first quarter, which is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

FEWEST: Final = 8
"""Repetitions below which nothing is said."""

TOLERATED: Final = {"mb": (6.0, 0.03)}
"""Growth over all that is kept, at most: absolute, and as a share of the median; the larger one counts."""
COUNT: Final = (1.0, 0.0)
"""The same of descriptors, threads and files: a single one, come once, is no growth."""

LASTING: Final = 2
"""Repetitions after a rise that show nothing yet: a disturbed one may be among them."""

NEVER: Final = ("children",)
"""Quantities of which there may be none, ever."""


@dataclass(frozen=True)
class Growth:
    """How a quantity went, and what is said of it."""

    repeats: int
    first: float
    """Medians of the first and last three that are kept."""
    last: float
    fitted: float | None
    """Growth by the fitted line from the first to the last one kept; None where there are too few."""
    limit: float
    verdict: str
    """``steady``, ``grows`` or ``too few``."""


def judge(name: str, values: Sequence[float]) -> Growth:
    """Say how a quantity went; its unit is the end of its name (``_mb``), else it is a count."""
    unit = name.rsplit("_", 1)[-1]
    skipped = len(values) // 4
    kept = np.asarray(values[skipped:], np.float64)
    absolute, share = TOLERATED.get(unit, COUNT)
    limit = max(absolute, share * float(np.median(kept))) if kept.size else absolute
    first, last = (float(np.median(part)) if part.size else 0.0 for part in (kept[:3], kept[-3:]))
    if name in NEVER:
        most = max(values, default=0)
        return Growth(len(values), 0, most, most, 0, "grows" if most else "steady")
    if len(values) < FEWEST:
        return Growth(len(values), first, last, None, limit, "too few")
    found = stats.theilslopes(kept, np.arange(kept.size), alpha=0.95)
    span = kept.size - 1
    grows = found.slope * span > limit and found.low_slope > 0
    if unit not in TOLERATED:
        for_good = np.minimum.accumulate(kept[::-1])[::-1][:-LASTING]  # below that it never fell again
        rises = np.diff(for_good)
        grows |= np.count_nonzero(rises) > 1 and rises.sum() > limit
    return Growth(len(values), first, last, float(found.slope * span), limit, "grows" if grows else "steady")


def table(series: dict[str, dict[str, list[float]]]) -> tuple[str, bool]:
    """Return the table of all kinds and quantities, and whether any grows."""
    rows = [("kind", "quantity", "repeats", "first", "last", "growth", "limit", "")]
    failed = False
    for kind, quantities in series.items():
        for name, values in quantities.items():
            found = judge(name, values)
            failed |= found.verdict == "grows"
            growth = "-" if found.fitted is None else f"{found.fitted:+.1f}"
            numbers = (f"{found.first:.1f}", f"{found.last:.1f}", growth, f"{found.limit:.1f}")
            rows.append((kind, name, str(found.repeats), *numbers, found.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.ljust(width) if column in (0, 1, 7) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines), failed
