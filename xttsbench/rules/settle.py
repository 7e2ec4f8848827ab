"""Which bottleneck the resamples settle on, and when none is to be named."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import AVOIDABLE, THRESHOLD, verdicts
from xttsbench.analysis.pooling import Pooled
from xttsbench.analysis.steps import Steps
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.evidence import Evidence

MIN_STEPS: Final = 2
MIN_BATCHES: Final = 5
"""A dataset that ends after fewer is begun again so often that its starts are what is measured."""
CONFIDENT: Final = 0.50
"""Below this share of the resamples no bottleneck is named."""


def settle(
    base: Evidence, parts: Mapping[str, Any], cloud: Mapping[str, Any], wall: Pooled
) -> tuple[str, float, str | None]:
    """The bottleneck, the share of the resamples that agree, and what the others say most."""
    if not base.has_step and not base.emulated:
        return "input", 1.0, None  # a bare dataset has nothing else to wait for
    bottleneck = str(verdicts(dict(parts), np.array([wall.value]))[0])
    names, counts = np.unique(verdicts(dict(cloud), wall.resamples), return_counts=True)
    votes = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
    agreeing = votes.pop(bottleneck, 0)
    runner_up = max(votes, key=lambda name: votes[name]) if votes else None
    return bottleneck, agreeing / len(wall.resamples), runner_up


def why_inconclusive(
    records: Sequence[TrialRecord],
    series: Sequence[Steps],
    bottleneck: str,
    confidence: float,
    runner_up: str | None,
    shares: Sequence[Mapping[str, float]],
) -> str | None:
    """Why no bottleneck is to be named, or ``None`` where one can be.

    Args:
        records: the trials of the target as it is.
        series: their steady steps.
        bottleneck: what the means of all processes say.
        confidence: share of the resamples that say so too.
        runner_up: what the other resamples say most.
        shares: per process, part of the attribution -> share of the step; empty where there is one process.
    """
    steps = sum(len(one) for one in series)
    if steps < MIN_STEPS:
        return f"only {steps} step(s) were measured after the warm-up"
    batches = min(_batches_per_epoch(one) for one in series)
    if batches < MIN_BATCHES:
        return (
            f"the dataset ends after {max(round(batches), 1)} batch(es), so starting it over is most of what was "
            f"measured; give it {MIN_BATCHES} at least, or .repeat()"
        )
    failed = next((trial for trial in records if trial.status != "ok" and not _script_was_over(trial)), None)
    if failed is not None and len(records) == 1:
        return f"the trial ended early ({failed.cause})"
    if not all(_agrees(share, bottleneck) for share in shares):
        found = ", ".join(_largest(share) for share in shares)
        return f"fresh processes of the same target disagree ({found}): something differs from process to process"
    if confidence < CONFIDENT:
        return (
            f"resamples of the same steps disagree ({bottleneck} in {confidence:.0%} of them, {runner_up} next): "
            "measure longer (--steps) or on a quieter machine"
        )
    return None


def _script_was_over(trial: TrialRecord) -> bool:
    """Whether a trial ended while it measured what a script had left behind: the script's own steps are all there."""
    return trial.script is not None and trial.script.ended in ("returned", "exited", "stopped")


def _batches_per_epoch(steps: Steps) -> float:
    """Mean number of batches before the dataset ended; infinite where it never did."""
    epochs = int(steps.epoch.max() - steps.epoch.min()) if len(steps) else 0
    return len(steps) / epochs if epochs else math.inf


def _agrees(shares: Mapping[str, float], bottleneck: str) -> bool:
    """Whether one process alone is compatible with the verdict of all, with half the threshold as the margin."""
    if bottleneck == "compute":
        return max(shares[name] for name in AVOIDABLE) < 1.5 * THRESHOLD
    return shares[bottleneck] >= 0.5 * THRESHOLD


def _largest(shares: Mapping[str, float]) -> str:
    name = max(AVOIDABLE, key=lambda part: shares[part])
    return f"{name} {shares[name]:.0%}"
