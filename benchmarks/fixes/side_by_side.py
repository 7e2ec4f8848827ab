"""The original, the accepted fixes, the hand-tuned version and AUTOTUNE, side by side in one session.

A process of each lives beside those of the others, and they take turns; then fresh processes of all of them do the
same. Ratios are of the turns that two versions had in one round, with the tool's own weights and noise: how long a
version lives costs no accuracy, and what processes differ by is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from faulty import HERE, Case
from versions import AUTOTUNE, ORIGINAL

from xttsbench.analysis.evidence import interval
from xttsbench.comparison.effects import Weighed, weigh
from xttsbench.comparison.runs import VariantRuns, collect
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.records.plan import Comparison, PlannedVariant
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.session import Session

OURS, TUNED = "ours", "hand-tuned"
RATIOS = ((OURS, ORIGINAL), (OURS, TUNED), (OURS, AUTOTUNE), (TUNED, ORIGINAL), (AUTOTUNE, ORIGINAL))
GROUP = "fixes"
STEPS = 5000  # as many as a trial records, so that it is the window that ends all but the fastest
TRIAL_S, STALL_S = 90.0, 45.0
ROUNDS = 8  # of the processes that live beside one another, at most; disturbed ones are measured again
LEAST_ROUNDS = 3
"""Of each process: of fewer all may turn out to have been disturbed, once what neighbours did is known to the end."""
SURE_WITHIN = 0.07
"""A version of which the speed-up is known within this share, in as many processes as were asked for, is left alone."""
_BLOCK_S = 4 * TRIAL_S


def planned(case: Case, files: Path, fixes: str | None, *, blocks: int, window_s: float) -> Comparison:
    """The comparison of a case's versions; without accepted fixes the original stands for ours."""

    def arm(name: str, *, version: str = ORIGINAL, tuned: bool = False, fix: str | None = None) -> PlannedVariant:
        return PlannedVariant(
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
    scripts = comparison.script is not None
    with Session(folder, print_to_stderr=True, budget_s=comparison.blocks * _BLOCK_S, scripts=scripts) as session:
        begin(session)
        while (block := 1 + max((trial.spec.block for trial in session.trials), default=-1)) < comparison.blocks:
            found = compare_arms(
                comparison,
                session,
                first_block=block,
                rounds=ROUNDS,
                budget_s=_BLOCK_S,
                window_s=comparison.window_s,
                parity=False,
                seed=seed + block,
                enough=lambda trials: sure(comparison, trials),
            )
            if any(trial.status == "interrupted" for trial in found):
                raise KeyboardInterrupt
            if not found or any(trial.status != "ok" for trial in found):
                break
        trials = session.trials
    return told(comparison, trials)


def sure(comparison: Comparison, trials: Sequence[TrialRecord]) -> set[str]:
    """Versions that need no more rounds in these processes.

    In the first ones half of the rounds will do: the others tell more.
    """
    weighed = _weighed(comparison, trials)
    turns = weighed.pairs.turns
    newest = max(trial.spec.block for trial in trials)
    found = set()
    for runs in weighed.group.candidates:
        name = runs.arm.id
        rounds = Counter(block for block, _ in turns[name].keys() & turns[ORIGINAL].keys())
        if newest + 1 < comparison.blocks:
            if rounds[newest] >= ROUNDS // 2:
                found.add(name)
        elif min(rounds[block] for block in range(comparison.blocks)) >= LEAST_ROUNDS:
            ratio = _ratio(weighed, name, ORIGINAL)
            if ratio is not None and ratio["high"] <= (1 + SURE_WITHIN) * ratio["estimate"]:
                found.add(name)
    return found


def told(comparison: Comparison, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """What the trials of a comparison come to.

    Returns:
        ``steps_per_s``: arm -> geometric mean over its blocks. ``ended``: arm -> how it ended, where it did.
        ``ratios``: ``ours / hand-tuned`` and so on -> of the samples per second: ``estimate``, ``low`` and ``high``
        (95 %), ``rounds`` and ``blocks`` (pairs of processes) that it rests on; ``None`` where no round has both.
        ``notes``: arm -> what its first trial said of its caches.
    """
    weighed = _weighed(comparison, trials)
    arms = {runs.arm.id: runs for runs in weighed.group.arms}
    per_s = {name: _steps_per_s(runs) for name, runs in arms.items()}
    per_s.setdefault(OURS, per_s[ORIGINAL])

    def named(name: str) -> str:
        return name if name in arms else ORIGINAL

    return {
        "steps_per_s": per_s,
        "ended": {name: runs.ended for name, runs in arms.items() if runs.ended},
        "ratios": {f"{over} / {under}": _ratio(weighed, named(over), named(under)) for over, under in RATIOS},
        "notes": {
            name: list(trial.notes)
            for name, runs in arms.items()
            for trial in list(runs.trials.values())[:1]
            if trial.notes
        },
    }


def _weighed(comparison: Comparison, trials: Sequence[TrialRecord]) -> Weighed:
    return weigh(collect(comparison, trials)[0], comparison.margin)


def _ratio(weighed: Weighed, over: str, under: str) -> dict[str, Any] | None:
    sample = weighed.pairs.sample(over, under)
    if sample is None:
        return None
    found = interval(sample, weighed.noise_scale)
    return found.model_dump() | {"rounds": sample.rounds, "blocks": sample.processes}


def _steps_per_s(runs: VariantRuns) -> float | None:
    rates = [len(steps) / float(steps.wall_s.sum()) for steps in runs.steps.values()]
    return float(np.exp(np.mean(np.log(rates)))) if rates else None
