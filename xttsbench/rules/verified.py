"""What the trials of a verification say of each fix: the data that it yields, its speed, and what is proposed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from xttsbench.analysis.semantics import judge
from xttsbench.analysis.training_state import same_training
from xttsbench.records.base import Estimate
from xttsbench.records.elements import Elements, GraphIdentity
from xttsbench.records.fix import FixResult, Outcome, Patch, Semantics, is_of_step
from xttsbench.records.plan import Accelerator
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.arm_effects import MIN_BLOCKS, Effect, Noise, effects, noise
from xttsbench.rules.arm_runs import collect
from xttsbench.rules.fix_rounds import ALONE, GUARD, LOOK, ORIGINAL, PATCHED, TOGETHER, planned
from xttsbench.rules.proposal_words import said
from xttsbench.rules.proposals import Proposal

MARGIN: Final = 0.02
"""The smallest difference that matters, as a share."""
_ALIKE: Final = float(np.log(1.1))
"""Speeds that one look cannot tell apart, as a logarithm."""
_ANY_ORDER: Final = "any-order"


@dataclass(frozen=True)
class Measured:
    """One arm of one round: its effect, and how it ended where it did."""

    effect: Effect | None
    step_time_s: Estimate | None
    ended: str | None
    accepted: bool

    @property
    def decides(self) -> bool:
        """Whether there were blocks enough for a decision, or it ended."""
        return self.ended is not None or (self.effect is not None and self.effect.blocks >= MIN_BLOCKS)


@dataclass(frozen=True)
class Verified:
    """All that was found out about fixes.

    Attributes:
        semantics: arm -> what it does to the data.
        looked: arm -> what one process measured, from which nothing is decided.
        alone, together: arm -> what it was measured at in each of the rounds.
        noise: of the original against itself, in the last round.
        identity: of the original's graph.
        reproducible: why nothing can be compared, where the original itself could not be read.
    """

    semantics: Mapping[str, Semantics] = field(default_factory=dict)
    looked: Mapping[str, Measured] = field(default_factory=dict)
    alone: Mapping[str, Measured] = field(default_factory=dict)
    together: Mapping[str, Measured] = field(default_factory=dict)
    noise: Noise = field(default_factory=Noise)
    identity: GraphIdentity | None = None
    unreadable: str | None = None

    def measured(self, arm: str) -> Measured | None:
        """An arm's last measurement that decides: what was chosen was measured afresh, if there was time for it."""
        last = self.together.get(arm)
        return last if last is not None and last.decides else self.alone.get(arm) or last

    def accepted(self, arm: str) -> bool:
        """Whether an arm is faster beyond doubt, wherever it was measured, with the same data."""
        found, data = self.measured(arm), self.semantics.get(arm)
        return found is not None and found.accepted and data is not None and data.equivalent is True

    @property
    def best_first(self) -> list[str]:
        """Accepted fixes, the fastest first; of those that are alike, the one with fewer parts."""
        names = {*self.alone, *self.together} - {PATCHED}
        return sorted((name for name in names if self.accepted(name)), key=self._rank)

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Fixes in the order in which to look closer, by one look at each: those that did not run are left out.

        So are those that were no faster, unless no other is left; what was not looked at stays behind the others.
        """
        speeds = {name: _ratio(self.looked.get(name)) for name in names}
        alive = [name for name in names if (one := self.looked.get(name)) is None or one.ended is None]
        worth = [name for name in alive if speeds[name] is None or speeds[name] > 1 + MARGIN]  # type: ignore[operator]
        # Nearly equal ones stay in the order of the proposals, which is that of simplicity.
        return sorted(worth or alive[:1], key=lambda name: -round(np.log(max(speeds[name] or 1.0, 1e-9)) / _ALIKE))

    @property
    def promising(self) -> list[str]:
        """Fixes that leave the data alone and were measured faster, though not beyond doubt; the fastest first."""
        names = [
            name
            for name, one in self.alone.items()
            if one.effect is not None
            and one.effect.decision == "inconclusive"
            and one.effect.ratio is not None
            and one.effect.ratio.estimate > 1 + 2 * MARGIN
            and (data := self.semantics.get(name)) is not None
            and data.equivalent is True
        ]
        return sorted(names, key=self._rank)

    @property
    def chosen(self) -> str | None:
        """The fix that the run proposes; ``None`` where none was accepted.

        It is the best of those that were measured afresh, unless a part of it was as fast by itself.
        """
        fresh = [name for name, one in self.together.items() if one.decides]
        last = [name for name in self.best_first if name in fresh] or self.best_first
        if not last:
            return None
        parts, speed = set(last[0].split(" + ")), self._rank(last[0])[0]
        as_good = (name for name in self.best_first if set(name.split(" + ")) < parts and self._rank(name)[0] <= speed)
        return next(as_good, last[0])

    def _rank(self, name: str) -> tuple[float, int, str]:
        found = self.measured(name)
        speed = found.effect.ratio.estimate if found and found.effect and found.effect.ratio else 0.0
        # Within the margin fewer parts are better: there is less to understand, and less to keep.
        return -round(np.log(max(speed, 1e-9)) / np.log1p(2 * MARGIN)), name.count(" + "), name


def verified(trials: Sequence[TrialRecord], accelerator: Accelerator, *, seed: int = 0) -> Verified:
    """Everything that the trials of a verification say. The same trials and seed give the same answer."""
    rng = np.random.default_rng(seed)
    read, unreadable = _originals(trials)
    looked, _ = _round(LOOK, trials, accelerator, rng)
    alone, _ = _round(ALONE, trials, accelerator, rng)
    together, quiet = _round(TOGETHER, trials, accelerator, rng)
    return Verified(
        semantics=_semantics(trials, read, unreadable),
        looked=looked,
        alone=alone,
        together=together,
        noise=quiet,
        identity=next((one.identity for one in read if one.identity is not None), None),
        unreadable=unreadable,
    )


def _ratio(measured: Measured | None) -> float | None:
    found = measured.effect.ratio if measured is not None and measured.effect is not None else None
    return found.estimate if found is not None else None


def data_of(trials: Sequence[TrialRecord], arm: str) -> Semantics | None:
    """What one arm does to the data, as in :func:`verified`; ``None`` where it was not read."""
    return _semantics(trials, *_originals(trials), only=arm).get(arm)


def _originals(trials: Sequence[TrialRecord]) -> tuple[list[Elements], str | None]:
    """The original's runs, and why nothing can be compared with them, where one could not be read."""
    originals = [trial for trial in trials if _guards(trial, ORIGINAL)]
    read = [trial.elements for trial in originals if trial.elements is not None]
    failed = next((trial for trial in originals if trial.elements is None), None)
    unreadable = None
    if failed is not None:
        unreadable = f"the elements of the original could not be read: {failed.cause or failed.status}"
    return read, unreadable


def _guards(trial: TrialRecord, arm: str | None = None) -> bool:
    return trial.spec.rung == "elements" and trial.spec.group == GUARD and arm in (None, trial.spec.arm)


def _semantics(
    trials: Sequence[TrialRecord], originals: Sequence[Elements], unreadable: str | None, only: str | None = None
) -> dict[str, Semantics]:
    found = {}
    for trial in trials:
        arm = trial.spec.arm or ""
        if not _guards(trial) or arm == ORIGINAL or only not in (None, arm):
            continue
        if trial.status != "ok" or trial.elements is None:
            said = f"with it the dataset could not be read: {trial.cause or trial.status}"
            found[arm] = Semantics(equivalent=None, how="unknown", sentence=said)
        elif unreadable is not None or not originals:
            found[arm] = Semantics(equivalent=None, how="unknown", sentence=unreadable or "the original was not read")
        else:
            found[arm] = _compared(trial, trial.elements, originals)
    return found


def _compared(trial: TrialRecord, changed: Elements, originals: Sequence[Elements]) -> Semantics:
    """The data first; where the step was changed, what it trains too."""
    parts = (trial.spec.fix or "").split(" + ")
    data = judge(originals, changed, allow_other_order=_ANY_ORDER in parts)
    if not any(is_of_step(part) for part in parts) or data.equivalent is not True:
        return data
    again = originals[1] if len(originals) > 1 else originals[0]
    training = same_training(originals[0], again, changed)
    sentence = f"{data.sentence.rstrip('.')}; {training.sentence}"
    return training.model_copy(update={"sentence": sentence, "epochs": data.epochs})


def _round(
    group: str, trials: Sequence[TrialRecord], accelerator: Accelerator, rng: np.random.Generator
) -> tuple[dict[str, Measured], Noise]:
    plan = planned(group, trials, accelerator)
    if plan is None:
        return {}, Noise()
    runs = collect(plan, trials)[0]
    quiet = noise(runs, rng)
    decided = effects(runs, MARGIN, rng)
    found = {}
    for arm in runs.candidates:
        effect = decided.get(arm.arm.id)
        faster = effect is not None and effect.decision == "faster" and effect.ratio is not None
        # Beyond what the original differs from itself by, besides.
        clear = faster and (quiet.ratio is None or effect.ratio.low > quiet.ratio.high)  # type: ignore[union-attr]
        time_s = None
        if arm.steps:
            means = [steps.wall_s.mean() for steps in arm.steps.values()]
            time_s = Estimate(estimate=float(np.mean(means)), low=float(min(means)), high=float(max(means)))
        found[arm.arm.id] = Measured(effect, time_s, arm.ended, bool(clear))
    return found, quiet


def results(
    proposed: Sequence[Proposal],
    found: Verified,
    patch: Patch | None,
    *,
    expected: Callable[[Sequence[str]], float | None] = lambda _: None,
    why_stopped: str | None = None,
) -> tuple[FixResult, ...]:
    """A result for each proposal, and for what was put together of them; what is proposed in the end comes first.

    Args:
        proposed: the proposals, best first.
        found: what the trials say.
        patch: of what is proposed in the end.
        expected: the speed-up to expect of fixes that were put together of several proposals.
        why_stopped: why fixes that were worth it were not verified, where the run ended early.
    """
    names = {one.name for one in proposed}
    made = [name for name in (*found.together, *found.alone) if name not in names | {PATCHED}]
    what = {part: one.what for one in proposed for part in one.fixes if len(one.fixes) == 1}
    extra = [_made_of(name, proposed, what, expected(name.split(" + "))) for name in dict.fromkeys(made)]
    every = [_result(one, found, patch, why_stopped) for one in (*extra, *proposed)]
    order: dict[Outcome, int] = {"accepted": 0, "rejected": 1, "not verified": 2}
    return tuple(sorted(every, key=lambda one: (not one.chosen, order[one.outcome], -_speed(one))))


def _made_of(
    name: str, proposed: Sequence[Proposal], what: Mapping[str, str], predicted_speedup: float | None
) -> Proposal:
    """What was put together of several proposals."""
    fixes = tuple(name.split(" + "))
    return Proposal(
        name=name,
        fixes=fixes,
        predicted_speedup=predicted_speedup,
        what="; ".join(what.get(part) or said((part,)) for part in fixes),
        places=tuple(dict.fromkeys(p for one in proposed if set(one.fixes) <= set(fixes) for p in one.places)),
        worth=True,
        why_not=None,
    )


def _speed(result: FixResult) -> float:
    if result.verified_speedup is not None:
        return result.verified_speedup.estimate
    return result.predicted_speedup or 0.0


def _result(one: Proposal, found: Verified, patch: Patch | None, why_stopped: str | None) -> FixResult:
    measured, data = found.measured(one.name), found.semantics.get(one.name)
    outcome, why = _outcome(one, found, why_stopped)
    effect = measured.effect if measured else None
    chosen = found.chosen == one.name
    return FixResult(
        name=one.name,
        fixes=one.fixes,
        what=one.what,
        outcome=outcome,
        why=why,
        predicted_speedup=one.predicted_speedup,
        verified_speedup=effect.ratio if effect else None,
        step_time_s=measured.step_time_s if measured else None,
        decision="ended" if measured and measured.ended else effect.decision if effect else None,
        p_value=effect.p_value if effect else None,
        blocks=effect.blocks if effect else 0,
        semantics=data,
        places=one.places,
        patch=patch if chosen else None,
        chosen=chosen,
    )


def _outcome(one: Proposal, found: Verified, why_stopped: str | None) -> tuple[Outcome, str]:
    measured, data = found.measured(one.name), found.semantics.get(one.name)
    if data is not None and data.equivalent is False:
        what = "the data, or what is learnt from them" if any(is_of_step(fix) for fix in one.fixes) else "the data"
        return "rejected", f"it changes {what}: {data.sentence}"
    if data is not None and data.equivalent is None:
        return "rejected", f"whether it leaves the data as they are could not be told: {data.sentence}"
    if measured is not None:
        return _of_speed(measured, found.noise)
    looked = found.looked.get(one.name)
    if looked is not None and looked.ended is not None:
        return "rejected", f"its trial ended: {looked.ended}"
    if found.unreadable is not None:
        return "not verified", found.unreadable
    if (once := _ratio(looked)) is not None:
        return "not verified", f"in one look it was {once:.2f} times as fast, and others were looked at more closely"
    return "not verified", one.why_not or why_stopped or f"there was no time for it within the budget{_filling(one)}"


def _filling(one: Proposal) -> str:
    """What takes the time of a fix with a cache."""
    pass_s = one.first_pass_s or 0.0
    return f": its cache takes {pass_s:.0f} s to fill" if pass_s >= 1.0 else ""


def _of_speed(measured: Measured, quiet: Noise) -> tuple[Outcome, str]:
    effect = measured.effect
    if measured.ended is not None:
        return "rejected", f"its trial ended: {measured.ended}"
    if effect is None or effect.ratio is None:
        return "not verified", "no block has both it and the original"
    ratio = effect.ratio
    said = f"{ratio.estimate:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f}, {effect.blocks} blocks)"
    if measured.accepted:
        return "accepted", said
    if not measured.decides:
        return "not verified", f"{said}, and a decision takes {MIN_BLOCKS}"
    if effect.decision == "faster" and quiet.ratio is not None:
        return "rejected", f"{said}, which is no more than the original differs from itself by"
    words = {"slower": "slower", "equivalent": "no faster", "inconclusive": "not beyond doubt"}
    why = f": {effect.why}" if effect.why else ""
    return "rejected", f"{words.get(effect.decision, effect.decision)}: {said}{why}"
