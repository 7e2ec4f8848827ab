"""The results of a sweep's rounds from its journal: the rounds are made again, each from the trials of those before.

Nothing but the trials is needed, so a run that was killed goes on where it was, and a report that is built later comes
to the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.records.plan import Comparison, Procedure
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.arm_runs import collect, parity_found
from xttsbench.rules.rounds import Result, Round, next_round


def results_of(comparison: Comparison, procedure: Procedure, trials: Sequence[TrialRecord]) -> tuple[Result, ...]:
    """The results of all rounds that have trials, in their order; the last one may be incomplete.

    The group of a trial is the name of its round's comparison. Whether an arm feeds the baseline's data is told by the
    trials of parity of the first round, for all rounds. An arm of which it is not known is gone like one that feeds
    other data: it could not be named the winner.

    Args:
        comparison: all arms of the sweep.
        procedure: how they are narrowed down.
        trials: of the journal; those of other groups, and interrupted ones, are left alone.
    """
    ended = [trial for trial in trials if trial.status != "interrupted"]
    results: list[Result] = []
    while (following := next_round(comparison, procedure, results)) is not None:
        result = _result(following, ended, first=not results)
        if not result.rates and not result.gone:
            break
        results.append(result)
    return tuple(results)


def _result(asked: Round, trials: Sequence[TrialRecord], *, first: bool) -> Result:
    """What the trials of one round gave."""
    gone = _other_data(asked.comparison, trials) if first else {}
    rates: dict[str, dict[int, float]] = {}
    (group,) = collect(asked.comparison, trials)
    for runs in group.arms:
        own = {block: steps.rate_per_s for block, steps in sorted(runs.steps.items()) if block in asked.blocks}
        if runs.ended is not None:
            gone.setdefault(runs.arm.id, runs.ended)
        if own:
            rates[runs.arm.id] = own
    return Result(asked, rates, gone)


def _other_data(comparison: Comparison, trials: Sequence[TrialRecord]) -> dict[str, str]:
    """Arm -> why it cannot win for its data, or its losses."""
    data = parity_found(comparison, trials)
    gone = {arm: f"refused: {data.why_refused(arm)}" for arm in data.differences}
    for arm, why in data.unknown.items():
        gone.setdefault(arm, f"whether it yields the baseline's data is not known: {why}")
    if data.why_failed is not None:
        gone[comparison.baseline.id] = f"its data could not be read: {data.why_failed}"
    return gone
