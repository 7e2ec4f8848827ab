"""What a side of a comparison is: paths and ids with colons, arms on several accelerators, rounds of a sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import verdict
from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.records.report import Report, Variant
from xttsbench.reporting.page import to_json
from xttsbench.workflows.compare.sides import Side, kwargs_of, pair_arms, read_side, trials_of
from xttsbench.workflows.reports.modes import GROUP, LABEL

REAL, EMULATED = "real device", "emulated accelerator, 10 ms a step"


def arm(name: str, accelerator: str = REAL, **fields: Any) -> Variant:
    return Variant(
        **{"id": name, "role": "candidate", "blocks": 8, "status": "ok", "group": "g"} | fields, accelerator=accelerator
    )


def report(*arms: Variant, kind: str = "run", created: str = "2026") -> Report:
    return Report(kind=kind, command="c", created_utc=created, target={}, environment={}, verdict=verdict(), arms=arms)


def side(name: str, *arms: Variant, kind: str = "run", **fields: Any) -> Side:
    return Side(given=name, path=Path("/nowhere") / name, report=report(*arms, kind=kind, created=name), **fields)


def names(a: Side, b: Side) -> list[tuple[str, str]]:
    return [(left.id, right.id) for _, left, right in pair_arms(a, b)[0]]


@pytest.mark.parametrize(
    ("given", "arm_id", "accelerator"),
    [
        ("x:y.json", None, None),
        ("x:y.json:fix:map", "fix:map", None),
        ("x:y.json:a@emulated:10", "a", "emulated:10"),
        ("x:y.json:@real", None, "real"),
        ("x:y.json:", None, None),
    ],
)
def test_the_longest_beginning_that_exists_is_the_path(
    given: str, arm_id: str | None, accelerator: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x:y.json").write_text(to_json(report(arm("a"))))
    found = read_side(given)
    assert (found.path, found.arm, found.accelerator) == (Path("x:y.json"), arm_id, accelerator)


def test_what_does_not_exist_or_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_side(str(tmp_path / "no"))
    (tmp_path / "text").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="is not JSON"):
        read_side(str(tmp_path / "text"))


def test_the_second_run_of_a_baseline_and_the_modes_are_no_arms_to_match() -> None:
    arms = (arm("a", role="baseline"), arm("a:again", role="aa"), arm("step:xla", LABEL, group=GROUP), arm("b"))
    assert names(side("x", *arms), side("y", *arms)) == [("a", "a"), ("b", "b")]


def test_without_a_common_arm_the_baselines_are_compared() -> None:
    a, b = side("x", arm("a", role="baseline"), arm("b")), side("y", arm("c", role="baseline"))
    ((name, *_),), alone = pair_arms(a, b)
    assert (name, alone) == ("a vs c", ())


def test_a_diagnosis_stands_beside_the_baseline_of_its_accelerator() -> None:
    given = arm("as-given", "", role="baseline", group="")
    a = side("x", given, arm("a", EMULATED), kind="diagnose")
    b = side("y", arm("a", EMULATED, role="baseline"), arm("a", REAL, role="baseline"))
    (_, left, right) = pair_arms(a, b)[0][0]
    assert (left.id, right.accelerator) == ("as-given", REAL)
    other = side("z", given, kind="diagnose")
    assert names(a, other) == [("as-given", "as-given")]
    assert [name for name, *_ in pair_arms(a, other)[0]] == ["original"]
    for typed in ("original", "as-given"):
        asked = side("x", given, arm("a", EMULATED), kind="diagnose", arm=typed)
        assert names(asked, other) == [("as-given", "as-given")]


def test_an_id_with_an_at_sign_is_found() -> None:
    odd = side("x", arm("a@b", role="baseline"), arm="a", accelerator="b")
    assert names(odd, side("y", arm("a@b", role="baseline"))) == [("a@b", "a@b")]


@pytest.mark.parametrize("accelerator", ["emulated", "emulated:10", EMULATED])
def test_an_accelerator_is_named_in_short_or_in_full(accelerator: str) -> None:
    arms = (arm("a"), arm("a", EMULATED))
    pairs, _ = pair_arms(side("x", *arms, arm="a", accelerator=accelerator), side("y", *arms, arm="a"))
    assert {own.accelerator for own in pairs[0][1:]} == {EMULATED}


def test_an_ambiguous_arm_lists_the_ways_to_name_it() -> None:
    arms = (arm("a"), arm("a", EMULATED), arm("b"))
    with pytest.raises(UsageError, match=r"say which: a@real, a@emulated:10\."):
        pair_arms(side("x", *arms, arm="a"), side("y", arm("b"), arm="b"))
    many = tuple(arm(f"arm{number}") for number in range(30))
    with pytest.raises(UsageError, match="arm19 and 10 more"):
        pair_arms(side("x", *many, arm="nope"), side("y", *many))


@pytest.mark.parametrize(
    ("target", "own", "expected"),
    [
        ({"kwargs": {"ms": 20}}, {"config": {"prefetch": 4}}, {"ms": 20, "prefetch": 4}),
        ({"kwargs": {"ms": 20}}, {"config": {"mode": "xla"}, "group": GROUP}, {"ms": 20}),
        ({"kwargs": {"ms": 20}}, {"config": {"fix": "cache"}, "group": ""}, {"ms": 20}),
        ({}, {"config": {"prefetch": 4}}, None),
    ],
)
def test_keyword_arguments_are_the_target_s_with_those_of_the_configuration(target, own, expected) -> None:
    one = arm("a", **own)
    found = side("x", one)
    found = replace(found, report=found.report.model_copy(update={"target": target}))
    assert kwargs_of(found, one) == expected


def test_of_the_rounds_of_a_sweep_the_last_one_counts(build) -> None:
    trials = tuple(
        build.arm_trial(name, block=block, group=f"loaders: {kind}")
        for kind, blocks, arms in (("screening", (0, 1), "ab"), ("confirmation", (2, 3, 4), "a"))
        for block in blocks
        for name in arms
    )
    plan = build.run_plan(kind="sweep", comparison=build.comparison("a", "b"))
    found = side("x", plan=plan, trials=(*trials, build.dead("a", group="loaders: confirmation", block=5)))
    assert [trial.spec.block for trial in trials_of(found, arm("a", group="loaders"))] == [2, 3, 4]
    assert [trial.spec.block for trial in trials_of(found, arm("b", group="loaders"))] == [0, 1]
    assert trials_of(found, arm("a", EMULATED, group="loaders")) == ()


def test_the_target_as_given_has_the_main_trials(build) -> None:
    trials = (
        build.ladder(number=0),
        build.trial("pipeline", number=1),
        build.ladder(number=2, status="killed"),
    )
    found = side("x", trials=trials)
    assert trials_of(found, arm("as-given", "", group="")) == trials[:1]
    assert trials_of(found, arm("other", "", group="")) == ()
