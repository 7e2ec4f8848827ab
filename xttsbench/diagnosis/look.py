"""Looks at a run while a trial goes on: the verdict so far, and whether what is still to come could change it.

A look after every round is paid for by what it asks: 99 % at the first one, and 95 % later, as at the end; beside
neighbours 99 % at two in a row, since what they take looks like a loss of the target's own for as long as they do. What
a step launches or does on the host is not known before its anatomy is read, and whether the pipeline's Python holds the
interpreter lock not before the pipeline is: a verdict that either could turn is not final.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from xttsbench.analysis.attribution import THRESHOLD
from xttsbench.analysis.pooling import ratio
from xttsbench.analysis.steps import MIN_STEPS
from xttsbench.diagnosis import Diagnosis, build_diagnosis
from xttsbench.diagnosis.bottleneck import SURE
from xttsbench.records.trial import Look, TrialRecord

_FIRST: Final = 0.99
"""Probability that makes a verdict final at the first look of a process, where it has seen enough steps, and at each of
two looks in a row where neighbours disturbed it."""

_SLOW: Final = 0.3
"""Share of the budget from which 95 % are enough for the input beside neighbours, too: batches take seconds, and
what is left is for reading the pipeline, which says where they come from."""


def look(
    trials: Sequence[TrialRecord], environment: Mapping[str, Any], *, budget_s: float = math.inf, seed: int = 0
) -> tuple[Diagnosis, Look]:
    """The diagnosis of trials of which the last one goes on, and what is to be kept of it. Pure."""
    now = trials[-1]
    found = build_diagnosis(trials, environment, seed=seed)
    slow = now.duration_s > _SLOW * budget_s
    late = slow and found.bottleneck == "input" and found.probability >= SURE
    final = (late or _decides(found, now.looks)) and _stays(found, trials, environment, seed)
    seen = Look(after_s=now.duration_s, bottleneck=found.bottleneck, probability=found.probability, final=final)
    return found, seen


def _decides(found: Diagnosis, before: Sequence[Look]) -> bool:
    if found.bottleneck == "inconclusive":
        return False
    if found.disturbed:
        if not before or before[-1].bottleneck != found.bottleneck:
            return False
        return found.at_threshold or min(found.probability, before[-1].probability) >= _FIRST
    if not before:
        return found.at_threshold or (found.probability >= _FIRST and len(found.evidence.steps or ()) >= MIN_STEPS)
    return found.sure


def _stays(found: Diagnosis, trials: Sequence[TrialRecord], environment: Mapping[str, Any], seed: int) -> bool:
    """Whether the verdict is the same whatever the step's anatomy and the pipeline's Python turn out to be."""
    evidence = found.evidence
    if evidence.has_step and evidence.anatomy is None:
        outside = ratio(found.figures.get("outside_s"), found.figures.get("wall_s"))
        if outside is None or outside.high >= THRESHOLD:
            return False
    if evidence.pipeline is not None or found.bottleneck != "compute":
        return True
    with_lock = build_diagnosis(trials, environment, seed=seed, holds_gil=True)
    return with_lock.bottleneck == found.bottleneck
