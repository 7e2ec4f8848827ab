"""The original, the accepted fixes, the hand-tuned version and AUTOTUNE, in one session of interleaved blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from faulty import HERE, Case
from versions import AUTOTUNE, ORIGINAL

from xttsbench.analysis.evidence import LEAST_SCALE, interval
from xttsbench.comparison.runs import ArmRuns, collect
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.records.plan import Comparison, PlannedArm
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.session import Session

OURS, TUNED = "ours", "hand-tuned"
RATIOS = ((OURS, ORIGINAL), (OURS, TUNED), (OURS, AUTOTUNE), (TUNED, ORIGINAL), (AUTOTUNE, ORIGINAL))
GROUP = "fixes"
STEPS = 5000
"""As many as a trial records, so that it is the window that ends all but the fastest."""
TRIAL_S, STALL_S = 90.0, 45.0
_BLOCK_S = 4 * TRIAL_S


def planned(case: Case, files: Path, fixes: str | None, *, blocks: int, window_s: float, cache_dir: Path) -> Comparison:
    """The comparison of a case's versions; without accepted fixes the original stands for ours."""

    def arm(name: str, *, version: str = ORIGINAL, tuned: bool = False, fix: str | None = None) -> PlannedArm:
        return PlannedArm(
            id=name,
            role="baseline" if name == ORIGINAL else "candidate",
            config={"fix": fix} if fix else {"version": name},
            kwargs={"target": case.target, "version": version} | case.settings(files, tuned=tuned),
            fix=fix,
        )

    ours = (arm(OURS, fix=fixes),) if fixes else ()
    return Comparison(
        name=GROUP,
        target=f"{HERE / 'versions.py'}:make",
        arms=(arm(ORIGINAL), *ours, arm(TUNED, tuned=True), arm(AUTOTUNE, version=AUTOTUNE)),
        accelerators=(parse_accelerator(case.accelerator()),),
        blocks=blocks,
        steps=STEPS,
        window_s=window_s,
        trial_s=TRIAL_S,
        stall_s=STALL_S,
        cache_dir=str(cache_dir),
        fill_caches=True,
        fill_s=STALL_S / 2,
    )


def measured(
    comparison: Comparison, folder: Path, *, seed: int = 0, begin: Callable[[Session], None] = lambda _: None
) -> dict[str, Any]:
    """Run the comparison, its journal in ``folder``, and say what it came to; see :func:`told`.

    ``begin`` is called with the session before its first trial.

    Raises:
        KeyboardInterrupt: it was interrupted; the session takes Ctrl-C for a trial's end.
    """
    budget_s = comparison.blocks * _BLOCK_S
    scripts = comparison.script is not None
    with Session(folder, print_to_stderr=True, budget_s=budget_s, scripts=scripts) as session:
        begin(session)
        compare_arms(comparison, session, budget_s=budget_s, window_s=comparison.window_s, parity=False, seed=seed)
        trials = session.trials
    if any(trial.status == "interrupted" for trial in trials):
        raise KeyboardInterrupt
    return told(comparison, trials)


def told(comparison: Comparison, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """What the trials of a comparison come to.

    Returns:
        ``steps_per_s``: arm -> geometric mean over its blocks. ``ended``: arm -> how it ended, where it did.
        ``ratios``: ``ours / hand-tuned`` and so on -> :func:`ratio` of the samples per second. ``notes``: arm -> what
        its first trial said of its caches.
    """
    arms = {runs.arm.id: runs for runs in collect(comparison, trials)[0].arms}
    rates = {name: {block: steps.rate_per_s for block, steps in runs.steps.items()} for name, runs in arms.items()}
    per_s = {name: _steps_per_s(runs) for name, runs in arms.items()}
    if OURS not in arms:
        rates[OURS], per_s[OURS] = rates[ORIGINAL], per_s[ORIGINAL]
    return {
        "steps_per_s": per_s,
        "ended": {name: runs.ended for name, runs in arms.items() if runs.ended},
        "ratios": {f"{over} / {under}": ratio(rates[over], rates[under]) for over, under in RATIOS},
        "notes": {
            name: list(trial.notes)
            for name, runs in arms.items()
            for trial in list(runs.trials.values())[:1]
            if trial.notes
        },
    }


def ratio(over: Mapping[int, float], under: Mapping[int, float]) -> dict[str, Any] | None:
    """The geometric mean of the blocks' ratios with its 95 % interval, which takes two blocks; or ``None``."""
    logs = [math.log(over[block] / under[block]) for block in sorted(over.keys() & under.keys())]
    if not logs:
        return None
    if len(logs) == 1:
        return {"estimate": math.exp(logs[0]), "low": None, "high": None, "blocks": 1}
    return interval(logs, LEAST_SCALE).model_dump() | {"blocks": len(logs)}


def _steps_per_s(runs: ArmRuns) -> float | None:
    rates = [len(steps) / float(steps.wall_s.sum()) for steps in runs.steps.values()]
    return float(np.exp(np.mean(np.log(rates)))) if rates else None
