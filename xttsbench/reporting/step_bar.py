"""The bar of a step: what its mean time goes into, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from xttsbench.reporting import units
from xttsbench.reporting.document import Block, Cleaned
from xttsbench.reporting.words import part

_SMALLEST_VISIBLE: Final = 0.0005
"""Share of a step from which a part is drawn and listed: what would print as 0.1 %."""
_WORTH_A_WORD: Final = 0.005  # Share from which a part is in a compact legend


@dataclass(frozen=True, slots=True)
class Part(Cleaned):
    """One part of a step's mean time; ``share`` is of the step, 0..1, and may be negative for the residual.

    It is called ``label``; ``name`` is that of the records, which has a colour.
    """

    name: str
    time: str
    share: float
    percent: str
    label: str


@dataclass(frozen=True, slots=True)
class Bars(Block):
    """A stacked bar with its legend: what the time of a step goes into; ``compact``: with the largest parts alone."""

    parts: tuple[Part, ...]
    compact: bool = False

    @property
    def largest(self) -> tuple[Part, ...]:
        """The parts that are worth a word in a compact legend, in the order of the bar."""
        return tuple(part for part in self.visible if abs(part.share) >= _WORTH_A_WORD)

    @property
    def visible(self) -> tuple[Part, ...]:
        """The parts to list: what is not nothing, and the residual always."""
        return tuple(part for part in self.parts if abs(part.share) >= _SMALLEST_VISIBLE or part.name == "residual")

    @property
    def nothing(self) -> str:
        """The other parts, in a sentence; empty where there is none."""
        names = [part.label for part in self.parts if part not in self.visible]
        return f"Nothing in: {', '.join(names)}." if names else ""

    @property
    def widths(self) -> tuple[tuple[str, float], ...]:
        """Name and share of the bar, 0..1, of each part that its legend names; a negative residual has no width."""
        named = self.largest if self.compact else self.visible
        positive = [(part.name, part.share) for part in named if part.share > 0]
        whole = sum(share for _, share in positive)
        return tuple((name, share / whole) for name, share in positive)

    def cells(self, width: int) -> tuple[tuple[str, int], ...]:
        """Name and number of cells of each part, ``width`` together, by largest remainder (Hamilton's method)."""
        counts = [int(share * width) for _, share in self.widths]
        by_remainder = sorted(range(len(counts)), key=lambda i: counts[i] - self.widths[i][1] * width)
        for i in by_remainder[: width - sum(counts)]:
            counts[i] += 1
        return tuple((name, count) for (name, _), count in zip(self.widths, counts, strict=True) if count)


def bars(seconds: Mapping[str, float], whole_s: float, labels: Mapping[str, str] | None = None) -> Bars:
    """A step of so many seconds, by its parts in seconds; ``labels`` of parts that are called otherwise here."""
    shares = [value / whole_s if whole_s else 0.0 for value in seconds.values()]
    words = {name: part(name) for name in seconds} | dict(labels or {})
    parts = zip(seconds.items(), shares, units.percents(shares), strict=True)
    made = (Part(name, units.duration(value), share, said, words[name]) for (name, value), share, said in parts)
    return Bars(tuple(made))
