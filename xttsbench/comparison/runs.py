"""The trials of a comparison by accelerator, arm, block and round: what there is to compare, and what ended early.

What neighbours took in each turn, and the part of it that speeds follow (:func:`taken_in`), is an analysis of
covariance (Cochran 1957, "Analysis of covariance: its nature and uses", Biometrics 13, 261-281). Neighbours leave the
configurations of a round unequal shares of the processors; how much they left in a turn is measured beside it and does
not depend on what ran in it. A speed follows that share to the power of a slope: 1 where the processors limit it, 0
where it waits for something else. One slope is fitted to the rounds of all configurations beside one another, each
about its own mean, so that it takes nothing from what they differ by: on a machine of which 15 % was stolen the noise
of a round fell from 14 to 8 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from xttsbench.analysis.disturbance import node_of, without
from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.records.plan import Accelerator, Comparison, PlannedVariant
from xttsbench.records.trial import Parity, TrialRecord

Turn = tuple[int, int]
"""Block and round: one turn of a configuration in one of its processes."""


@dataclass(frozen=True)
class VariantRuns:
    """One configuration on one accelerator.

    Attributes:
        trials: block -> its trial, of those that ended well and measured something.
        steps: block -> the steady steps of that trial, of all its rounds.
        ended: how the configuration ended, where a trial did not end well.
    """

    arm: PlannedVariant
    trials: Mapping[int, TrialRecord]
    steps: Mapping[int, Steps]
    ended: str | None

    @cached_property
    def turns(self) -> dict[Turn, Steps]:
        """The same steps, by block and round."""
        return turns_of(self.steps)

    @cached_property
    def has_step(self) -> bool:
        """Whether something consumes the batches beside an emulated wait."""
        return any(trial.segment("warm_up") is not None for trial in self.trials.values())

    def without(self, turns: Collection[Turn]) -> VariantRuns:
        """The same without some of its turns."""
        left = {block: kept for block, own in self.steps.items() if len(kept := without(own, block, turns))}
        return replace(self, steps=left, trials={block: self.trials[block] for block in left})


@dataclass(frozen=True)
class GroupRuns:
    """The configurations of one accelerator, in the order of the plan."""

    accelerator: Accelerator
    arms: tuple[VariantRuns, ...]

    @property
    def baseline(self) -> VariantRuns:
        """Configuration that the others are compared with."""
        return self.arms[0]

    @property
    def again(self) -> VariantRuns | None:
        """The baseline's second run, where the plan has one."""
        return next((runs for runs in self.arms if runs.arm.role == "aa"), None)

    @property
    def ended(self) -> str | None:
        """Cause of the baseline's end, in either of its runs; without it there is no comparison.

        ``None`` where it ran on.
        """
        return self.baseline.ended or (self.again.ended if self.again else None)

    @property
    def candidates(self) -> tuple[VariantRuns, ...]:
        """The configurations that may be faster."""
        return tuple(runs for runs in self.arms if runs.arm.role == "candidate")

    def without(self, turns: Collection[Turn]) -> GroupRuns:
        """The same without the turns of some rounds, of all configurations."""
        return replace(self, arms=tuple(runs.without(turns) for runs in self.arms)) if turns else self


@dataclass(frozen=True)
class ParityFound:
    """Joint result of all parity trials on the data and the losses.

    Attributes:
        compared: the last of their records, ``None`` where none came so far.
        same: configurations with the baseline's data, and with its losses where those were compared.
        differences: configuration -> where its data differ, or its losses.
        unknown: configuration -> why it could not be told.
        losses: configuration -> largest relative difference of its losses, of those that were compared.
        losses_unknown: configuration -> why its losses tell nothing, so that it was judged by its data alone.
        other_losses: configurations that differ in their losses and not in their data.
        failed: the trial in which the baseline itself could not be read, so that nothing can be told at all.
    """

    compared: Parity | None = None
    same: tuple[str, ...] = ()
    differences: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    losses_unknown: dict[str, str] = field(default_factory=dict)
    other_losses: tuple[str, ...] = ()
    failed: TrialRecord | None = None

    def why_refused(self, arm: str) -> str | None:
        """Reason to refuse a configuration: a difference from the baseline, and its place."""
        where = self.differences.get(arm)
        what = "losses" if arm in self.other_losses else "data"
        return None if where is None else f"its {what} are not the baseline's: {where}"

    @property
    def why_failed(self) -> str | None:
        """Status and cause of the baseline's end while its data were read; ``None`` where it was read."""
        if self.failed is None or self.failed.status == "interrupted":
            return None
        return f"{self.failed.status}: {self.failed.cause or 'no cause is known'}"


def collect(
    comparison: Comparison, trials: Sequence[TrialRecord], *, groups: Collection[str] = ()
) -> tuple[GroupRuns, ...]:
    """The trials of the kind ``arm`` that belong to a comparison, one group for each accelerator.

    ``groups`` names those of the trials where they are not the comparison's own name.
    """
    names = set(groups) or {comparison.name}
    own: defaultdict[tuple[str | None, tuple[float, ...]], list[TrialRecord]] = defaultdict(list)
    arms = [trial for trial in trials if trial.spec.kind == "arm" and trial.spec.group in names]
    baselines = [trial for trial in arms if trial.spec.arm == comparison.baseline.id]
    at = {(one.spec.block, one.spec.emulated_ms): node_of(one) for one in baselines}
    for trial in arms:
        # Two machines are never in one ratio: a killed run that was resumed may have half a block of each.
        if at.get((trial.spec.block, trial.spec.emulated_ms), node_of(trial)) == node_of(trial):
            own[trial.spec.arm, trial.spec.emulated_ms].append(trial)
    return tuple(
        GroupRuns(
            accelerator, tuple(_runs(arm, own.get((arm.id, accelerator.step_times_ms), [])) for arm in comparison.arms)
        )
        for accelerator in comparison.accelerators
    )


def turns_of(steps: Mapping[int, Steps]) -> dict[Turn, Steps]:
    """Steps of each block, by block and round."""
    return {
        (block, int(number)): own[own.round == number]
        for block, own in sorted(steps.items())
        for number in np.unique(own.round)
    }


def settled(trial: TrialRecord) -> Steps | None:
    """The steps to compare, or ``None`` where none was measured: of one stretch its steady state, of turns all.

    A process that takes turns has settled before the first of them. Of one that was interrupted whole turns count.
    """
    rows = measured(trial, "as_is")
    if rows is not None and trial.status == "interrupted":
        rows = rows[np.isin(rows.round, [mark.round for mark in trial.rounds])]
        return rows if trial.spec.turns and len(rows) else None
    return rows if rows is None or trial.spec.turns else steady(rows)[0]


def _runs(arm: PlannedVariant, trials: Sequence[TrialRecord]) -> VariantRuns:
    found, steps, ended = {}, {}, None
    for trial in trials:
        if trial.status not in ("ok", "interrupted"):
            ended = ended or f"{trial.status}: {trial.cause or 'no cause is known'}"
        elif (rows := settled(trial)) is not None:
            found[trial.spec.block], steps[trial.spec.block] = trial, rows
        elif trial.status == "ok":
            ended = ended or "empty: no step was measured after the first"
    return VariantRuns(arm, found, steps, ended)


def parity_found(comparison: Comparison, trials: Sequence[TrialRecord]) -> ParityFound:
    """Joins the results of the trials of the kind ``parity``.

    A trial that dies has its cause put to the configuration that it was reading; the configurations after that one are
    another trial's.
    """
    own = [trial for trial in trials if trial.spec.kind == "parity" and trial.spec.group == comparison.name]
    found = ParityFound()
    for trial in own:
        parity = trial.parity
        if parity is None:
            why = f"the baseline's data could not be read: {trial.cause or f'the trial ended as {trial.status}'}"
            return replace(found, unknown=found.unknown | dict.fromkeys(trial.spec.others, why), failed=trial)
        unknown = {arm: f"its data could not be read: {why}" for arm, why in parity.failed.items()}
        if not parity.reproducible:
            why = f"the baseline's own data differ from one pass to the next ({parity.why_not})"
            unknown |= dict.fromkeys(trial.spec.others, why)
        elif (arm := reading(trial)) is not None:
            unknown[arm] = f"reading its data ended as {trial.status}: {trial.cause}"
        found = ParityFound(
            compared=parity,
            same=(*found.same, *parity.same),
            differences=found.differences | dict(parity.differences),
            unknown=found.unknown | unknown,
            losses=found.losses | dict(parity.losses),
            losses_unknown=found.losses_unknown | dict(parity.losses_unknown),
            other_losses=(*found.other_losses, *parity.other_losses),
        )
    return found


def reading(trial: TrialRecord) -> str | None:
    """The configuration whose data a trial of parity was reading when it died, or ``None`` where it did not die."""
    found = trial.parity
    if trial.status == "ok" or found is None or not found.reproducible:
        return None
    told = {*found.same, *found.differences, *found.failed}
    return next((arm for arm in trial.spec.others if arm not in told), None)


_LEAST_FREEDOM: Final = 12  # Degrees of freedom below which a slope may be chance
_LEAST_EXPLAINED: Final = 0.25
"""Share of the variance between rounds: with less explained, the readings' own noise would be added instead."""


@dataclass(frozen=True)
class Taken:
    """Shares of the processors left to the configurations in their turns, and the dependence of speeds on them.

    Attributes:
        slope: power of the share left that a speed is proportional to, from 0 to 1.
        left: configuration -> turn -> logarithm of the share that neighbours left; without turns of which nothing was
            read.
    """

    slope: float = 0.0
    left: Mapping[str, Mapping[Turn, float]] = field(default_factory=dict)

    def gave(self, over: str, under: str, turn: Turn) -> float:
        """Part of two speeds' log ratio that is due to the neighbours in a turn; 0 where not known."""
        if not self.slope:
            return 0.0
        ours, theirs = self.left.get(under, {}).get(turn), self.left.get(over, {}).get(turn)
        return 0.0 if ours is None or theirs is None else self.slope * (theirs - ours)


def taken_in(
    baseline: str, left: Mapping[str, Mapping[Turn, float]], ratios: Mapping[str, Mapping[Turn, float]]
) -> Taken:
    """Fit the slope to the rounds of configurations that were measured beside the baseline.

    By configuration and turn, ``left`` has the logarithm of the share that neighbours left, and ``ratios`` that of the
    speed over the baseline's.
    """
    ours = left.get(baseline, {})
    given, found, freedom = [], [], -1
    for name, speeds in ratios.items():
        for block in sorted({block for block, _ in speeds}):
            turns = [turn for turn in speeds if turn[0] == block and turn in ours and turn in left.get(name, {})]
            if len(turns) > 1:
                own = np.array([[left[name][turn] - ours[turn], speeds[turn]] for turn in turns])
                own -= own.mean(axis=0)
                given.append(own[:, 0])
                found.append(own[:, 1])
                freedom += len(turns) - 1
    if freedom < _LEAST_FREEDOM:
        return Taken(left=left)
    x, y = np.concatenate(given), np.concatenate(found)
    spread = float(x @ x)
    slope = min(max(float(x @ y) / spread, 0.0), 1.0) if spread else 0.0
    rest = y - slope * x
    explained = 1 - float(rest @ rest) / float(y @ y) if y.any() else 0.0
    return Taken(slope if explained >= _LEAST_EXPLAINED else 0.0, left)
