"""What the arms of one group come to, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xttsbench.comparison.runs import GroupRuns
from xttsbench.records.base import FASTER, SLOWER, Estimate
from xttsbench.records.report import Arm


def sentence(
    arms: Sequence[Arm], group: GroupRuns, open_: Mapping[str, str], *, labelled: bool, refused: Mapping[str, str]
) -> str:
    """The answer of a group.

    Args:
        arms: of the group, decided; the first is the baseline.
        group: what they were made from.
        open_: arms that are not decided, and what would decide them.
        labelled: say which accelerator it was, since there are others.
        refused: arms whose data differ from the baseline's; they are told elsewhere.
    """
    said = _answer(arms, open_, refused)
    where = f"{_capital(group.accelerator.label)}: {said}" if labelled else _capital(said)
    return f"{where}."


def _answer(arms: Sequence[Arm], open_: Mapping[str, str], refused: Mapping[str, str]) -> str:
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
            return f"{best.id} is {said(best)} than {baseline.id}: {_behind(best)}{_busy(best)}{more}"
    best = max(running, key=_speed)
    if best.decision == "undecided":
        return (
            f"{best.id} looks {_ratio(best.effect)} as fast as {baseline.id}{_busy(best)}, which is undecided: "
            f"{open_.get(best.id, 'not compared').rstrip('. ')}"
        )
    sure = all(arm.decision in (*SLOWER, "no_difference") for arm in running)
    return f"no candidate is {'' if sure else 'known to be '}faster than {baseline.id}; {_list(candidates)}"


def said(arm: Arm) -> str:
    """An arm's word as people read it: ``clearly faster``."""
    return (arm.decision or "not compared").replace("_", " ")


def _list(arms: Sequence[Arm]) -> str:
    words = {"ended": "{} ended", "no_difference": "{} makes no difference"}
    return ", ".join(words.get(arm.decision or "", "{} is " + said(arm)).format(arm.id) for arm in arms)


def _behind(arm: Arm) -> str:
    """The ratio, and what it rests on."""
    return f"{_ratio(arm.effect)} in {_count(arm.rounds, 'round')} of {_count(arm.processes, 'process')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}{'es' if what.endswith('s') else 's'}"


def _speed(arm: Arm) -> float:
    return arm.effect.estimate if arm.effect is not None else 0.0


def _ratio(effect: Estimate | None) -> str:
    if effect is None:
        return "?"
    return f"{_number(effect.estimate)}x ({_number(effect.low)} to {_number(effect.high)})"


def _number(value: float) -> str:
    """Three digits or more, so that 1.02 is told from 1."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _busy(arm: Arm) -> str:
    return f"; utilization {100 * arm.utilization.estimate:.0f} %" if arm.utilization is not None else ""


def _capital(text: str) -> str:
    # An arm's id keeps its letters; only our own words begin in capitals.
    return text[:1].upper() + text[1:] if text.startswith(("no ", "nothing ", "the ", "real ", "emulated ")) else text
