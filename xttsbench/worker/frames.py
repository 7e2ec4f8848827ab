"""Where a batch keeps its frames and their true number, as its workload says; no value is fetched here.

The padded size is known from the tensor's shape. The true lengths are values, on a device perhaps, so they are handed
on by reference and summed when no step waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.rows import SegmentRows
from xttsbench.targets.load import Loaded

_HELD: Final = 32
"""Tensors that are held at most: they may be parts of larger ones, which they keep alive, and a killed process loses
the sums of those that it held."""


@dataclass(frozen=True)
class FrameKeys:
    """Keys of the batch: the padded tensor ``[batch, frames, ...]`` and the true lengths ``[batch]``."""

    frames: str | None = None
    lengths: str | None = None

    def padded(self, batch: Any) -> int:
        """Frames of the batch with padding, over all its clips; 0 where the workload does not say."""
        if self.frames is None:
            return 0
        shape = batch[self.frames].shape
        return int(shape[0]) * int(shape[1])

    def lengths_of(self, batch: Any) -> Any:
        """The tensor of true lengths, or ``None``."""
        return None if self.lengths is None else batch[self.lengths]


class HeldLengths:
    """Sums of true lengths for rows that are there already, since the tensors may still be under way on a device."""

    def __init__(self) -> None:
        self._held: list[tuple[SegmentRows, int, Any]] = []

    def add(self, rows: SegmentRows, index: int, lengths: Any) -> None:
        """Sum the lengths of a row's batch later: now, with cold caches, it would cost the loop more than its row."""
        self._held.append((rows, index, lengths))
        if len(self._held) >= _HELD:
            self.fetch()

    def fetch(self) -> None:
        """Sum what is held."""
        for rows, index, lengths in self._held:
            rows.add_to(index, "valid_frames", _sum(lengths))
        self._held.clear()


def _sum(lengths: Any) -> int:
    """The sum of a tensor of lengths; 0 where its device failed: the row must not be lost."""
    try:
        return int(lengths.numpy().sum())
    except tf.errors.OpError:
        return 0


def frame_keys(loaded: Loaded, name: str) -> FrameKeys:
    """The keys that the workload declares, checked against what its dataset yields.

    Raises:
        TargetError: the batch has no such key, or what lies there has too few dimensions.
    """
    workload = loaded.workload
    if workload is None or (workload.frames is None and workload.lengths is None):
        return FrameKeys()
    spec = loaded.dataset.element_spec
    for field, key, rank in (("frames", workload.frames, 2), ("lengths", workload.lengths, 1)):
        if key is None:
            continue
        if not isinstance(spec, Mapping) or key not in spec:
            known = ", ".join(repr(k) for k in spec) if isinstance(spec, Mapping) else f"no keys, it is {spec!r}"[:200]
            raise TargetError(
                f"Target {name!r}: Workload({field}={key!r}) names no part of the batch, which has {known}."
            )
        found = getattr(spec[key], "shape", None)
        if found is None or found.rank is None or found.rank < rank:
            raise TargetError(
                f"Target {name!r}: Workload({field}={key!r}) has shape {found}; at least {rank} dimension(s) of known "
                "number are needed."
            )
    return FrameKeys(workload.frames, workload.lengths)
