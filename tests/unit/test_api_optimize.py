"""The door ``xttsbench.optimize``: what is searched for where, and what comes back."""

from __future__ import annotations

import inspect
import types
from pathlib import Path

import pytest

import xttsbench
from xttsbench import api as optimizing
from xttsbench.errors import InvalidInputError, TargetError, XttsbenchError
from xttsbench.records.fix import Optimized
from xttsbench.workflows.runs import Outcome
from xttsbench.workflows.saved import report_of, write_plan

PLAN = Optimized(
    run="gone",
    target="data.py:make",
    kwargs={"batch": 8},
    fixes=("prefetch",),
    identity=None,
    speedup=None,
    equivalent=True,
    data="the same",
    proven=True,
)


def make() -> object:
    return None


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch):
    """Modules with TensorFlow replaced by ones that note what they were asked; nothing imports TensorFlow."""
    asked: dict[str, list[object]] = {"load_here": [], "apply_plan": []}

    def load_here(target, name, kwargs):
        asked["load_here"].append((target, kwargs))
        return types.SimpleNamespace(dataset="the dataset")

    def apply_plan(dataset, plan, *, before=None):
        asked["apply_plan"].append((dataset, plan, before))
        return f"{dataset} with {', '.join(plan.fixes)}"

    modules = {
        "worker.trial": types.SimpleNamespace(load_here=load_here),
        "fixes.graph.saved_plan": types.SimpleNamespace(apply_plan=apply_plan),
    }
    monkeypatch.setattr(optimizing, "_with_tensorflow", modules.__getitem__)
    return asked


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch):
    """``search(exit_code, optimized)``: the search in fresh processes ends so; returns the requests that it gets."""
    asked = []

    def ends(exit_code: int, optimized: Optimized | None, message: str | None = None):
        from xttsbench.workflows import diagnose as workflow

        def run(request):
            asked.append(request)
            report = report_of(PLAN, "data.py:make").model_copy(update={"optimized": optimized})
            return Outcome(report=report, directory=Path("the run"), exit_code=exit_code, message=message)

        monkeypatch.setattr(workflow, "optimize", run)
        return asked

    return ends


@pytest.mark.parametrize("code", [0, 3])
def test_what_fresh_processes_accepted_is_applied_to_the_target_here(worker, search, code: int, tmp_path: Path) -> None:
    asked = search(code, PLAN)
    dataset, report = xttsbench.optimize(
        "data.py:make",
        kwargs={"batch": 8},
        accelerator="emulated:5",
        steps=9,
        budget_s=7.0,
        out=str(tmp_path),
    )
    assert dataset == "the dataset with prefetch"
    assert report.optimized == PLAN
    (request,) = asked
    assert (request.target, request.kwargs, request.accelerator) == ("data.py:make", {"batch": 8}, "emulated:5")
    assert (request.steps, request.budget_s, request.out) == (9, 7.0, tmp_path)
    assert request.command == "xttsbench.optimize('data.py:make')"
    assert worker["load_here"] == [("data.py:make", {"batch": 8})]


def test_a_function_is_searched_for_by_its_name_and_called_here(worker, search) -> None:
    asked = search(0, None)
    dataset, _ = xttsbench.optimize(make)
    assert asked[0].target == f"{__file__}:make"
    assert worker["load_here"] == [(make, {})]
    assert (dataset, worker["apply_plan"]) == ("the dataset", [])


@pytest.mark.parametrize(("code", "message"), [(4, "Nothing was measured."), (5, "bad"), (130, None)])
def test_anything_else_raises_its_sentence(worker, search, code: int, message: str | None) -> None:
    search(code, None, message)
    with pytest.raises(XttsbenchError, match=message or "code 130"):
        xttsbench.optimize("data.py:make")
    assert worker["load_here"] == []


def test_a_saved_plan_is_applied_without_a_search(worker, tmp_path: Path) -> None:
    path = write_plan(tmp_path, PLAN)
    for given in (str(path), path, tmp_path, PLAN):
        dataset, report = xttsbench.optimize("data.py:make", plan=given)
        assert dataset == "the dataset with prefetch"
        assert (report.kind, report.optimized) == ("optimize", PLAN)
    assert worker["load_here"] == [("data.py:make", {"batch": 8})] * 4


def test_arguments_given_beside_a_plan_take_the_place_of_its_own(worker) -> None:
    xttsbench.optimize("data.py:make", plan=PLAN, kwargs={"batch": 4})
    assert worker["load_here"] == [("data.py:make", {"batch": 4})]


def test_the_report_of_the_run_comes_back_and_its_ops_say_what_differs(worker, tmp_path: Path) -> None:
    path = write_plan(tmp_path, PLAN)
    report = report_of(PLAN, "data.py:make").model_copy(update={"pipeline": {"cpus": 3}})
    (tmp_path / "report.json").write_text(report.model_dump_json())
    assert xttsbench.optimize("data.py:make", plan=path)[1] == report
    (_, _, before) = worker["apply_plan"][0]
    assert before.cpus == 3


def test_a_plan_that_is_not_there_is_refused_before_the_target_is_loaded(worker, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        xttsbench.optimize("data.py:make", plan=tmp_path / "optimized.yaml")
    assert worker["load_here"] == []


def test_what_is_there_already_takes_no_arguments() -> None:
    with pytest.raises(TargetError, match=r"takes no arguments; received \['n'\]"):
        xttsbench.optimize([1], kwargs={"n": 2})


def test_the_door_has_the_promised_arguments() -> None:
    promised = ["target", "plan", "kwargs", "accelerator", "steps", "budget_s", "out"]
    assert list(inspect.signature(xttsbench.optimize).parameters) == promised
