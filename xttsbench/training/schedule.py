"""The learning rate of each step, a pure function of its number."""

from __future__ import annotations

import math

from xttsbench.xtts.training_settings import ScheduleSettings


def learning_rate(settings: ScheduleSettings, highest: float, step: int, steps: int) -> float:
    """Return the learning rate of a step.

    It rises along a straight line to ``highest``, which the last of the ``warmup_steps`` has, and the first is above 0.
    After that it stays (``constant``), falls as ``sqrt(warmup_steps / n)`` in the n-th step (``noam``, Vaswani et al.,
    "Attention is all you need", 2017), or takes half a period of a cosine down to ``final_share * highest``, which it
    would have after the last step (``cosine``, Loshchilov and Hutter, "SGDR", 2017).

    Args:
        settings: kind, length of the warm-up, and where the cosine ends.
        highest: the highest rate.
        step: number of the step from 0: the steps that ended before it.
        steps: steps of the whole run.
    """
    warmup = settings.warmup_steps
    if step < warmup:
        return highest * (step + 1) / warmup
    if settings.kind == "noam":
        return highest * math.sqrt(warmup / (step + 1))
    if settings.kind == "cosine":
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return highest * (settings.final_share + (1 - settings.final_share) * (1 + math.cos(math.pi * done)) / 2)
    return highest
