"""The result of each fix for the report: what became of it, in words; and the fix that mends each finding. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from xttsbench.analysis.evidence import Evidence
from xttsbench.evidence import Compared
from xttsbench.fixes.cache import CACHE, TRAINING_EPOCHS
from xttsbench.fixes.proposal import Proposal
from xttsbench.fixes.registry import SPECS
from xttsbench.fixes.registry import said as said_of
from xttsbench.fixes.rounds import LEAST_BLOCKS, PATCHED
from xttsbench.fixes.verified import Measured, Verified
from xttsbench.records.base import FASTER, MARGIN, SLOWER, Estimate
from xttsbench.records.code import OUTSIDE
from xttsbench.records.fix import Fix, FixResult, FixSet, Outcome, Patch, Semantics
from xttsbench.records.report import Finding

_INPUT: Final = "input-bound"  # the rule whose finding every fix of the dataset mends


_OF_A_FIX: Final = ("helps", "measured_with", "predicted_with")
"""Evidence of a finding that is the name of the fix whose speed-up it has."""


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
    known = {one.name for one in proposed} | {PATCHED}
    what = {part: one.what for one in proposed for part in one.fixes if len(one.fixes) == 1}
    made = [FixSet.parse(name) for name in found.measured if name not in known]
    extra = [_made_of(fixes, proposed, what, predicted(fixes)) for fixes in made]
    every = [_result(one, found, patch, why_stopped) for one in (*extra, *proposed)]
    order: dict[Outcome, int] = {"accepted": 0, "rejected": 1, "not verified": 2}

    return tuple(
        sorted(every, key=lambda one: (not one.chosen, order[one.outcome], -(one.speed.estimate if one.speed else 0.0)))
    )


def _made_of(
    fixes: FixSet, proposed: Sequence[Proposal], what: Mapping[str, str], predicted_speedup: float | None
) -> Proposal:
    parts = [one for one in proposed if set(one.fixes) <= set(fixes.names)]
    return Proposal(
        name=str(fixes),
        fixes=fixes.names,
        predicted_speedup=predicted_speedup,
        what="; ".join(what.get(str(fix)) or said_of((fix,)) for fix in fixes),
        places=tuple(dict.fromkeys(place for one in parts for place in one.places)),
        worth=True,
    )


def _data(one: Proposal, found: Verified) -> Semantics | None:
    """Whether a fix leaves the data as they are: by its trials, else by what its code says."""
    if one.hazard is None or one.name in found.semantics:
        return found.semantics.get(one.name)
    return Semantics(equivalent=None, how="unknown", sentence=f"{one.hazard[0].upper()}{one.hazard[1:]}.")


def _result(one: Proposal, found: Verified, patch: Patch | None, why_stopped: str | None) -> FixResult:
    measured, data = found.measured.get(one.name), _data(one, found)
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
    measured, data = found.measured.get(one.name), _data(one, found)
    for cause in (measured.ended if measured else None, data.sentence if data else None):
        if cause is not None and OUTSIDE in cause:
            return "not verified", cause
    if data is not None and data.equivalent is False:
        what = "the data, or what is learnt from them" if FixSet.of(one.fixes).of_step else "the data"
        return "rejected", f"it changes {what}: {data.sentence}"
    if data is not None and data.equivalent is None:
        return "rejected", f"not proved to leave the data as they are: {data.sentence}"
    if measured is not None and measured.ended is not None:
        return "rejected", f"its trial ended: {measured.ended}"
    if measured is not None and measured.evidence is not None:
        outcome, why = _of_speed(measured, measured.evidence, found.behind.get(one.name), checked=data is not None)
        part = found.parts.get(one.name)
        return outcome, f"{why}{_on_part(one, found, part)}" if part else why
    pass_s = one.first_pass_s or 0.0
    filling = f": its cache takes {pass_s:.0f} s to fill" if pass_s >= 1.0 else ""
    no_time = f"there was no time for it within the budget{filling}"
    return "not verified", found.unreadable or one.why_not or why_stopped or no_time


def _on_part(one: Proposal, found: Verified, count: int) -> str:
    """Clause about a speed-up that was measured on a part of the data, read again and again."""
    if CACHE.name not in FixSet.of(one.fixes):
        return f", measured on {count:,} elements of each source"
    whole_speedup = found.training_speedup(one.name)
    whole = f"; with the epoch that fills the cache, {whole_speedup:.2f} times over {TRAINING_EPOCHS} epochs"
    return f", from the second epoch on, measured on {count:,} elements of each source{whole}"


def _of_speed(measured: Measured, found: Evidence, behind: str | None, *, checked: bool) -> tuple[Outcome, str]:
    ratio, word = found.ratio, found.word.replace("_", " ")
    counts = f"{found.rounds} {'round' if found.rounds == 1 else 'rounds'}"
    said = f"{ratio.estimate:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f}, {counts})"
    if measured.accepted:
        return ("accepted", said) if checked else ("not verified", f"{said}, and its data were not compared")
    if found.no_gain and measured.settled and found.word not in SLOWER:
        return "rejected", f"no faster by {MARGIN:.0%}: {said}"
    if found.futile and measured.settled and not found.decided:
        return "not verified", f"no gain of {MARGIN:.0%} to be seen: {said}"
    if found.decided and found.word not in FASTER:
        return "rejected", f"{word}: {said}"
    if behind is not None:
        return "not verified", f"slower than {said_of(FixSet.parse(behind))}, so it was measured no further: {said}"
    why = f": {measured.effect.why}" if measured.effect and measured.effect.why else ""
    if found.decided:
        why = f": {found.processes} process, and it takes {LEAST_BLOCKS}"
    return "not verified", f"{word}: {said}{why}"


def with_fixes(findings: Sequence[Finding], results: Sequence[FixResult]) -> tuple[Finding, ...]:
    """The findings with the verified speed-up, the equivalence and the patch of the fix that mends each.

    A fix that changes the data is never a speed-up: its finding says that the data are not the same, and no number.
    """
    return tuple(_with(finding, mending(finding.rule, results)) for finding in findings)


def compared(results: Sequence[FixResult]) -> dict[str, Compared]:
    """The fixes that were measured with the same data, beside the original, by name."""
    return {
        one.name: Compared(
            one.name, "ok", None, one.step_time_s, one.verified_speedup, one.blocks, accepted=one.outcome == "accepted"
        )
        for one in results
        if one.verified_speedup is not None and one.semantics is not None and one.semantics.equivalent
    }


def mending(rule: str, results: Sequence[FixResult], *, mainly: bool = False) -> FixResult | None:
    """The fix for a rule's finding: one that was accepted, else measured with the same data, else compared, else any.

    The last two tell by ``why`` what became of them; ``None`` where no fix is for the rule, or ``mainly`` for it.
    """

    def mends(fix: Fix) -> bool:
        if rule == _INPUT:
            return not mainly and not fix.is_of_step
        loop = mainly and rule == "sequential-map" and fix.kind == "open-generator"  # that a map takes the place of
        return loop or (fix.kind in SPECS and rule in SPECS[fix.kind].mends[: 1 if mainly else None])

    own = [one for one in results if any(mends(fix) for fix in FixSet.of(one.fixes))]
    accepted = [one for one in own if one.outcome == "accepted"]
    tried = [one for one in own if one.semantics is not None]
    same = [one for one in tried if one.verified_speedup is not None and one.semantics and one.semantics.equivalent]
    return next(iter((*accepted, *same, *tried, *own)), None)


def _with(finding: Finding, fix: FixResult | None) -> Finding:
    if fix is None:
        return finding
    same = fix.semantics.equivalent if fix.semantics else None
    remedy, words, why = finding.remedy, fix.words, fix.why.rstrip(".")
    other = mending(finding.rule, (fix,), mainly=True) is None  # of another kind than what is advised
    if other and fix.outcome == "accepted":
        remedy = f"{words[:1].upper()}{words[1:]} mends it, and was accepted. Else: {remedy}"
    elif fix.outcome == "rejected" and finding.rule != _INPUT:
        remedy += f" Tried here, and not accepted: {words}: {why}."
    elif other and fix.outcome == "not verified" and fix.verified_speedup is not None:
        remedy += f" Tried here: {words}: {why}."
    measured, expected = fix.verified_speedup if same else None, finding.predicted_speedup
    if measured is not None and fix.predicted_speedup is not None and finding.rule != _INPUT:
        expected = Estimate.exactly(fix.predicted_speedup)  # of the same fix as what was measured
    of = {key: fix.name for key in _OF_A_FIX if key in finding.evidence and measured is not None}
    return finding.model_copy(
        update={
            "remedy": remedy,
            "evidence": {**finding.evidence, **of},
            "predicted_speedup": expected,
            "verified_speedup": measured,
            "same_data": "not_proved" if same is None else "proved" if same else "differs",
            "patch": fix.patch.diff if fix.patch and fix.patch.diff else finding.patch,
        }
    )
