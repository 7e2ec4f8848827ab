"""The sentence of a group: the winner, or why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from xttsbench.comparison.arms import sentence
from xttsbench.comparison.runs import collect
from xttsbench.records.base import Estimate
from xttsbench.records.report import Variant

OPEN = ("undecided", "likely_faster", "likely_slower")


def arm(name: str, speed: float | None = None, decision: Any = None, status: str = "ok", **fields: Any) -> Variant:
    effect = Estimate(estimate=speed, low=speed * 0.95, high=speed * 1.06) if speed else None
    role = "candidate" if decision else "baseline"
    rate = Estimate(estimate=100.0, low=99.0, high=101.0)
    told = {"blocks": 6, "status": status, "effect": effect, "decision": decision, "throughput_per_s": rate}
    told |= {"processes": 2, "rounds": 6}
    return Variant(**{"id": name, "role": role} | told | fields)


@pytest.fixture
def said(build):
    def say(*candidates: Variant, refused: dict[str, str] | None = None, **options: Any) -> str:
        (group,) = collect(build.comparison("base", accelerators=(build.emulated(),)), [])
        baseline = options.pop("baseline", arm("base"))
        labelled = options.pop("labelled", False)
        open_ = {own.id: "evidence 2, and 40 decides" for own in candidates if own.decision in OPEN}
        return sentence([baseline, *candidates], group, open_, labelled=labelled, refused=refused or {})

    return say


def busy(share: float) -> dict[str, Any]:
    return {"utilization": Estimate(estimate=share, low=share, high=share)}


def test_the_fastest_of_the_faster_ones_is_named(said) -> None:
    candidates = [arm("a", 2.0, "faster"), arm("b", 11.8, "clearly_faster", **busy(0.984)), arm("c", 30.0, "undecided")]
    told = "b is clearly faster than base: 11.8x (11.2 to 12.5) in 6 rounds of 2 processes; utilization 98 %."
    assert said(*candidates) == told
    assert said(*candidates, labelled=True).startswith("Emulated accelerator, 10 ms a step: b is clearly faster")


def test_what_is_likely_is_named_as_such_with_what_would_decide_it(said) -> None:
    candidates = [arm("a", 1.2, "likely_faster", rounds=1, processes=1), arm("b", 1.3, "undecided")]
    assert said(*candidates) == (
        "a is likely faster than base: 1.20x (1.14 to 1.27) in 1 round of 1 process; evidence 2, and 40 decides."
    )


@pytest.mark.parametrize(
    ("decisions", "words"),
    [
        (["slower", "no_difference"], "No candidate is faster than base; a is slower, b makes no difference."),
        (["no_difference", "ended"], "No candidate is faster than base; a makes no difference, b ended."),
        (["ended", "ended"], "No candidate ran to its end beside base; a ended, b ended."),
        (
            ["undecided", "slower"],
            "a looks 1.10x (1.04 to 1.17) as fast as base, which is undecided: evidence 2, and 40 decides.",
        ),
    ],
)
def test_without_a_faster_one_none_is_named(said, decisions, words) -> None:
    speeds = {"undecided": 1.1, "slower": 0.5, "no_difference": 1.0, "ended": None}
    assert said(*(arm(name, speeds[told], told) for name, told in zip("ab", decisions, strict=True))) == words


def test_the_most_promising_may_be_decided_and_another_not(said) -> None:
    text = said(arm("a", 1.0, "no_difference"), arm("b", 0.9, "undecided"))
    assert text == "No candidate is known to be faster than base; a makes no difference, b is undecided."


def test_a_baseline_that_ended_and_a_baseline_alone(said) -> None:
    gone = arm("base", status="killed: killed by SIGKILL.")
    text = "nothing can be compared, since the baseline base ended: killed: killed by SIGKILL."
    assert said(arm("a", 2.0, "undecided"), baseline=gone).lower() == text.lower()
    assert said() == "base gives 100 samples/s; there is nothing to compare it with."


def test_refused_arms_are_told_elsewhere(said) -> None:
    assert said(arm("a", None, "ended"), refused={"a": "batch 0"}).startswith("base gives 100 samples/s")
