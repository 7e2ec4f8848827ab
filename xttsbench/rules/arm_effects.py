"""Each arm's speed against its group's baseline, from paired blocks, and whether the session is quiet enough to say.

The measure is samples per second, so that arms with batches of another size compare too. From six blocks on the log
ratios of the blocks decide (:mod:`xttsbench.analysis.candidates`); with fewer there is an interval over processes and
steps, and no decision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.candidates import decide_together
from xttsbench.analysis.decision import paired_t_interval, smallest_visible_effect
from xttsbench.analysis.pooling import Columns, Pooled, interval_of, pool
from xttsbench.analysis.steps import Steps
from xttsbench.records.base import Estimate
from xttsbench.rules.arm_runs import ArmRuns, GroupRuns

MIN_BLOCKS: Final = 6
"""The sign-flip test cannot reach 5 % with fewer."""
NOISE_SIDE: Final = 0.10
"""An A/A interval that is wider to a side is a noisy session's."""

Decision = Literal["faster", "slower", "equivalent", "inconclusive"]


@dataclass(frozen=True)
class Effect:
    """What the paired blocks say of one arm; ``why`` is why nothing was decided, where it was not."""

    blocks: int
    ratio: Estimate | None = None
    decision: Decision = "inconclusive"
    p_value: float | None = None
    why: str | None = None


@dataclass(frozen=True)
class Noise:
    """What the baseline's second run says of the session; ``None`` where it cannot tell, with the reason in ``why``."""

    ratio: Estimate | None = None
    noisy: bool | None = None
    smallest_visible_effect: float | None = None
    why: str | None = None


def throughput(columns: Columns) -> np.ndarray:
    """Samples per second of each row of columns of shape (resamples, steps)."""
    samples = columns["batch_size"].sum(axis=1)
    counted = np.where(samples > 0, samples, columns["batch_size"].shape[1])  # without a batch dimension, steps
    return np.asarray(counted / columns["wall_s"].sum(axis=1))


def effects(group: GroupRuns, margin: float, rng: np.random.Generator) -> dict[str, Effect]:
    """Candidate -> its effect; the arms that ended are left out."""
    ratios = {runs.arm.id: log_ratios(group.baseline, runs) for runs in group.candidates if runs.ended is None}
    enough = {name: own for name, own in ratios.items() if len(own) >= MIN_BLOCKS}
    decided = decide_together(enough, margin=margin, min_blocks=MIN_BLOCKS)
    found = {}
    for runs in group.candidates:
        name = runs.arm.id
        if name not in ratios:
            continue
        if name in decided:
            decision, p_value = decided[name].decision, decided[name].p_value
            why = _undecided(decision.effect, p_value, margin) if decision.decision == "inconclusive" else None
            found[name] = Effect(len(ratios[name]), decision.effect, decision.decision, p_value, why)
        else:
            found[name] = Effect(
                len(ratios[name]), bootstrap_ratio(group.baseline, runs, rng), why=_too_few(len(ratios[name]))
            )
    return found


def noise(group: GroupRuns, rng: np.random.Generator) -> Noise:
    """The baseline against itself.

    Noisy where the interval excludes 1 at 1 %, or is wider than 5 % to a side. Below six blocks only the second can be
    told, and only that it is so.
    """
    if group.again is None:
        return Noise(why="the baseline is measured a second time from two blocks on")
    ratios = log_ratios(group.baseline, group.again)
    if len(ratios) < MIN_BLOCKS:
        ratio = bootstrap_ratio(group.baseline, group.again, rng)
        visible = smallest_visible_effect(ratios) if len(ratios) >= 2 else None
        noisy = True if ratio is not None and _wide(ratio) else None
        return Noise(ratio, noisy, visible, f"{_count(len(ratios))}; telling a quiet session takes {MIN_BLOCKS}")
    return Noise(paired_t_interval(ratios), is_noisy(ratios), smallest_visible_effect(ratios))


def is_noisy(ratios: npt.ArrayLike) -> bool:
    """Whether log ratios of the baseline to itself, six at least, call the session noisy; see :func:`noise`."""
    sure = paired_t_interval(ratios, 0.99)
    return _wide(paired_t_interval(ratios)) or not sure.low <= 1 <= sure.high


def log_ratios(baseline: ArmRuns, other: ArmRuns) -> list[float]:
    """Per block that has both, the logarithm of the other's samples per second over the baseline's."""
    blocks = sorted(baseline.steps.keys() & other.steps.keys())
    return [math.log(other.steps[block].rate_per_s / baseline.steps[block].rate_per_s) for block in blocks]


def bootstrap_ratio(baseline: ArmRuns, other: ArmRuns, rng: np.random.Generator) -> Estimate | None:
    """The ratio with an interval over processes and, within each, over blocks of steps; ``None`` without a pair."""
    blocks = sorted(baseline.steps.keys() & other.steps.keys())
    if not blocks:
        return None
    before, after = (_pooled([runs.steps[block] for block in blocks], rng) for runs in (baseline, other))
    return interval_of(after.value / before.value, after.resamples / before.resamples)


def _pooled(processes: Sequence[Steps], rng: np.random.Generator) -> Pooled:
    columns = [{"wall_s": steps.wall_s, "batch_size": steps.batch_size.astype(np.float64)} for steps in processes]
    return pool(columns, {"rate": throughput}, rng)["rate"]


def _wide(ratio: Estimate) -> bool:
    return max(ratio.estimate / ratio.low, ratio.high / ratio.estimate) > 1 + NOISE_SIDE


def _count(blocks: int) -> str:
    return f"{blocks} block" if blocks == 1 else f"{blocks} blocks"


def _too_few(blocks: int) -> str:
    return f"{_count(blocks)}; a decision takes {MIN_BLOCKS}"


def _undecided(effect: Estimate, p_value: float, margin: float) -> str:
    return (
        f"the interval {effect.low:.3f} to {effect.high:.3f} shows neither a difference (p {p_value:.2g} with Holm's "
        f"correction) nor one within {margin:.0%}; more blocks narrow it"
    )
