"""What it costs to watch the loop: a small compiled step with the watch's calls and without, in turn."""

from __future__ import annotations

import json
from typing import Any, Final

import tensorflow as tf

from xttsbench.records.rows import RowMemory
from xttsbench.records.training import Begun, Interval
from xttsbench.records.trial import MeasurementOverhead
from xttsbench.training.stream import Fetched
from xttsbench.worker.channel import Channel
from xttsbench.worker.overhead import overhead_of
from xttsbench.worker.training.watch import Watch


class _Nowhere(Channel):
    """A channel that puts messages into words, and sends none."""

    def __init__(self) -> None:
        self.rows = RowMemory(bytearray(RowMemory.size_bytes(64)))

    def send(self, message: dict[str, Any]) -> None:
        """Do what sending costs but for the pipe."""
        json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def measure_overhead(fetched: Fetched) -> MeasurementOverhead:
    """Mean cost of watching a step of an interval, whose losses are told as well.

    Args:
        fetched: a batch as the stream gives it; its tensors are not looked at.
    """
    step = tf.function(lambda values: values + 1)
    values = tf.zeros([4, 4])
    step(values)
    watch = Watch(_Nowhere(), lambda _: _BEGUN)
    watch.begun(0)

    def watched(steps: int) -> None:
        for _ in range(steps):
            watch.fetching()
            watch.fetched(fetched)
            watch.stepped(step(values))
        watch.interval(_INTERVAL)

    def bare(steps: int) -> None:
        for _ in range(steps):
            step(values)

    return overhead_of(watched, bare, "one small compiled call each, told of as an interval")


_BEGUN: Final = Begun.model_validate(dict.fromkeys(Begun.model_fields, 1))
_INTERVAL: Final = Interval.model_validate(dict.fromkeys(Interval.model_fields, 1))
