from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import pytest

import xttsbench
from tests.unit.reporting.conftest import starving_run
from xttsbench import api
from xttsbench.errors import JournalError, TargetError, XttsbenchError
from xttsbench.workflows.runs import Outcome

_DECORATOR = """
import functools

def traced(function):
    @functools.wraps(function)
    def wrapper():
        return function()
    return wrapper
"""
_TARGET = """
from {decorators} import traced

def make():
    return 1

@traced
def wrapped():
    return 2

class Factory:
    @staticmethod
    def build():
        return 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "decorators_of_api_test.py").write_text(_DECORATOR)
    path = tmp_path / "target_of_api_test.py"
    path.write_text(_TARGET.format(decorators="decorators_of_api_test"))
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("target_of_api_test", path)
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "target_of_api_test", loaded)
    spec.loader.exec_module(loaded)
    yield loaded
    sys.modules.pop("decorators_of_api_test", None)


def test_a_function_or_class_is_named_by_its_file(module) -> None:
    assert api.importable_name(module.make) == f"{module.__file__}:make"
    assert api.importable_name(module.Factory) == f"{module.__file__}:Factory"
    assert api.importable_name(module.Factory.build) == f"{module.__file__}:Factory.build"


def test_a_decorated_function_is_in_its_own_file_and_not_in_the_decorator_s(module) -> None:
    assert api.importable_name(module.wrapped) == f"{module.__file__}:wrapped"


def _local():
    def inner() -> None: ...

    return inner


def _without_a_file():
    exec(compile("def f(): pass", "<string>", "exec"), scope := {})
    return scope["f"]


@pytest.mark.parametrize(
    "target",
    [
        lambda: None,
        _local(),
        functools.partial(print),
        len,
        int,
        type("Made", (), {}),
        object(),
        _without_a_file(),
        types.SimpleNamespace(__qualname__="x"),
    ],
)
def test_what_a_fresh_process_cannot_find_is_refused(target: object) -> None:
    with pytest.raises(TargetError, match=r"cannot be imported by a fresh process; pass .* 'module:name'"):
        api.importable_name(target)  # type: ignore[arg-type]


def _diagnosed(monkeypatch: pytest.MonkeyPatch, exit_code: int, message: str | None = None):
    """``api.diagnose`` beside a workflow that only notes what it was asked."""
    from xttsbench.workflows import diagnose as workflow

    asked = []

    def run(request):
        asked.append(request)
        report = starving_run().report
        return Outcome(report=report, directory=Path("the run"), exit_code=exit_code, message=message)

    monkeypatch.setattr(workflow, "diagnose", run)
    return asked


@pytest.mark.parametrize("code", [0, 3])
def test_a_finished_diagnosis_gives_its_report_even_if_inconclusive(monkeypatch, code, module, tmp_path) -> None:
    asked = _diagnosed(monkeypatch, code)
    found = api.diagnose(
        module.make, kwargs={"n": 1}, accelerator="emulated:5", steps=9, budget_s=7.0, out=str(tmp_path)
    )
    assert found.command == starving_run().report.command
    with pytest.raises(JournalError, match=r"the run/trials\.jsonl"):  # where the frames look for its steps
        found.frames.steps()
    (request,) = asked
    assert request.target == f"{module.__file__}:make"
    assert (request.kwargs, request.accelerator, request.steps, request.budget_s) == ({"n": 1}, "emulated:5", 9, 7.0)
    assert request.out == tmp_path


@pytest.mark.parametrize(("code", "message"), [(4, "Nothing was measured: no step."), (5, "bad"), (130, None)])
def test_anything_else_raises_its_sentence(monkeypatch: pytest.MonkeyPatch, code: int, message: str | None) -> None:
    _diagnosed(monkeypatch, code, message)
    with pytest.raises(XttsbenchError, match=message or "code 130"):
        api.diagnose("module:name")


def test_a_name_is_passed_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _diagnosed(monkeypatch, 0)
    api.diagnose("module:name")
    assert asked[0].target == "module:name"
    assert asked[0].out is None
    assert asked[0].command == "xttsbench.diagnose('module:name')"


def test_the_package_offers_what_it_says_without_importing_tensorflow() -> None:
    code = (
        "import sys, xttsbench\n"
        "assert set(xttsbench.__all__) <= set(dir(xttsbench))\n"
        "assert not {'tensorflow', 'numpy', 'pydantic'} & set(sys.modules), 'import xttsbench is slow'\n"
        "assert all(getattr(xttsbench, name) is not None for name in xttsbench.__all__)\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match="module 'xttsbench' has no attribute 'diagnos'"):
        _ = xttsbench.diagnos
