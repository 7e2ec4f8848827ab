"""The report of a sweep from the files of its run: plan, environment and trials in, record out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xttsbench import __version__
from xttsbench.comparison.arms import compare
from xttsbench.comparison.sweep import Choice, again, baseline_gone, choose, seen_in
from xttsbench.errors import JournalError
from xttsbench.records.plan import Comparison, PlannedVariant, RunPlan
from xttsbench.records.report import Best, Report
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.best import fingerprint_of
from xttsbench.workflows.reports.scenario import assemble_compared


def assemble_sweep(
    plan: RunPlan, environment: Mapping[str, Any], trials: Sequence[TrialRecord], directory: Path
) -> Report:
    """Everything that the run's files say, as the report record.

    All configurations are one group, whatever they were measured in; the verdict is on the baseline.

    Raises:
        JournalError: the plan holds no comparison or no procedure, so it is not that of a sweep.
    """
    comparison, procedure = plan.comparison, plan.procedure
    if comparison is None or procedure is None:
        raise JournalError("plan.json is of a sweep, and names no configurations or no procedure; run the sweep again.")
    comparison = comparison.model_copy(
        update={"arms": _with_again(comparison), "accelerators": comparison.accelerators[:1]}
    )
    seen = seen_in(comparison, trials)
    choice = choose(comparison, procedure, seen)
    compared = replace(compare(comparison, trials), sentences=(choice.why,))
    report = assemble_compared(plan, environment, trials, comparison=comparison, compared=compared)
    waiting = any(arm.role == "candidate" and arm.id not in seen.gone for arm in comparison.arms)
    begun = any(trial.spec.kind == "arm" for trial in trials)
    if (not any(seen.processes.values()) and (waiting or not begun)) or baseline_gone(comparison, seen) is not None:
        why = "the sweep ended before anything could be chosen"
        return report.model_copy(update={"unmeasured": report.unmeasured | {"best": why}})
    return report.model_copy(update={"best": _best(plan, comparison, choice, environment, directory)})


def _with_again(comparison: Comparison) -> tuple[PlannedVariant, ...]:
    arms = comparison.arms
    return arms if any(arm.role == "aa" for arm in arms) else (*arms, again(comparison))


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
        rounds=choice.rounds,
        evidence=choice.evidence,
        accelerator={"kind": used.kind, "label": used.label, "source": used.source},
        steps_per_trial=comparison.steps,
        tied_with=choice.tied_with,
        smallest_visible_effect=choice.smallest_visible_effect,
        fingerprint=fingerprint_of(environment, code=plan.code, data=plan.data),
        xttsbench_version=__version__,
    )
