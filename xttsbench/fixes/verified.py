"""What the trials of a verification say of each fix: the data that it yields, its speed, and what is proposed. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from xttsbench.analysis.evidence import CLEARLY, DECIDES, LEAST_SCALE, Evidence, e_value
from xttsbench.comparison.effects import Effect, Weighed, weigh
from xttsbench.comparison.figures import figures_of
from xttsbench.comparison.runs import collect
from xttsbench.fixes.any_order.spec import ANY_ORDER
from xttsbench.fixes.proposal import Proposal
from xttsbench.fixes.registry import SPECS, said
from xttsbench.fixes.rounds import GUARD, LEAST_BLOCKS, ORIGINAL, PATCHED, ROUNDS, TOGETHER, planned
from xttsbench.planning import AGAIN
from xttsbench.records.base import FASTER, MARGIN, SLOWER, Estimate
from xttsbench.records.elements import Contents, Elements, GraphIdentity
from xttsbench.records.fix import Fix, FixResult, FixSet, How, Outcome, Patch, Semantics
from xttsbench.records.plan import Accelerator
from xttsbench.records.report import Finding
from xttsbench.records.trial import TrialRecord
from xttsbench.samedata.judge import Timed, compare_timed, judge
from xttsbench.samedata.tolerance import same_training

_LEAST_ROUNDS: Final = 2
"""Of a fix that is clearly faster: beside one candidate one round would be enough, however it came about."""
_INPUT: Final = "input-bound"
"""The rule whose finding every fix of the dataset mends."""


@dataclass(frozen=True)
class Measured:
    """One arm over all rounds: its effect, its mean step, and how it ended where it did."""

    effect: Effect | None
    step_time_s: Estimate | None
    ended: str | None

    @property
    def evidence(self) -> Evidence | None:
        """What its rounds beside the original's show."""
        return self.effect.found if self.effect else None

    @property
    def accepted(self) -> bool:
        """Whether it is faster: clearly so, or in two processes."""
        found = self.evidence
        return self.settled and self.ended is None and found is not None and found.word in FASTER

    @property
    def settled(self) -> bool:
        """Whether more rounds are needless."""
        found = self.evidence
        if self.ended is not None or found is None:
            return self.ended is not None
        enough = found.processes >= LEAST_BLOCKS
        clearly = found.word.startswith("clearly") and found.rounds >= _LEAST_ROUNDS
        return clearly or (enough and (found.decided or found.no_gain))


@dataclass(frozen=True)
class Verified:
    """All that was found out about fixes.

    Attributes:
        semantics: arm -> what it does to the data.
        measured: arm -> what it was measured at, in all rounds together.
        last: arms of the last group, in which what may be proposed is measured side by side.
        behind: arm -> the faster one that it is decided to be slower than, by more than the margin.
        parts: arm -> elements of each source, where it was measured on a part of the data.
        noise_scale: what rounds of equal configurations differ by in this session.
        noise_processes: processes of the original's second run.
        identity: of the original's graph.
        unreadable: why nothing can be compared, where the original itself could not be read.
    """

    semantics: Mapping[str, Semantics] = field(default_factory=dict)
    measured: Mapping[str, Measured] = field(default_factory=dict)
    last: frozenset[str] = frozenset()
    behind: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, int] = field(default_factory=dict)
    noise_scale: float = LEAST_SCALE
    noise_processes: int = 0
    identity: GraphIdentity | None = None
    unreadable: str | None = None

    def accepted(self, arm: str) -> bool:
        """Whether an arm is faster with the same data."""
        found, data = self.measured.get(arm), self.semantics.get(arm)
        return found is not None and found.accepted and data is not None and data.equivalent is True

    def ended(self, arm: str) -> bool:
        """Whether a trial of an arm did not end well."""
        return (found := self.measured.get(arm)) is not None and found.ended is not None

    def settled(self, arm: str) -> bool:
        """Whether more rounds of an arm are needless."""
        found = self.measured.get(arm)
        return arm in self.behind or (found is not None and found.settled)

    def more_s(self, arm: str) -> float | None:
        """Seconds that would decide an arm if its rounds were like those so far; endless where a thousand would not.

        ``None`` where it has had none, or is decided.
        """
        found = self.measured.get(arm)
        if found is None or found.evidence is None or found.evidence.decided or found.effect is None:
            return None
        more, round_s = found.evidence.more_rounds, found.effect.round_s
        return math.inf if more is None else more * (round_s or 0.0)

    def stays(self, arm: str, more: int) -> bool:
        """Whether an accepted arm is still accepted where so many more are measured beside it."""
        found = self.measured[arm].evidence if self.accepted(arm) else None
        if found is None:
            return False
        level = DECIDES if found.processes >= LEAST_BLOCKS else CLEARLY
        return found.value >= level * (len(self.measured) + more)

    @property
    def decided(self) -> set[str]:
        """Arms of which more rounds in the same processes are needless; a second process may still be wanted.

        One that is faster goes on, since it may be clearly so before another process has begun.
        """
        return {
            arm
            for arm, one in self.measured.items()
            if self.settled(arm)
            or (one.evidence is not None and (one.evidence.no_gain or one.evidence.word in (*SLOWER, "no_difference")))
        }

    @property
    def best_first(self) -> list[str]:
        """Accepted fixes, the fastest first; of those that are alike, the one with fewer parts."""
        names = self.measured.keys() - {PATCHED}
        return sorted((name for name in names if self.accepted(name)), key=self._rank)

    @property
    def helpful(self) -> list[str]:
        """Fixes that are faster in one process, or look faster behind a better one: parts of what may be better yet."""
        names = (
            name
            for name, one in self.measured.items()
            if name != PATCHED and one.ended is None and one.evidence is not None
            if one.evidence.word in FASTER or (name in self.behind and one.evidence.ratio.estimate > 1 + 2 * MARGIN)
        )
        return sorted(names, key=self._rank)

    @property
    def promising(self) -> list[str]:
        """Fixes that leave the data alone and look faster, and are not decided; the fastest first."""
        names = [
            name
            for name, one in self.measured.items()
            if name != PATCHED
            and not self.settled(name)
            and (_ratio(one) or 0.0) > 1 + 2 * MARGIN
            and (data := self.semantics.get(name)) is not None
            and data.equivalent is True
        ]
        return sorted(names, key=self._rank)

    @property
    def chosen(self) -> str | None:
        """The fix that the run proposes; ``None`` where none was accepted.

        It is the best of those that were measured side by side in the end, unless a part of it was as fast by itself.
        """
        last = [name for name in self.best_first if name in self.last] or self.best_first
        if not last:
            return None
        parts, speed = FixSet.parse(last[0]), self._rank(last[0])[0]
        as_good = (name for name in self.best_first if FixSet.parse(name) < parts and self._rank(name)[0] <= speed)
        return next(as_good, last[0])

    def _rank(self, name: str) -> tuple[float, int, str]:
        speed = _ratio(self.measured.get(name)) or 0.0
        # Within the margin fewer parts are better: there is less to understand, and less to keep.
        return -round(np.log(max(speed, 1e-9)) / np.log1p(2 * MARGIN)), len(FixSet.parse(name)), name


def verified(trials: Sequence[TrialRecord], accelerator: Accelerator) -> Verified:
    """Everything that the trials of a verification say. The same trials give the same answer."""
    read, unreadable = _originals(trials)
    weighed = _weighed(trials, accelerator)
    measured = {} if weighed is None else _measured(weighed)
    again = weighed.group.again if weighed else None
    said = _semantics(trials, read, unreadable)
    semantics = {arm: _as_timed(trials, arm, data, read) for arm, data in said.items()}
    sound = measured.keys() - {PATCHED} - {arm for arm, data in semantics.items() if data.equivalent is not True}
    return Verified(
        semantics=semantics,
        measured=measured,
        behind={} if weighed is None else _behind(weighed, measured, sound),
        parts={
            t.spec.arm: t.spec.source_limit
            for t in trials
            if t.spec.group in ROUNDS and t.spec.rung == "arm" and t.spec.arm and t.spec.source_limit
        },
        noise_scale=LEAST_SCALE if weighed is None else weighed.noise_scale,
        noise_processes=len(again.steps) if again else 0,
        last=frozenset(t.spec.arm for t in trials if t.spec.group == TOGETHER and t.spec.arm and t.status == "ok"),
        identity=next((one.identity for one in read if one.identity is not None), None),
        unreadable=unreadable,
    )


def _ratio(measured: Measured | None) -> float | None:
    found = measured.evidence if measured is not None else None
    return found.ratio.estimate if found is not None else None


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
    found: dict[str, Semantics] = {}
    for trial in trials:
        arm = trial.spec.arm or ""
        if not _guards(trial) or arm == ORIGINAL or only not in (None, arm) or trial.spec.cache_use == "begun":
            continue
        if trial.status != "ok" or trial.elements is None:
            said = f"with it the dataset could not be read: {trial.cause or trial.status}"
            data = Semantics(equivalent=None, how="unknown", sentence=said)
        elif unreadable is not None or not originals:
            data = Semantics(equivalent=None, how="unknown", sentence=unreadable or "the original was not read")
        else:
            data = _compared(trial, trial.elements, originals)
        found[arm] = _read_again(found[arm], data) if trial.spec.cache_use == "read" and arm in found else data
    return found


def _read_again(filled: Semantics, read: Semantics) -> Semantics:
    """What a cache on disk gave the process that filled it, and what it gave the next one."""
    if filled.equivalent is not True:
        return filled
    if read.equivalent is not True:
        sentence = f"read from the cache on disk by a second process: {read.sentence}"
        return read.model_copy(update={"sentence": sentence})
    rest = "so is what a second process read from the cache on disk, the first pass of which had once been cut off"
    return filled.model_copy(update={"sentence": f"{filled.sentence.rstrip('.')}; {rest}"})


def _as_timed(trials: Sequence[TrialRecord], arm: str, data: Semantics, originals: Sequence[Elements]) -> Semantics:
    """What the batches of the timed runs add to what the guard found, and how much was checked in all."""
    if data.equivalent is not True:
        return data
    timed, original = _contents(trials, arm), _contents(trials, ORIGINAL, ORIGINAL + AGAIN)
    rest = ""
    if timed:
        if data.how not in ("identical", "rounding") or any(run.random_ops or not run.ordered for run in originals):
            found = Timed(None, 0, sum(one.seen for own in timed.values() for one in own), "their order or values vary")
        else:
            found = compare_timed(original, timed, bits=data.how == "identical")
        told = {"timed_batches": found.compared, "timed_of": found.of, "timed_why_not": found.sentence or None}
        data = data.model_copy(update=told)
        if found.same is not True and found.compared:
            how: How = "unknown" if found.same is None else "different"
            return data.model_copy(update={"equivalent": found.same, "how": how, "sentence": f"{found.sentence}."})
        if not found.same:
            rest = f"; the batches of the timed runs were not compared: {found.sentence}"
    checked = f" {data.checked[:1].upper()}{data.checked[1:]}{rest}." if data.checked else ""
    return data.model_copy(update={"sentence": f"{data.sentence.rstrip('.')}.{checked}"})


def _contents(trials: Sequence[TrialRecord], *arms: str) -> dict[tuple[int, int | None], list[Contents]]:
    """Block and how much of the sources was read -> what the batches of these arms held in their timed runs."""
    found: dict[tuple[int, int | None], list[Contents]] = {}
    for trial in trials:
        if trial.spec.group in ROUNDS and trial.spec.arm in arms and trial.contents is not None:
            found.setdefault((trial.spec.block, trial.spec.source_limit), []).append(trial.contents)
    return found


def _compared(trial: TrialRecord, changed: Elements, originals: Sequence[Elements]) -> Semantics:
    """The data first; where the step was changed, what it trains too."""
    fixes = FixSet.parse(trial.spec.fix)
    data = judge(originals, changed, allow_other_order=ANY_ORDER.name in fixes)
    if not fixes.of_step or data.equivalent is not True:
        return data
    again = originals[1] if len(originals) > 1 else originals[0]
    training = same_training(originals[0], again, changed)
    sentence = f"{data.sentence.rstrip('.')}; {training.sentence}"
    told = {"sentence": sentence, "epochs": data.epochs, "rows": data.rows, "rows_of": data.rows_of}
    return training.model_copy(update=told)


def _weighed(trials: Sequence[TrialRecord], accelerator: Accelerator) -> Weighed | None:
    plan = planned(trials, accelerator)
    return None if plan is None else weigh(collect(plan, trials, groups=ROUNDS)[0], MARGIN)


def _measured(weighed: Weighed) -> dict[str, Measured]:
    found = {}
    for arm in weighed.group.candidates:
        effect = weighed.effects.get(arm.arm.id)
        ratio = effect.ratio.estimate if effect and effect.ratio else None
        figures = figures_of(arm, weighed.group, weighed.noise_scale, ratio)
        found[arm.arm.id] = Measured(effect, figures.get("step_time_s"), arm.ended)
    return found


def _behind(weighed: Weighed, measured: Mapping[str, Measured], sound: Collection[str]) -> dict[str, str]:
    """Arms that are slower than the fastest one of those, with the same data, beside which they were measured."""
    speeds = {
        name: one.evidence.ratio.estimate
        for name, one in measured.items()
        if name in sound and one.ended is None and one.evidence is not None and one.evidence.word in FASTER
    }
    found: dict[str, str] = {}
    for best in sorted(speeds, key=lambda name: -speeds[name]):
        for name in measured.keys() - {best, PATCHED, *found}:
            sample = weighed.pairs.sample(name, best)
            if sample is None or sample.mean > -math.log1p(MARGIN):
                continue
            if e_value(sample, weighed.noise_scale) >= DECIDES * len(measured):
                found[name] = best
    return found


def results(
    proposed: Sequence[Proposal],
    found: Verified,
    patch: Patch | None,
    *,
    predicted: Callable[[FixSet], float | None] = lambda _: None,
    why_stopped: str | None = None,
) -> tuple[FixResult, ...]:
    """A result for each proposal, and for what was put together of them; what is proposed in the end comes first.

    Args:
        proposed: the proposals, best first.
        found: what the trials say.
        patch: of what is proposed in the end.
        predicted: the speed-up that the model predicts of fixes that were put together of several proposals.
        why_stopped: why fixes that were worth it were not verified, where the run ended early.
    """
    names = {one.name for one in proposed}
    made = [name for name in found.measured if name not in names | {PATCHED}]
    what = {part: one.what for one in proposed for part in one.fixes if len(one.fixes) == 1}
    extra = [_made_of(name, proposed, what, predicted(FixSet.parse(name))) for name in dict.fromkeys(made)]
    every = [_result(one, found, patch, why_stopped) for one in (*extra, *proposed)]
    order: dict[Outcome, int] = {"accepted": 0, "rejected": 1, "not verified": 2}
    return tuple(sorted(every, key=lambda one: (not one.chosen, order[one.outcome], -_speed(one))))


def _made_of(
    name: str, proposed: Sequence[Proposal], what: Mapping[str, str], predicted_speedup: float | None
) -> Proposal:
    """What was put together of several proposals."""
    fixes = FixSet.parse(name)
    return Proposal(
        name=name,
        fixes=fixes.names,
        predicted_speedup=predicted_speedup,
        what="; ".join(what.get(str(fix)) or said((fix,)) for fix in fixes),
        places=tuple(dict.fromkeys(p for one in proposed if set(one.fixes) <= set(fixes.names) for p in one.places)),
        worth=True,
        why_not=None,
    )


def _speed(result: FixResult) -> float:
    if result.verified_speedup is not None:
        return result.verified_speedup.estimate
    return result.predicted_speedup or 0.0


def _result(one: Proposal, found: Verified, patch: Patch | None, why_stopped: str | None) -> FixResult:
    measured, data = found.measured.get(one.name), found.semantics.get(one.name)
    outcome, why = _outcome(one, found, why_stopped)
    evidence = measured.evidence if measured else None
    chosen = found.chosen == one.name
    return FixResult(
        name=one.name,
        fixes=one.fixes,
        what=one.what,
        outcome=outcome,
        why=why,
        predicted_speedup=one.predicted_speedup,
        verified_speedup=evidence.ratio if evidence else None,
        step_time_s=measured.step_time_s if measured else None,
        decision="ended" if measured and measured.ended else evidence.word if evidence else None,
        evidence=evidence.value if evidence else None,
        blocks=evidence.processes if evidence else 0,
        rounds=evidence.rounds if evidence else 0,
        semantics=data,
        places=one.places,
        patch=patch if chosen else None,
        chosen=chosen,
        source_limit=found.parts.get(one.name, 0) if measured else 0,
    )


def _outcome(one: Proposal, found: Verified, why_stopped: str | None) -> tuple[Outcome, str]:
    measured, data = found.measured.get(one.name), found.semantics.get(one.name)
    if data is not None and data.equivalent is False:
        what = "the data, or what is learnt from them" if FixSet.of(one.fixes).of_step else "the data"
        return "rejected", f"it changes {what}: {data.sentence}"
    if data is not None and data.equivalent is None:
        return "rejected", f"whether it leaves the data as they are is unknown: {data.sentence}"
    if measured is not None and (measured.ended is not None or measured.evidence is not None):
        outcome, why = _of_speed(measured, found.behind.get(one.name), checked=data is not None)
        part = found.parts.get(one.name)
        return outcome, f"{why}{_on_part(part)}" if part and measured.ended is None else why
    if found.unreadable is not None:
        return "not verified", found.unreadable
    return "not verified", one.why_not or why_stopped or f"there was no time for it within the budget{_filling(one)}"


def _on_part(count: int) -> str:
    return f", from the second epoch on, measured on {count:,} elements of each source"


def _filling(one: Proposal) -> str:
    """What takes the time of a fix with a cache."""
    pass_s = one.first_pass_s or 0.0
    return f": its cache takes {pass_s:.0f} s to fill" if pass_s >= 1.0 else ""


def _of_speed(measured: Measured, behind: str | None, *, checked: bool) -> tuple[Outcome, str]:
    found = measured.evidence
    if measured.ended is not None or found is None:
        return "rejected", f"its trial ended: {measured.ended}"
    ratio = found.ratio
    counts = f"{found.rounds} {'round' if found.rounds == 1 else 'rounds'}"
    said = f"{ratio.estimate:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f}, {counts})"
    if measured.accepted:
        return ("accepted", said) if checked else ("not verified", f"{said}, and its data were not compared")
    if found.no_gain and measured.settled and found.word not in SLOWER:
        return "rejected", f"no faster by {MARGIN:.0%}: {said}"
    if found.decided and found.word not in FASTER:
        return "rejected", f"{found.word.replace('_', ' ')}: {said}"
    if behind is not None:
        return "not verified", f"slower than {behind}, so it was measured no further: {said}"
    why = f": {measured.effect.why}" if measured.effect and measured.effect.why else ""
    if found.decided:
        why = f": {found.processes} process, and it takes {LEAST_BLOCKS}"
    return "not verified", f"{'undecided' if found.word == 'undecided' else found.word.replace('_', ' ')}: {said}{why}"


def with_fixes(findings: Sequence[Finding], results: Sequence[FixResult]) -> tuple[Finding, ...]:
    """The findings with the verified speed-up, the equivalence and the patch of the fix that mends each.

    A fix that changes the data is never a speed-up: its finding says that the data are not the same, and no number.
    """
    return tuple(_with(finding, mending(finding, results)) for finding in findings)


def mending(finding: Finding, results: Sequence[FixResult]) -> FixResult | None:
    """The fix that mends a finding: one that was accepted, else one whose data were compared, else one that was not.

    The last two tell by ``why`` what became of them; ``None`` where no fix is for the finding.
    """
    own = [one for one in results if any(_mends(fix, finding.rule) for fix in FixSet.of(one.fixes))]
    accepted = [one for one in own if one.outcome == "accepted"]
    tried = [one for one in own if one.semantics is not None]
    return next(iter((*accepted, *tried, *own)), None)


def _mends(fix: Fix, rule: str) -> bool:
    return not fix.is_of_step if rule == _INPUT else fix.kind in SPECS and rule in SPECS[fix.kind].mends


def _with(finding: Finding, fix: FixResult | None) -> Finding:
    if fix is None:
        return finding
    same = fix.semantics.equivalent if fix.semantics else None
    return finding.model_copy(
        update={
            "verified_speedup": fix.verified_speedup if same else None,
            "equivalent": same,
            "patch": fix.patch.diff if fix.patch and fix.patch.diff else finding.patch,
        }
    )
