"""How the stacked bar of the attribution is divided, in cells of a console or in shares of a width."""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.reporting.sections.report import Part

SMALLEST_VISIBLE = 0.0005
"""Share of a step from which a part is drawn and listed: what would print as 0.1 %."""


def visible(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts to list: what is not nothing, and the residual always."""
    return tuple(part for part in parts if abs(part.share) >= SMALLEST_VISIBLE or part.name == "residual")


def widths(parts: Sequence[Part]) -> tuple[tuple[str, float], ...]:
    """Name and share of the bar, 0..1, of each visible part; a negative residual has no width and is only listed."""
    positive = [(part.name, part.share) for part in visible(parts) if part.share > 0]
    whole = sum(share for _, share in positive)
    return tuple((name, share / whole) for name, share in positive)


def cells(parts: Sequence[Part], width: int) -> tuple[tuple[str, int], ...]:
    """Name and number of cells of each part in a bar of ``width`` cells, by largest remainder (Hamilton's method)."""
    shares = widths(parts)
    counts = [int(share * width) for _, share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - shares[i][1] * width)
    for i in by_remainder[: width - sum(counts)]:
        counts[i] += 1
    return tuple((name, count) for (name, _), count in zip(shares, counts, strict=True) if count)
