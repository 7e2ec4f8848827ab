"""How a run begins, and when one may go on: with the same scenario, code, data and machine, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.execution import journal
from xttsbench.execution.run_directory import read_plan
from xttsbench.files import DRAFT_PREFIX
from xttsbench.records.plan import Procedure
from xttsbench.workflows import recorded
from xttsbench.workflows.recorded import Recorded
from xttsbench.workflows.run import run as module
from xttsbench.workflows.run.run import Request, begin, read_scenario

TEXT = "name: mine\ntarget: data.py:make\ngrid: {ms: [1, 2, 3]}\nbudget_s: 60\n"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``start(text, **request)`` begins a run of that scenario in ``out``."""
    monkeypatch.chdir(tmp_path)
    machine = {"fingerprint": "f", "cpu": {}}
    for place in (module, recorded):
        monkeypatch.setattr(place, "read_machine", lambda _: dict(machine))
    (tmp_path / "data.py").write_text("def make(): ...\n")

    def begun(
        text: str = TEXT, *, kind: str = "run", procedure: Any = None, check: Any = None, **fields: Any
    ) -> Recorded:
        (tmp_path / "mine.yaml").write_text(text)
        request = Request(scenario="mine.yaml", **({"out": tmp_path / "out"} | fields))
        scenario = read_scenario(request)
        return begin(request, scenario, kind, procedure=procedure, check=check)  # type: ignore[arg-type]

    begun.machine = machine  # type: ignore[attr-defined]
    return begun


def test_the_plan_is_on_disk_before_anything_is_measured(start: Any) -> None:
    begun = start()
    assert read_plan(begun.directory) == begun.plan
    assert begun.plan.code is not None
    assert begun.plan.data is None
    assert [arm.id for arm in begun.comparison.arms] == ["ms=1", "ms=2", "ms=3", "ms=1:again"]
    assert json.loads((begun.directory / "environment.json").read_text())["fingerprint"] == "f"
    assert begun.trials == ()


def test_a_run_goes_on_with_its_own_plan_and_trials(start: Any, build: Any) -> None:
    first = start(command="xttsbench run mine.yaml")
    trial = build.arm_trial("ms=1")
    journal.append(first.directory, trial)
    again = start(resume=True, command="xttsbench run mine.yaml --resume", budget_s=600.0)
    assert again.plan == first.plan.model_copy(update={"budget_s": 600.0}) == read_plan(first.directory)
    assert list(again.trials) == [trial]
    assert again.began < first.began + 60  # what the trial took is behind it
    with again.session(None) as session:
        assert session.spent_s >= trial.duration_s


def test_going_on_where_nothing_is_yet_begins(start: Any) -> None:
    assert start(resume=True).plan.kind == "run"


def test_going_on_after_a_kill_before_the_plan_was_written_begins(start: Any) -> None:
    first = start()
    (first.directory / "plan.json").rename(first.directory / f"{DRAFT_PREFIX}1-abc")
    assert start(resume=True).plan.kind == "run"
    assert sorted(path.name for path in first.directory.iterdir()) == ["environment.json", "plan.json"]


def test_going_on_in_a_directory_of_something_else_is_refused(start: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        start(resume=True)
    assert (tmp_path / "out" / "thesis.tex").exists()


def test_without_resume_a_run_s_directory_is_refused(start: Any) -> None:
    start()
    with pytest.raises(UsageError, match="already"):
        start()


def test_resume_needs_the_run_s_name(start: Any) -> None:
    with pytest.raises(UsageError, match="--out"):
        start(resume=True, out=None)


@pytest.mark.parametrize(
    ("text", "fields", "said"),
    [
        (TEXT.replace("[1, 2, 3]", "[1, 2, 4]"), {}, r"the scenario has changed \(arms\)"),
        (TEXT + "steps: 9\n", {}, r"the scenario has changed \(steps\)"),
        (TEXT, {"seed": 5}, "the seed was 0 and is 5"),
        (TEXT, {"accelerators": ("emulated:5",)}, r"the scenario has changed \(accelerators\)"),
        (TEXT, {"settings": {"x": 1}}, r"the scenario has changed \(arms\)"),
        (TEXT, {"kind": "sweep"}, "another command"),
    ],
)
def test_another_question_does_not_go_on(start: Any, text: str, fields: dict[str, Any], said: str) -> None:
    before = start()
    plan = (before.directory / "plan.json").read_bytes()
    with pytest.raises(UsageError, match=said):
        start(text, resume=True, **fields)
    assert (before.directory / "plan.json").read_bytes() == plan


def test_other_code_does_not_go_on(start: Any, tmp_path: Path) -> None:
    start()
    (tmp_path / "data.py").write_text("def make(): return 1\n")
    with pytest.raises(UsageError, match="the target's code has changed"):
        start(resume=True)


def test_other_data_do_not_go_on(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    monkeypatch.setattr(module, "data_identity", lambda _: "other")
    with pytest.raises(UsageError, match="the data set has changed"):
        start(resume=True)


def test_another_machine_does_not_go_on(start: Any) -> None:
    start()
    start.machine["fingerprint"] = "g"
    with pytest.raises(UsageError, match="the machine or the version of TensorFlow"):
        start(resume=True)


def test_a_sweep_goes_on_with_more_time_and_not_as_another_one(start: Any) -> None:
    procedure = Procedure(blocks=9)
    start(kind="sweep", procedure=procedure)
    again = start(kind="sweep", procedure=procedure, resume=True, budget_s=500.0)
    assert (again.plan.procedure, again.plan.budget_s) == (procedure, 500)
    with pytest.raises(UsageError, match="the scenario's sweep has changed"):
        start(kind="sweep", procedure=procedure.model_copy(update={"blocks": 3}), resume=True)


def test_what_cannot_be_decided_is_refused_before_anything_is_written(start: Any, tmp_path: Path) -> None:
    def refuse(scenario: Any, comparison: Any) -> None:
        raise UsageError(f"{scenario.name}: {len(comparison.arms)} arms")

    with pytest.raises(UsageError, match=r"mine: \d arms"):
        start(kind="sweep", check=refuse)
    assert not (tmp_path / "out").exists()


def test_arguments_of_the_bundled_workload_are_checked_before_anything_is_made(start: Any, tmp_path: Path) -> None:
    text = "name: mine\nworkload: xtts\ngrid: {prefetsch: [1, 2]}\n"
    with pytest.raises(InvalidInputError, match="did you mean 'prefetch'"):
        start(text)
    assert not (tmp_path / "out").exists()
