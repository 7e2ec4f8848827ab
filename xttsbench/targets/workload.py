"""A target that says more about itself than a pair can: its name and what may be tuned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Workload:
    """A dataset, the step or model that consumes it, and what may be tuned.

    Attributes:
        dataset: the ``tf.data.Dataset`` that is iterated.
        step: ``step(batch)`` runs one training step; ``None`` judges the input side alone.
        model: a compiled ``keras.Model`` in place of ``step``.
        tunables: keyword of the callable that made this workload -> the values worth trying.
        name: a name for reports.
    """

    dataset: Any
    step: Callable[[Any], Any] | None = None
    model: Any = None
    tunables: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    name: str | None = None
