"""What one op of a pipeline took when it was run by itself: the result of :mod:`xttsbench.pipeline.cost.prefix`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageCost:
    """One op over held elements. Figures are ``None`` where the op was not run; ``why_not`` then says why."""

    cardinality: int
    wall_s: float | None = None
    """Seconds for one element that it yields, uncontended."""
    cpu_s: float | None = None
    elements: int = 0
    """Elements of it that the figures come from."""
    consumed: Mapping[str, float] | None = None
    """Elements of each input for one of its own, where its input was run to the end."""
    element_bytes: float | None = None
    why_not: str | None = None

    @property
    def priced(self) -> bool:
        """Whether the op was run and yielded elements."""
        return self.wall_s is not None
