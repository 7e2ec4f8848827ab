from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.records.report import Arm, Report
from xttsbench.records.trial import Segment
from xttsbench.reporting.groups import groups, trials_of


def of(report, *arms: Arm):
    return groups(report.model_copy(update={"arms": arms}))


def test_a_group_is_what_was_measured_together_on_one_accelerator(comparing) -> None:
    loaders, modes = groups(comparing.report)
    assert [arm.id for arm in loaders.arms] == ["numpy_wav", "packed", "tf_wav", "tf_fast", "ram", "numpy_wav:again"]
    assert (loaders.emulated, modes.emulated) == (True, False)
    assert loaders.title == "loaders: EMULATED accelerator, 10 ms a step"
    assert modes.title == "modes: REAL device"
    assert loaders.slug == "loaders-emulated-accelerator-10-ms-a-step"
    assert modes.slug == "modes-real-device"
    assert loaders.baseline is not None
    assert loaders.baseline.id == "numpy_wav"


def test_the_fastest_is_one_that_was_decided_to_be_faster(comparing, make_arm) -> None:
    report = comparing.report
    assert groups(report)[0].fastest.id == "packed"
    quick = comparing.report.arms[1].model_copy(update={"decision": "undecided"})
    (group,) = of(report, report.arms[0], quick)
    assert group.fastest is None
    assert [arm.id for arm in group.candidates] == ["packed"]


def test_arms_without_a_group_belong_to_none(starving) -> None:
    assert groups(starving.report) == ()


def test_names_that_are_alike_in_a_file_name_are_told_apart(comparing, make_arm) -> None:
    arms = (make_arm(str(index), 0.1, group=name) for index, name in enumerate(("a b", "a/b", "a-b")))
    found = of(comparing.report, *arms)
    assert len({group.slug for group in found}) == 3
    assert found[0].slug == "a-b-emulated-accelerator-10-ms-a-step"
    assert found[1].slug == f"{found[0].slug}-2"


@given(st.text(min_size=1), st.text())
def test_a_slug_is_a_file_name_whatever_the_group_is_called(name: str, accelerator: str) -> None:
    arm = Arm(id="x", role="candidate", blocks=1, status="ok", group=name, accelerator=accelerator)
    (group,) = groups(Report.model_construct(arms=(arm,)))
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", group.slug)
    assert len(group.slug) <= 48


@pytest.mark.parametrize(("label", "found"), [("emulated, 10 ms a step", 10.0), ("emulated, 110 ms a step", 110.0)])
def test_trials_of_two_emulated_accelerators_are_told_apart(comparing, make_arm, make_arm_trial, label, found) -> None:
    made = Segment(name="as_is", columns={"start_ns": (1,), "wall_ns": (1,)})
    trials = [make_arm_trial("x", block, made, emulated_ms=wait) for block in (1, 0) for wait in (10.0, 110.0)]
    labels = ("emulated, 10 ms a step", "emulated, 110 ms a step")
    every = of(comparing.report, *(make_arm("x", 0.1, accelerator=text) for text in labels))
    group = next(group for group in every if group.accelerator == label)
    picked = trials_of(group, group.arms[0], every, trials)
    assert [(trial.spec.block, trial.spec.emulated_ms) for trial in picked] == [(0, (found,)), (1, (found,))]


def test_trials_that_are_emulated_are_never_those_of_a_device(comparing, make_arm, make_arm_trial) -> None:
    made = Segment(name="as_is", columns={"start_ns": (1,), "wall_ns": (1,)})
    trials = [make_arm_trial("x", 0, made), make_arm_trial("x", 0, made, emulated_ms=10.0)]
    dead = make_arm_trial("x", 1, made).model_copy(update={"status": "killed"})
    other = make_arm_trial("x", 0, made, group="others")
    every = of(comparing.report, make_arm("x", 0.1, accelerator="real device"), make_arm("x", 0.1))
    real, emulated = (trials_of(group, group.arms[0], every, [*trials, dead, other]) for group in every)
    assert [trial.spec.emulated_ms for trial in real] == [()]
    assert [trial.spec.emulated_ms for trial in emulated] == [(10.0,)]
