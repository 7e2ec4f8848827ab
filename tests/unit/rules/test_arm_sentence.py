"""The sentence of a group: the winner, or why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from xttsbench.records.base import Estimate
from xttsbench.records.report import Arm
from xttsbench.rules.arm_runs import collect
from xttsbench.rules.arm_sentence import sentence


def arm(name: str, speed: float | None = None, decision: Any = None, status: str = "ok", **fields: Any) -> Arm:
    effect = Estimate(estimate=speed, low=speed * 0.95, high=speed * 1.06) if speed else None
    role = "candidate" if decision else "baseline"
    rate = Estimate(estimate=100.0, low=99.0, high=101.0)
    told = {"blocks": 6, "status": status, "effect": effect, "decision": decision, "throughput_per_s": rate}
    return Arm(**{"id": name, "role": role} | told | fields)


@pytest.fixture
def said(build):
    def say(*candidates: Arm, noisy: str | None = None, refused: dict[str, str] | None = None, **options: Any) -> str:
        (group,) = collect(build.comparison("base", accelerators=(build.emulated(),)), [])
        baseline = options.pop("baseline", arm("base"))
        labelled = options.pop("labelled", False)
        return sentence([baseline, *candidates], group, noisy, labelled=labelled, refused=refused or {})

    return say


def busy(share: float) -> dict[str, Any]:
    return {"utilization": Estimate(estimate=share, low=share, high=share)}


def test_the_fastest_of_the_faster_ones_is_named(said) -> None:
    candidates = [arm("a", 2.0, "faster"), arm("b", 11.8, "faster", **busy(0.984)), arm("c", 30.0, "inconclusive")]
    assert said(*candidates) == "b is 11.8x (11.2 to 12.5) as fast as base; utilization 98 %."
    assert said(*candidates, labelled=True).startswith("Emulated accelerator, 10 ms a step: b is 11.8x")


@pytest.mark.parametrize(
    ("decisions", "words"),
    [
        (["slower", "equivalent"], "No candidate is faster than base; a is slower, b is equivalent."),
        (["equivalent", "ended"], "No candidate is faster than base; a is equivalent, b ended."),
        (["ended", "ended"], "No candidate ran to its end beside base; a ended, b ended."),
        (["inconclusive", "slower"], "a looks 1.10x (1.04 to 1.17) as fast as base, and 6 blocks decide nothing."),
    ],
)
def test_without_a_faster_one_none_is_named(said, decisions, words) -> None:
    speeds = {"inconclusive": 1.1, "slower": 0.5, "equivalent": 1.0, "ended": None}
    assert said(*(arm(name, speeds[told], told) for name, told in zip("ab", decisions, strict=True))) == words


def test_the_most_promising_may_be_decided_and_another_not(said) -> None:
    text = said(arm("a", 1.0, "equivalent"), arm("b", 0.9, "inconclusive"))
    assert text == "No candidate is known to be faster than base; a is equivalent, b is inconclusive."


def test_one_block_is_one(said) -> None:
    text = said(arm("a", 250.0, "inconclusive", blocks=1, **busy(0.5)))
    assert text == "a looks 250x (238 to 265) as fast as base; utilization 50 %, and 1 block decides nothing."


def test_a_noisy_session_names_nobody(said) -> None:
    text = said(arm("a", 2.0, "inconclusive"), noisy="the session is noisy (1.0x), so no winner is named")
    assert text == (
        "The session is noisy (1.0x), so no winner is named; a looked 2.00x (1.90 to 2.12) as fast as base."
    )


def test_a_baseline_that_ended_and_a_baseline_alone(said) -> None:
    gone = arm("base", status="killed: killed by SIGKILL.")
    text = "nothing can be compared, since the baseline base ended: killed: killed by SIGKILL."
    assert said(arm("a", 2.0, "inconclusive"), baseline=gone).lower() == text.lower()
    assert said() == "base gives 100 samples/s; there is nothing to compare it with."


def test_refused_arms_are_told_elsewhere(said) -> None:
    assert said(arm("a", None, "ended"), refused={"a": "batch 0"}).startswith("base gives 100 samples/s")
