"""What it costs to watch the loop: a small compiled step with the watch's calls and without, in turn."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any, Final

import tensorflow as tf

from xttsbench.records.train_history import Begun
from xttsbench.records.training import Interval
from xttsbench.records.trial import Looking
from xttsbench.training.stream import Fetched
from xttsbench.worker.channel import Channel
from xttsbench.worker.training.watch import Watch

_PAIRS: Final = 20
_STEPS: Final = 50
"""Of an interval, whose rows and losses are put into words as well."""


class _Nowhere(Channel):
    """A channel that puts messages into words, and sends none."""

    def __init__(self) -> None:
        pass

    def send(self, message: dict[str, Any]) -> None:
        """Do what sending costs but for the pipe."""
        json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def measure_looking(fetched: Fetched) -> Looking:
    """Mean cost of watching per step, in seconds of this thread's processor time: a neighbour's work is no cost.

    Args:
        fetched: a batch as the stream gives it; its tensors are not looked at.
    """
    step = tf.function(lambda values: values + 1)
    values = tf.zeros([4, 4])
    step(values)
    watch = Watch(_Nowhere(), lambda _: _BEGUN)
    watch.begun(0)
    differences = []
    for pair in range(_PAIRS):
        times = {}
        for watched in (True, False) if pair % 2 else (False, True):
            began = time.thread_time_ns()
            for _ in range(_STEPS):
                if watched:
                    watch.fetching()
                    watch.fetched(fetched)
                result = step(values)
                if watched:
                    watch.stepped(result)
            if watched:
                watch.interval(_INTERVAL)
            times[watched] = time.thread_time_ns() - began
        differences.append((times[True] - times[False]) / _STEPS)
    return Looking(
        overhead_s=max(statistics.median(differences), 0.0) / 1e9,
        pairs=_PAIRS,
        method=f"{_PAIRS} pairs of {_STEPS} small compiled steps, watched and bare in turn, processor time, median",
    )


_BEGUN: Final = Begun(
    step=0,
    steps=_STEPS,
    replicas=1,
    accumulation=1,
    clips_per_update=1.0,
    updates_per_epoch=1,
    clips=1,
    parameters=1,
    shapes=1,
    setup_s=0.0,
    warm_up_s=0.0,
)
_INTERVAL: Final = Interval(
    first_step=1,
    steps=_STEPS,
    loss=0.1234567,
    mel=0.1234567,
    stop=0.1234567,
    guided=0.1234567,
    gradient_norm=0.1234567,
    skipped=0,
    learning_rate=0.001,
    epoch=0,
    samples=_STEPS,
    valid_frames=_STEPS,
    frames=_STEPS,
    wall_s=0.1234567,
)
