"""The report of a sweep from the files of its run: plan, environment and trials in, record out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xttsbench import __version__
from xttsbench.errors import JournalError
from xttsbench.records.best import Best
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.arms import ComparedArms, compare
from xttsbench.rules.replay import results_of
from xttsbench.rules.rounds import baseline_gone, next_round
from xttsbench.rules.winner import Choice, choose
from xttsbench.workflows.assemble_run import assemble_compared
from xttsbench.workflows.best import fingerprint_of


def assemble_sweep(
    plan: RunPlan, environment: Mapping[str, Any], trials: Sequence[TrialRecord], directory: Path
) -> Report:
    """Everything that the run's files say, as the report record.

    Every round is a group of arms of its own, the last one first; the verdict and the headline are about that one.

    Raises:
        JournalError: the plan holds no comparison or no procedure, so it is not that of a sweep.
    """
    comparison, procedure = plan.comparison, plan.procedure
    if comparison is None or procedure is None:
        raise JournalError("plan.json is of a sweep, and names no arms or no procedure; run the sweep again.")
    results = results_of(comparison, procedure, trials)
    rounds = [result.round for result in results]
    if not rounds and (first := next_round(comparison, procedure, ())) is not None:
        rounds = [first]
    choice = choose(comparison, procedure, results)
    compared: list[ComparedArms] = []
    for now in reversed(rounds):  # the round that decides comes first
        first_arm = sum(len(found.arms) for found in compared)
        compared.append(compare(now.comparison, trials, seed=plan.seed, first_arm=first_arm))
    decides = replace(compared[0], sentences=(choice.why,), parity=compared[-1].parity)
    report = assemble_compared(plan, environment, trials, comparison=rounds[-1].comparison, compared=decides)
    unmeasured = {path: why for found in compared[1:] for path, why in found.unmeasured.items()} | report.unmeasured
    if report.parity is not None:
        unmeasured.pop("parity", None)  # the data are compared once, in the first round
    report = report.model_copy(
        update={
            "arms": (*report.arms, *(arm for found in compared[1:] for arm in found.arms)),
            "unmeasured": unmeasured,
            "target": report.target | {"scenario": comparison.name, "description": comparison.description},
        }
    )
    if not any(result.rates for result in results) or baseline_gone(comparison, results) is not None:
        why = "the sweep ended before anything could be chosen"
        return report.model_copy(update={"unmeasured": report.unmeasured | {"best": why}})
    return report.model_copy(update={"best": _best(plan, comparison, choice, environment, directory)})


def _best(
    plan: RunPlan,
    comparison: Comparison,
    choice: Choice,
    environment: Mapping[str, Any],
    directory: Path,
) -> Best:
    """The content of ``best.yaml``: the winner, or the baseline where none is proven."""
    arm = next(arm for arm in comparison.arms if arm.id == choice.winner)
    used = comparison.accelerators[0]
    return Best(
        run=directory.name,
        target=None if comparison.bundled else comparison.target,
        workload="xtts" if comparison.bundled else None,
        arm=arm.id,
        config=arm.kwargs,
        proven=choice.proven,
        decided=choice.decided,
        why=choice.why,
        effect=choice.effect,
        baseline={"arm": comparison.baseline.id, "config": comparison.baseline.kwargs},
        blocks=choice.blocks,
        accelerator={"kind": used.kind, "label": used.label, "source": used.source},
        steps_per_trial=comparison.steps,
        tied_with=choice.tied_with,
        smallest_visible_effect=choice.smallest_visible_effect,
        fingerprint=fingerprint_of(environment, code=plan.code, data=plan.data),
        xttsbench_version=__version__,
    )
