"""What becomes of a finding once the fixes for it were verified, or could not be."""

from __future__ import annotations

from typing import Any

import pytest

from xttsbench.findings import rules
from xttsbench.fixes.registry import SPECS
from xttsbench.fixes.results import compared, mending, with_fixes
from xttsbench.records.base import Estimate
from xttsbench.records.fix import FixResult, Patch, Semantics
from xttsbench.records.report import Finding

TWICE = Estimate(estimate=2.0, low=1.9, high=2.1)
SAME = Semantics(equivalent=True, how="identical", sentence="the same")
OTHER = Semantics(equivalent=False, how="different", sentence="others")
UNKNOWN = Semantics(equivalent=None, how="unknown", sentence="it could not be read")


def finding(rule: str, **fields: Any) -> Finding:
    return Finding(rule=rule, severity="warning", limiting=True, title="a title", **fields)


def accepted(name: str, **fields: Any) -> FixResult:
    given = {"outcome": "accepted", "why": "2.00 times as fast", "verified_speedup": TWICE, "semantics": SAME} | fields
    return FixResult(name=name, fixes=tuple(name.split(" + ")), what=name, **given)


def rejected(name: str, **fields: Any) -> FixResult:
    return accepted(name, **{"outcome": "rejected", "why": "no faster"} | fields)


def unverified(name: str) -> FixResult:
    fields = {"outcome": "not verified", "why": "there was no time", "verified_speedup": None, "semantics": None}
    return accepted(name, **fields)


def told(rule: str, *results: FixResult, **fields: Any) -> Finding:
    (found,) = with_fixes([finding(rule, **fields)], results)
    return found


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ("sequential-map", "parallel-map:8"),
        ("sequential-map", "parallel-map + thread-pool:32"),
        ("thread-pool", "parallel-map + thread-pool:32"),
        ("cacheable", "cache@Map/_3"),
        ("eager-step", "prefetch + step:graph"),
        ("xla-untried", "step:xla"),
        ("xla-recompilation", "step:no-xla"),
        ("per-element-overhead", "gather"),
        ("input-bound", "prefetch"),
    ],
)
def test_a_finding_gets_what_the_fix_for_it_gave(rule: str, fix: str) -> None:
    found = told(rule, accepted(fix))
    assert (found.verified_speedup, found.same_data) == (TWICE, "proved")


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ("sequential-map", "prefetch"),
        ("no-prefetch", "buffer:4"),
        ("eager-step", "step:several:16"),
        ("xla-untried", "step:graph"),
        ("input-bound", "step:graph"),
        ("padding-waste", "prefetch"),
    ],
)
def test_and_nothing_of_another_s(rule: str, fix: str) -> None:
    before = finding(rule, patch="by hand")
    assert with_fixes([before], [accepted(fix)]) == (before,)
    assert mending(before.rule, [accepted(fix)]) is None


@pytest.mark.parametrize("data", [OTHER, UNKNOWN])
def test_a_speed_up_with_other_data_is_none(data: Semantics) -> None:
    found = told("sequential-map", rejected("parallel-map", semantics=data))
    assert (found.verified_speedup, found.same_data) == (None, "not_proved" if data.equivalent is None else "differs")


def test_the_remedy_of_a_fix_that_was_rejected_says_so() -> None:
    why = "not proved to leave the data as they are: f() draws random numbers"
    found = told("cacheable", rejected("cache@Map/_3", semantics=UNKNOWN, why=why), remedy="Keep it with .cache().")
    assert found.remedy == f"Keep it with .cache(). Tried here, and not accepted: cache@Map/_3: {why}."


def test_a_fix_that_is_slower_is_told_with_its_number() -> None:
    slower = Estimate(estimate=0.8, low=0.7, high=0.9)
    found = told("sequential-map", rejected("parallel-map", verified_speedup=slower))
    assert (found.verified_speedup, found.same_data) == (slower, "proved")


def test_what_was_not_verified_leaves_the_finding_as_it_is() -> None:
    before = finding("sequential-map", patch="by hand")
    assert with_fixes([before], [unverified("parallel-map")]) == (before,)


def test_the_one_that_was_accepted_counts_before_one_that_was_rejected_and_that_before_one_that_waits() -> None:
    best, other = accepted("parallel-map + prefetch"), rejected("parallel-map", semantics=OTHER)
    waiting = unverified("parallel-map:8")
    assert mending("sequential-map", [waiting, other, best]) == best
    assert mending("sequential-map", [waiting, other]) == other
    assert mending("sequential-map", [waiting]) == waiting
    assert mending("sequential-map", []) is None


def test_of_several_accepted_the_first_is_the_one_that_is_proposed() -> None:
    first, second = accepted("parallel-map + prefetch", chosen=True), accepted("parallel-map")
    assert mending("sequential-map", [first, second]) == first


def test_a_patch_that_was_run_takes_the_place_of_the_one_by_hand() -> None:
    assert told("sequential-map", accepted("parallel-map", patch=Patch(diff="-a\n+b\n")), patch="by hand").patch == (
        "-a\n+b\n"
    )
    assert told("sequential-map", accepted("parallel-map", patch=Patch()), patch="by hand").patch == "by hand"
    assert told("sequential-map", accepted("parallel-map"), patch="by hand").patch == "by hand"


def test_every_rule_that_is_named_exists() -> None:
    """A rule renamed would go without its cure, and nobody would see it."""
    assert {rule for spec in SPECS.values() for rule in spec.mends} <= rules().keys()


def test_the_rules_see_what_was_verified_with_the_same_data_and_nothing_else() -> None:
    slower = rejected("parallel-map", verified_speedup=Estimate(estimate=1.0, low=0.98, high=1.02), blocks=2)
    others = (accepted("prefetch:4", semantics=OTHER), accepted("cache@a", semantics=UNKNOWN), unverified("buffer"))
    found = compared((accepted("prefetch", blocks=3, step_time_s=TWICE), slower, *others))
    assert {name: (one.speedup.estimate, one.processes) for name, one in found.items()} == {
        "prefetch": (2.0, 3),
        "parallel-map": (1.0, 2),
    }
    assert found["prefetch"].time_s == TWICE


def test_what_is_expected_and_what_was_measured_are_of_one_fix() -> None:
    before = finding("sequential-map", predicted_speedup=Estimate.exactly(1.36), evidence={"predicted_with": "other"})
    both = rejected("parallel-map + prefetch", outcome="not verified", predicted_speedup=1.46)
    (found,) = with_fixes([before], [both, rejected("parallel-map", semantics=OTHER, verified_speedup=None)])
    assert (found.verified_speedup, found.predicted_speedup) == (TWICE, Estimate.exactly(1.46))
    assert found.evidence["predicted_with"] == "parallel-map + prefetch"
    assert "Tried here" not in found.remedy
    whole = finding("input-bound", predicted_speedup=Estimate(estimate=4.0, low=3.0, high=5.0))
    (found,) = with_fixes([whole], [both])
    assert found.predicted_speedup.estimate == 4.0, "of a step without its wait"


def test_a_rule_knows_which_fix_was_accepted() -> None:
    taken, other = compared([accepted("parallel-map"), rejected("prefetch")]).values()
    assert (taken.accepted, other.accepted) == (True, False)


def test_a_fix_of_another_kind_that_was_accepted_comes_before_the_advice() -> None:
    found = told("python-function", accepted("cache@Map/_3"), remedy="Port it.")
    assert found.remedy == "Cache@Map/_3 mends it, and was accepted. Else: Port it."
    assert told("cacheable", accepted("cache@Map/_3"), remedy="Keep it.").remedy == "Keep it."


def test_a_fix_that_is_not_decided_is_told_beside_the_advice() -> None:
    undecided = accepted("cache@Map/_3", outcome="not verified", why="1 process, and it takes 2.")
    assert told("python-function", undecided, remedy="Port it.").remedy == (
        "Port it. Tried here: cache@Map/_3: 1 process, and it takes 2."
    )
