"""A target that says more about itself than a pair can: its name, what may be tuned, and where its frames are."""

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
        frames: key of the batch under which the padded tensor lies, ``[batch, frames, ...]``.
        lengths: key of the batch under which the true numbers of frames lie, ``[batch]``. With both, throughput is
            given in valid frames per second too, and the share of padding is known.
    """

    dataset: Any
    step: Callable[[Any], Any] | None = None
    model: Any = None
    tunables: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    name: str | None = None
    frames: str | None = None
    lengths: str | None = None
