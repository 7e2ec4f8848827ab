"""From the trials of a comparison to its arms: what each gives, costs and is worth against the baseline of its group.

Pure: the same plan and trials give the same arms. Where the data of an arm differ from the baseline's it is refused.
While a comparison is measured they stand as they do, and some need no more turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from xttsbench.analysis.evidence import Evidence
from xttsbench.comparison.effects import FINAL, Effect, Weighed, weigh
from xttsbench.comparison.figures import figures_of
from xttsbench.comparison.runs import GroupRuns, ParityFound, VariantRuns, collect, parity_found
from xttsbench.planning import parity_arms
from xttsbench.records.base import DECIDED, FASTER, SLOWER, Estimate, Word
from xttsbench.records.missing import Missing, nulls
from xttsbench.records.plan import Comparison
from xttsbench.records.report import AA, Variant
from xttsbench.records.trial import TrialRecord

BASELINE: Final = "it is the baseline that the others are compared with"
"""Why a baseline has no speed against itself."""
_NO_FRAMES: Final = "the workload does not say where its frames are (Workload.frames and Workload.lengths)"


@dataclass(frozen=True)
class ComparedVariants:
    """Results of a comparison.

    Attributes:
        groups: the trials sorted, one entry for each accelerator, without the rounds that were left out.
        arms: of all groups, in the order of the plan.
        aa: of the first group.
        sentences: one for each group.
        remarks: what has to be known of the session's noise.
        parity: for the report; ``None`` where no data were compared.
        unknown: configuration -> why it is not known whether it feeds the baseline's data.
        failed: how the baseline ended while its data were read, where it did.
        unmeasured: path in the report -> reason.
    """

    groups: tuple[GroupRuns, ...]
    arms: tuple[Variant, ...]
    aa: AA
    sentences: tuple[str, ...]
    remarks: tuple[str, ...]
    parity: dict[str, Any] | None
    unknown: Mapping[str, str]
    failed: str | None
    unmeasured: Mapping[str, str]
    noise_scales: tuple[float, ...] = ()
    """Noise of each group: standard deviation between pairs of equal configurations."""

    @property
    def refused(self) -> Mapping[str, str]:
        """Configurations whose data differ from the baseline's, and where."""
        return self.parity["differences"] if self.parity else {}


def compare(comparison: Comparison, trials: Sequence[TrialRecord], *, first_arm: int = 0) -> ComparedVariants:
    """The configurations of every group, with what may be said of each.

    The index of the first configuration in the report is for the paths of ``unmeasured``.
    """
    data = parity_found(comparison, trials)
    groups = collect(comparison, trials)
    arms: list[Variant] = []
    said: list[str] = []
    unmeasured: dict[str, str] = {}
    every, labelled = [weigh(group, comparison.margin) for group in groups], len(groups) > 1
    for group, weighed in zip(groups, every, strict=True):
        open_: dict[str, str] = {}
        before = len(arms)
        for runs in weighed.group.arms:
            effect = _allowed(runs, weighed.effects.get(runs.arm.id), group, data)
            arm, reasons = _arm(comparison, runs, effect, weighed, data)
            unmeasured |= {f"arms.{first_arm + len(arms)}.{name}": reason for name, reason in reasons.items()}
            if "decision" in reasons:
                open_[arm.id] = reasons["decision"]
            arms.append(arm)
        said.append(sentence(arms[before:], group, open_, labelled=labelled, refused=data.differences))
    aa, reasons = _aa(every[0])
    parity, why = _parity(comparison, data)
    if why is not None:
        unmeasured["parity"] = why
    return ComparedVariants(
        tuple(weighed.group for weighed in every),
        tuple(arms),
        aa,
        tuple(said),
        tuple(dict.fromkeys(remark for weighed in every for remark in _remarks(weighed, labelled=labelled))),
        parity,
        data.unknown,
        data.why_failed,
        unmeasured | reasons,
        tuple(weighed.noise_scale for weighed in every),
    )


def _allowed(runs: VariantRuns, effect: Effect | None, group: GroupRuns, data: ParityFound) -> Effect | None:
    if effect is None or effect.word == "undecided":
        return effect
    if (why := data.unknown.get(runs.arm.id)) is not None:
        return effect.withheld(f"whether it yields the baseline's data is not known: {why}")
    return effect if group.ended is None else effect.withheld(f"the baseline ended ({group.ended})")


def _arm(
    comparison: Comparison, runs: VariantRuns, effect: Effect | None, weighed: Weighed, data: ParityFound
) -> tuple[Variant, dict[str, str]]:
    """The record of one configuration, and the reasons for what it lacks, by field."""
    group = weighed.group
    status, why_absent = _status(runs, group, data)
    refused = data.differences.get(runs.arm.id)
    found = _against(runs, effect, weighed, refused)
    evidence = None if isinstance(found, Missing) else found
    ratio = evidence.ratio if evidence else None
    figures = figures_of(runs, group, weighed.noise_scale, ratio.estimate if ratio else None)
    missing = {name: value.reason for name, value in figures.items() if isinstance(value, Missing)}
    decision: Word | Literal["ended"] | None = None
    if runs.arm.role == "candidate":
        ended = runs.ended is not None or refused is not None
        decision = "ended" if ended else effect.word if effect is not None else "undecided"
    arm = Variant(
        id=runs.arm.id,
        role=runs.arm.role,
        config=runs.arm.config,
        blocks=len(runs.steps),
        status=status,
        decision=decision,
        group=comparison.name,
        accelerator=group.accelerator.label,
        steps=sum(len(steps) for steps in runs.steps.values()),
        **{name: value for name, value in figures.items() if name not in missing},
        effect=ratio,
        processes=evidence.processes if evidence else 0,
        rounds=evidence.rounds if evidence else 0,
        evidence=evidence.value if evidence else None,
        gain_ruled_out=evidence is not None and evidence.no_gain,
    )
    if isinstance(found, Missing):
        missing |= dict.fromkeys(("effect", "evidence"), found.reason)
    default = why_absent or _NO_FRAMES
    absent = [name for name in Variant.model_fields if name != "decision" and getattr(arm, name) is None]
    reasons = {name: missing.get(name, default) for name in absent}
    if decision is not None and decision != "ended" and decision not in DECIDED:
        reasons["decision"] = why_absent or (effect.why if effect else None) or "nothing was compared"
        if arm.gain_ruled_out:
            reasons["decision"] = "it is not faster by anything that matters; whether it is slower stayed open"
    return arm, reasons


def _status(runs: VariantRuns, group: GroupRuns, data: ParityFound) -> tuple[str, str | None]:
    """``ok``, or how the configuration ended with its cause; and why it has no figures, where it has none."""
    refused = data.why_refused(runs.arm.id)
    if refused is not None:
        return f"refused: {refused}", "refused, so not measured"
    if runs.ended is not None:
        return runs.ended, None if runs.steps else runs.ended
    if runs.steps:
        return "ok", None
    ended = group.ended or data.why_failed
    why = f"the baseline ended ({ended})" if ended else "the run ended before its turn"
    return f"not run: {why}", why


def _against(runs: VariantRuns, effect: Effect | None, weighed: Weighed, refused: str | None) -> Evidence | Missing:
    """Evidence of a configuration's rounds beside the baseline's, or the reason for none."""
    if runs.arm.role == "baseline":
        return Missing(BASELINE)
    if runs.arm.role == "aa":
        return weighed.again or Missing(weighed.why or "not compared")
    if effect is None or refused:
        return Missing("refused, so not measured" if refused else runs.ended or "not measured")
    return effect.found or Missing(effect.why or "not compared")


def _remarks(weighed: Weighed, *, labelled: bool) -> list[str]:
    """Remarks on the noise of a group; the machine's disturbance is reported for the whole run."""
    where = f"{weighed.group.accelerator.label}: " if labelled else ""
    remarks = []
    if weighed.slope:
        remarks.append(
            f"{where}other work left the configurations unequal shares of the processors, so their speeds are compared "
            f"at equal shares (a speed followed its share to the power of {weighed.slope:.2f})"
        )
    if weighed.noisy:
        remarks.append(
            f"{where}processes of equal configurations differ by {100 * weighed.noise_scale:.0f} % in this session; "
            "the intervals and the evidence allow for it"
        )
    return remarks


def _aa(weighed: Weighed) -> tuple[AA, dict[str, str]]:
    found = AA(
        effect=weighed.again.ratio if weighed.again else None,
        noisy=weighed.noisy,
        smallest_visible_effect=weighed.smallest_visible_effect,
    )
    why = weighed.why or "too few rounds for any effect to be decided"
    return found, nulls("aa", found, why)


def _parity(comparison: Comparison, data: ParityFound) -> tuple[dict[str, Any] | None, str | None]:
    wanted, skipped = parity_arms(comparison)
    told = (*data.same, *data.differences)
    if data.compared is None or not told:
        if wanted:
            return None, "; ".join(
                dict.fromkeys(data.unknown.values())
            ) or "the run ended before the data were compared"
        return None, "; ".join(f"{arm}: {why}" for arm, why in skipped.items()) or "there is nothing to compare"
    return {
        "same": not data.differences,
        "tolerance": data.compared.tolerance,
        "batches": data.compared.batches,
        "baseline": comparison.baseline.id,
        "arms": list(told),
        "difference": next((f"{arm}: {where}" for arm, where in data.differences.items()), None),
        "differences": dict(data.differences),
        "failed": dict(data.unknown),
        "skipped": skipped,
        **({"losses": dict(data.losses)} if data.losses else {}),
        **({"losses_unknown": dict(data.losses_unknown)} if data.losses_unknown else {}),
    }, None


def sentence(
    arms: Sequence[Variant], group: GroupRuns, open_: Mapping[str, str], *, labelled: bool, refused: Mapping[str, str]
) -> str:
    """The answer of a group.

    Of those that are open it says what would decide them; those whose data differ are told elsewhere.
    """
    said = _answer(arms, open_, refused)
    where = f"{_capital(group.accelerator.label)}: {said}" if labelled else _capital(said)
    return f"{where}."


def _answer(arms: Sequence[Variant], open_: Mapping[str, str], refused: Mapping[str, str]) -> str:
    baseline, again = arms[0], next((arm for arm in arms if arm.role == "aa"), None)
    candidates = [arm for arm in arms if arm.role == "candidate" and arm.id not in refused]
    for arm in (baseline, again):
        if arm is not None and arm.status != "ok":
            return f"nothing can be compared, since the baseline {baseline.id} ended: {arm.status.rstrip('. ')}"
    if not candidates:
        rate = f"{baseline.throughput_per_s.estimate:.4g} samples/s" if baseline.throughput_per_s else "nothing"
        return f"{baseline.id} gives {rate}; there is nothing to compare it with"
    running = [arm for arm in candidates if arm.effect is not None and arm.decision != "ended"]
    if not running:
        return f"no candidate ran to its end beside {baseline.id}; {_list(candidates)}"
    for words in (FASTER, ("likely_faster",)):
        if faster := [arm for arm in running if arm.decision in words]:
            best = max(faster, key=_speed)
            more = f"; {open_[best.id]}" if best.id in open_ else ""
            of = f"{_count(best.rounds, 'round')} of {_count(best.processes, 'process')}"
            ratio = f"{_ratio(best.effect)} in {of}"
            return f"{best.id} is {said(best)} than {baseline.id}: {ratio}{_busy(best)}{more}"
    best = max(running, key=_speed)
    if best.decision == "undecided":
        return (
            f"{best.id} looks {_ratio(best.effect)} as fast as {baseline.id}{_busy(best)}, which is undecided: "
            f"{open_.get(best.id, 'not compared').rstrip('. ')}"
        )
    sure = all(arm.decision in (*SLOWER, "no_difference") for arm in running)
    return f"no candidate is {'' if sure else 'known to be '}faster than {baseline.id}; {_list(candidates)}"


def said(arm: Variant) -> str:
    """A configuration's word as people read it: ``clearly faster``."""
    return (arm.decision or "not compared").replace("_", " ")


def _list(arms: Sequence[Variant]) -> str:
    words = {"ended": "{} ended", "no_difference": "{} makes no difference"}
    return ", ".join(words.get(arm.decision or "", "{} is " + said(arm)).format(arm.id) for arm in arms)


def _count(number: int, what: str) -> str:
    plural = "es" if what.endswith("s") else "s"
    return f"{number} {what}{'' if number == 1 else plural}"


def _speed(arm: Variant) -> float:
    return arm.effect.estimate if arm.effect is not None else 0.0


def _ratio(effect: Estimate | None) -> str:
    if effect is None:
        return "?"
    return f"{_number(effect.estimate)}x ({_number(effect.low)} to {_number(effect.high)})"


def _number(value: float) -> str:
    """Three digits or more, so that 1.02 is told from 1."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _busy(arm: Variant) -> str:
    return f"; utilization {100 * arm.utilization.estimate:.0f} %" if arm.utilization is not None else ""


def _capital(text: str) -> str:
    # A configuration's id keeps its letters; only our own words begin in capitals.
    return text[:1].upper() + text[1:] if text.startswith(("no ", "nothing ", "the ", "real ", "emulated ")) else text


def interim_status(comparison: Comparison, trials: Sequence[TrialRecord]) -> str:
    """Phrase for the first accelerator's configurations after these trials: how many live, and which one leads.

    None leads before a round has it and the baseline; the baseline's second run is left out.
    """
    weighed = _first(comparison, trials)
    arms = [runs for runs in weighed.group.arms if runs.arm.role != "aa"]
    said = f"{sum(runs.ended is None for runs in arms)} of {len(arms)} configurations alive"
    found = [(one.ratio, name, one.word) for name, one in weighed.effects.items() if one.ratio is not None]
    if not found:
        return said
    ratio, leader, word = max(found, key=lambda one: one[0].estimate)
    speed = f"{ratio.estimate:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{said}; {leader} leads, {speed} the baseline: {word.replace('_', ' ')}"


def no_more_to_say(comparison: Comparison, trials: Sequence[TrialRecord]) -> set[str]:
    """Candidates of the first accelerator of which more rounds would say nothing else: the words that are final."""
    return {name for name, effect in _first(comparison, trials).effects.items() if effect.word in FINAL}


def _first(comparison: Comparison, trials: Sequence[TrialRecord]) -> Weighed:
    return weigh(collect(comparison, trials)[0], comparison.margin)
