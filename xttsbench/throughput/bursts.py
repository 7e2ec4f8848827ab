"""What a buffer gives an input that comes in bursts: batches that are late now and then beside a steady step.

Pure. Rates alone do not tell it: an input that is fast enough on the whole still holds the step up where one batch
takes longer than what is kept ready lasts. The recurrence below is exact for one sequence of times; how long the input
took for each batch is read from the waits of the steps that were measured, as far as they show it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
_PASSES: Final = 3
"""How often the sequence is gone through, so that filling the buffer for the first time counts little."""
_HALVINGS: Final = 40
_NO_WAIT: Final = 0.02
"""A wait below this share of the mean step is the hand-over of a batch that was ready."""


def period_s(production_s: FloatArray, rest_s: FloatArray, ahead: int) -> float:
    """Mean seconds from one batch to the next, with a buffer of ``ahead`` batches between input and step.

    The input begins batch ``i`` when it has ended ``i - 1`` and the buffer has room again, which is when ``i - ahead``
    was taken (``tf.data``'s prefetch leaves the room of the batch that it makes free); the step takes it when it is
    there and the step before has ended. Without a buffer the two take turns.

    Args:
        production_s: what the input takes for each batch, ``(n,)`` seconds.
        rest_s: what the consumer does with each, ``(n,)`` seconds.
        ahead: batches kept ready at most.
    """
    count = len(production_s)
    if not count:
        return 0.0
    if ahead < 1:
        return float(production_s.mean() + rest_s.mean())
    taken_s = [0.0] * ahead
    ended_s = ready_s = first_s = 0.0
    for number in range(count * _PASSES):
        index = number % count
        ended_s = max(ended_s, taken_s[number % ahead]) + float(production_s[index])
        took_s = max(ended_s, ready_s)
        taken_s[number % ahead] = took_s
        ready_s = took_s + float(rest_s[index])
        if number == count - 1:
            first_s = ready_s
    return (ready_s - first_s) / (count * (_PASSES - 1))


def production_times_s(wait_s: FloatArray, rest_s: FloatArray, ahead: int, mean_s: float) -> FloatArray:
    """What the input took for each batch, from the waits of the steps that took them.

    Where a step waited, its batch was ready when the wait ended. Of a batch that nobody waited for only an upper bound
    is known; all of these are taken to have had the same time, the one that gives the mean.

    Args:
        wait_s: inside ``next()``, ``(n,)`` seconds.
        rest_s: the remainder of each step, ``(n,)`` seconds.
        ahead: batches that were kept ready, at least 1.
        mean_s: what the input takes for a batch by itself, as it was measured or modelled.
    """
    low_s, high_s = 0.0, mean_s
    found = _read(wait_s, rest_s, ahead, high_s)
    if not len(found) or found.mean() <= mean_s:
        return found
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        found = _read(wait_s, rest_s, ahead, middle_s)
        low_s, high_s = (low_s, middle_s) if found.mean() > mean_s else (middle_s, high_s)
    return found


def _read(wait_s: FloatArray, rest_s: FloatArray, ahead: int, unseen_s: float) -> FloatArray:
    """The times where those of batches that nobody waited for are ``unseen_s``, or what there was time for."""
    threshold_s = _NO_WAIT * float((wait_s + rest_s).mean()) if len(wait_s) else 0.0
    found = np.empty(len(wait_s))
    taken_s = [0.0] * max(ahead, 1)
    ended_s = ready_s = 0.0
    for number, (waited_s, busy_s) in enumerate(zip(wait_s, rest_s, strict=True)):
        took_s = ready_s + float(waited_s)
        began_s = max(ended_s, taken_s[number % len(taken_s)])
        ended_s = max(took_s if waited_s > threshold_s else min(took_s, began_s + unseen_s), began_s)
        found[number] = ended_s - began_s
        taken_s[number % len(taken_s)] = took_s
        ready_s = took_s + float(busy_s)
    return found
