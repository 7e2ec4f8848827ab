"""What the arms of one group come to, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xttsbench.records.base import Estimate
from xttsbench.records.report import Arm
from xttsbench.rules.arm_runs import GroupRuns


def sentence(
    arms: Sequence[Arm], group: GroupRuns, noisy: str | None, *, labelled: bool, refused: Mapping[str, str]
) -> str:
    """The answer of a group.

    Args:
        arms: of the group, decided; the first is the baseline.
        group: what they were made from.
        noisy: why no winner is named, where that is so.
        labelled: say which accelerator it was, since there are others.
        refused: arms whose data differ from the baseline's; they are told elsewhere.
    """
    said = _answer(arms, noisy, refused)
    where = f"{_capital(group.accelerator.label)}: {said}" if labelled else _capital(said)
    return f"{where}."


def _answer(arms: Sequence[Arm], noisy: str | None, refused: Mapping[str, str]) -> str:
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
    best = max(running, key=_speed)
    if noisy is not None:
        return f"{noisy}; {best.id} looked {_ratio(best.effect)} as fast as {baseline.id}"
    faster = [arm for arm in running if arm.decision == "faster"]
    if faster:
        winner = max(faster, key=_speed)
        return f"{winner.id} is {_ratio(winner.effect)} as fast as {baseline.id}{_busy(winner)}"
    if all(arm.decision in ("equivalent", "slower") for arm in running):
        return f"no candidate is faster than {baseline.id}; {_list(candidates)}"
    if best.decision == "inconclusive":
        blocks = "1 block decides" if best.blocks == 1 else f"{best.blocks} blocks decide"
        return f"{best.id} looks {_ratio(best.effect)} as fast as {baseline.id}{_busy(best)}, and {blocks} nothing"
    return f"no candidate is known to be faster than {baseline.id}; {_list(candidates)}"


def _list(arms: Sequence[Arm]) -> str:
    return ", ".join(f"{arm.id} {'ended' if arm.decision == 'ended' else f'is {arm.decision}'}" for arm in arms)


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
