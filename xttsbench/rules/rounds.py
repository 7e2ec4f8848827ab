"""What a sweep measures next: many arms are halved in short trials, the rest screened, and the best confirmed afresh.

Each round is a comparison of its own with blocks of its own, made from the results of the rounds before and nothing
else, so that a journal can be replayed: the same results give the same round. Rounds before the confirmation only
choose whom to look at more closely; what they measured never enters the decision (:mod:`xttsbench.rules.winner`), so
the best of many equal arms does not win for having been lucky once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from xttsbench.planning.arms import AGAIN
from xttsbench.records.plan import Comparison, PlannedArm, Procedure
from xttsbench.rules.arm_effects import MIN_BLOCKS

Kind = Literal["halve", "screen", "confirm"]

HALVE_BLOCKS: Final = 1
"""Blocks of a halving round. By simulation (``benchmarks/sweeps``) a second one finds no better arms, and starting its
trials costs more than their steps."""
HALVE_STEPS: Final = 1 / 3
"""Steps of a halving trial, and its window, as a share: what processes differ by does not shrink with more steps."""
HALVE_KEEP: Final = 1 / 3
"""Share of the candidates that a halving round leaves, unless fewer are enough."""
LEAST_SCREEN: Final = 2
"""Blocks from which the noise of a screening is known."""
_SURE: Final = 0.95
"""One-sided level at which a screening says that an arm is not worth confirming."""


@dataclass(frozen=True, slots=True)
class Round:
    """Trials that belong together: each arm of ``comparison`` once in each of its blocks.

    Attributes:
        kind: what the round is for.
        comparison: its arms, the baseline first and, but for halving, the baseline again last; one accelerator.
        first_block: number of its first block; no other round has that number.
    """

    kind: Kind
    comparison: Comparison
    first_block: int

    @property
    def blocks(self) -> range:
        """Numbers of its blocks."""
        return range(self.first_block, self.first_block + self.comparison.blocks)


@dataclass(frozen=True, slots=True)
class Result:
    """What the trials of a round gave.

    Attributes:
        round: that they belong to.
        rates: arm -> block -> samples per second of one process in its steady state.
        gone: arm -> why it is out for good: it died, or its data are not known to be the baseline's.
    """

    round: Round
    rates: Mapping[str, Mapping[int, float]]
    gone: Mapping[str, str]

    def ratios(self, over: str, under: str) -> npt.NDArray[np.float64]:
        """Logarithm of one arm's rate over another's, for each block that has both."""
        above, below = self.rates.get(over, {}), self.rates.get(under, {})
        return np.array([math.log(above[block] / below[block]) for block in sorted(above.keys() & below.keys())])


def next_round(comparison: Comparison, procedure: Procedure, results: Sequence[Result]) -> Round | None:
    """The round that follows, or ``None`` where nothing is left to measure.

    That is so after the confirmation, where the baseline or all candidates are gone, where a screening shows nothing
    that can be faster, and after a round that was not measured to its end.

    Args:
        comparison: all arms of the sweep. It is on one accelerator, the first.
        procedure: how they are narrowed down.
        results: of all rounds so far, in their order.
    """
    if results and (results[-1].round.kind == "confirm" or not complete(results[-1])):
        return None
    if baseline_gone(comparison, results) is not None:
        return None
    left = candidates(comparison, results)
    if left and results:
        left = _going_on(procedure, results[-1], left, comparison.margin)
    if not left:
        return None
    kind = _kind(procedure, len(left), results[-1].round.kind if results else None)
    first_block = results[-1].round.blocks.stop if results else 0
    return Round(kind, _narrowed(comparison, procedure, kind, left, len(results)), first_block)


def complete(result: Result) -> bool:
    """Whether a round was measured to its end: every arm in every block, but for those that are gone.

    Where the baseline or all candidates are gone there is nothing more to measure, which is an end too.
    """
    arms = result.round.comparison.arms
    if any(arm.id in result.gone for arm in arms if arm.role != "candidate"):
        return True
    if all(arm.id in result.gone for arm in arms if arm.role == "candidate"):
        return True
    wanted = set(result.round.blocks)
    return all(wanted <= result.rates.get(arm.id, {}).keys() for arm in arms if arm.id not in result.gone)


def candidates(comparison: Comparison, results: Sequence[Result]) -> list[PlannedArm]:
    """The arms that may still win, in the order of the plan: those of the last round that are not gone."""
    known = {arm.id for arm in results[-1].round.comparison.arms} if results else None
    gone = {name for result in results for name in result.gone}
    return [
        arm
        for arm in comparison.arms
        if arm.role == "candidate" and arm.id not in gone and (known is None or arm.id in known)
    ]


def baseline_gone(comparison: Comparison, results: Sequence[Result]) -> str | None:
    """Why the baseline, in either of its runs, is gone; ``None`` where it is not."""
    both = {comparison.baseline.id, again(comparison).id}
    return next((why for result in results for name, why in result.gone.items() if name in both), None)


def again(comparison: Comparison) -> PlannedArm:
    """The baseline's second run, made where the plan has none: without it the noise of a session is not known."""
    found = next((arm for arm in comparison.arms if arm.role == "aa"), None)
    baseline = comparison.baseline
    return found or baseline.model_copy(update={"id": baseline.id + AGAIN, "role": "aa"})


def expected_trials(comparison: Comparison, procedure: Procedure) -> int:
    """Trials of the whole sweep if no arm ends early and the screening leaves as many finalists as it may."""
    return sum(trials for _, trials in _schedule(comparison, procedure))


def fitted(comparison: Comparison, procedure: Procedure, budget_s: float, trial_s: float) -> Procedure | None:
    """The procedure, with fewer blocks and then fewer finalists until it fits into a budget; ``None`` where it cannot.

    Screening gives way first: a finalist that it overlooks costs less than a confirmation that shows nothing. Then the
    confirmation, which is never under six blocks, then the finalists.

    Args:
        comparison: all arms of the sweep.
        procedure: as wished.
        budget_s: seconds for all trials.
        trial_s: what one trial with all its steps takes, starting it included. One of a halving round is taken to be
            shorter by what its shorter window saves.
    """
    saved_s = (1 - HALVE_STEPS) * min(comparison.window_s, trial_s)
    for finalists in range(procedure.finalists, 0, -1):
        for confirm in range(procedure.confirm_blocks, MIN_BLOCKS - 1, -1):
            for screen in range(procedure.screen_blocks, min(LEAST_SCREEN, procedure.screen_blocks) - 1, -1):
                update = {"finalists": finalists, "confirm_blocks": confirm, "screen_blocks": screen}
                smaller = procedure.model_copy(update=update)
                needed = ((kind == "halve", trials) for kind, trials in _schedule(comparison, smaller))
                if sum(trials * (trial_s - halving * saved_s) for halving, trials in needed) <= budget_s:
                    return smaller
    return None


def _kind(procedure: Procedure, count: int, before: Kind | None) -> Kind:
    """What the next round of so many candidates is for."""
    if before == "screen":
        return "confirm"
    if count + 1 > procedure.halve_above:
        return "halve"
    # Where all of them can be finalists there is nothing to screen for.
    return "screen" if count > procedure.finalists else "confirm"


def _schedule(comparison: Comparison, procedure: Procedure) -> Iterator[tuple[Kind, int]]:
    """Kind and trials of each round, if no arm ends early."""
    count, kind = len(candidates(comparison, ())), None
    while count and kind != "confirm":
        kind = _kind(procedure, count, kind)
        yield kind, _blocks(procedure, kind) * (count + (1 if kind == "halve" else 2))
        count = _halved(procedure, count) if kind == "halve" else min(count, procedure.finalists)


def _blocks(procedure: Procedure, kind: Kind) -> int:
    blocks: dict[Kind, int] = {
        "halve": HALVE_BLOCKS,
        "screen": procedure.screen_blocks,
        "confirm": procedure.confirm_blocks,
    }
    return blocks[kind]


def _halved(procedure: Procedure, count: int) -> int:
    """Candidates that a halving round leaves; with the baseline they are as many as need no halving, or more."""
    return max(math.ceil(count * HALVE_KEEP), procedure.halve_above - 1)


def _narrowed(
    comparison: Comparison, procedure: Procedure, kind: Kind, left: Sequence[PlannedArm], number: int
) -> Comparison:
    """The comparison of a round: those candidates beside the baseline."""
    halving = kind == "halve"
    name = {"halve": f"halving {number + 1}", "screen": "screening", "confirm": "confirmation"}[kind]
    share = HALVE_STEPS if halving else 1.0
    return comparison.model_copy(
        update={
            "name": f"{comparison.name}: {name}",
            "arms": (comparison.baseline, *left, *(() if halving else (again(comparison),))),
            "accelerators": comparison.accelerators[:1],
            "blocks": _blocks(procedure, kind),
            "steps": math.ceil(comparison.steps * share),
            "window_s": comparison.window_s * share,
        }
    )


def _going_on(procedure: Procedure, result: Result, left: Sequence[PlannedArm], margin: float) -> list[PlannedArm]:
    """Those of the candidates left after a complete round that are in the next one, in the order of the plan."""
    names = [arm.id for arm in (result.round.comparison.baseline, *left)]
    logs = np.log([[result.rates[name][block] for block in result.round.blocks] for name in names])
    gains = (logs[1:] - logs[0]).mean(axis=1)
    best_first = np.argsort(-gains, kind="stable")
    if result.round.kind == "halve":
        chosen = best_first[: _halved(procedure, len(left))]
    else:
        worth = _worth_confirming(logs, gains, margin)
        chosen = np.array([arm for arm in best_first[: procedure.finalists] if worth[arm]], dtype=int)
    return [left[arm] for arm in sorted(chosen)]


def _worth_confirming(
    logs: npt.NDArray[np.float64], gains: npt.NDArray[np.float64], margin: float
) -> npt.NDArray[np.bool_]:
    """Which arms a screening leaves in question, given log rates of shape (baseline and arms, blocks).

    Out are those that are surely (one-sided, 95 %) not faster than the baseline by the margin: a confirmation could
    only find them equivalent or slower, and the baseline would be kept. And those that are surely slower than the best
    arm by more than a tie allows: they cannot win, would cost trials, and would make Holm's correction stricter for the
    one that can. Looking at the screening for this is free, since the decision rests on fresh blocks. Screening has few
    blocks, so the noise is that of all arms together: what is left in the rates without the means of arms and blocks.
    """
    arms, blocks = logs.shape
    if blocks < LEAST_SCREEN:
        return np.ones(arms - 1, dtype=bool)
    left = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    degrees = (arms - 1) * (blocks - 1)
    reach = float(special.stdtrit(degrees, _SURE)) * math.sqrt(float((left**2).sum()) / degrees * 2 / blocks)
    return np.asarray((gains + reach > math.log1p(margin)) & (gains + reach >= gains.max() - math.log1p(margin / 2)))
