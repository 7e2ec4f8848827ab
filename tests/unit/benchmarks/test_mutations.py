"""Faults for the tests to notice: which there are, whose tests run, and what counts as noticed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType

import pytest

from tests.by_file import load

ROOT = Path(__file__).parents[3]
SOURCE = '''\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT: int = 5
NAMES = {"a": 1}
def clipped(value: "int | 3", top=True) -> int:
    """At most 9."""
    if value > 2 and not top:
        return value - 1
    return f"{value + 1}" + "x"
'''


@pytest.fixture(scope="module")
def mutations() -> ModuleType:
    return load(ROOT / "benchmarks" / "mutations.py", "mutations")


def test_faults_are_of_what_runs(mutations: ModuleType) -> None:
    assert {(fault.line, fault.kind, fault.after.strip()) for fault in mutations.faults("m.py", SOURCE)} == {
        (4, "number changed", 'NAMES = {"a": (2)}'),
        (5, "truth value flipped", 'def clipped(value: "int | 3", top=(False)) -> int:'),
        (7, "comparison negated", "if (value <= 2) and not top:"),
        (7, "number changed", "if value > (3) and not top:"),
        (7, "not dropped", "if value > 2 and (top):"),
        (8, "None returned", "return None"),
        (8, "operator swapped", "return (value + 1)"),
        (8, "number changed", "return value - (2)"),
        (9, "None returned", "return None"),
    }


def test_every_fault_of_the_package_that_is_chosen_is_python(mutations: ModuleType) -> None:
    found = mutations.chosen(ROOT, 0, 5)
    assert found == mutations.chosen(ROOT, 0, 5)
    assert len({fault.module for fault in found}) == 5
    for fault in found:
        lines = (ROOT / fault.module).read_text(encoding="utf-8").splitlines()
        assert lines[fault.line - 1] == fault.before != fault.after
        lines[fault.line - 1] = fault.after
        compile("\n".join(lines), fault.module, "exec")


def test_the_mirrored_file_comes_first_and_then_the_folder(mutations: ModuleType) -> None:
    tests = mutations.tests_of(ROOT, "xttsbench/analysis/pooling.py")
    assert tests[0] == "tests/unit/analysis/test_pooling.py"
    assert set(tests[1:3]) < {str(path.relative_to(ROOT)) for path in (ROOT / "tests/unit/analysis").glob("test_*.py")}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a test; pytest starts without plug-ins there, in a third of the time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in {
        "xttsbench/__init__.py": "",
        "xttsbench/sums.py": "def twice(x):\n    return x + x\n\n\ndef half(x):\n    return x / 2\n",
        "tests/unit/test_sums.py": (
            "from xttsbench.sums import twice\n\n\ndef test_twice():\n    assert twice(3) == 6\n\n\n"
            "def test_wrong():\n    assert twice(3) != 0\n"
        ),
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow: ", "alone: "]\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_fault_is_noticed_or_survives_and_is_mended(mutations: ModuleType, project: Path) -> None:
    sound = (project / "xttsbench" / "sums.py").read_text(encoding="utf-8")
    swapped = {fault.line: fault for fault in mutations.faults("xttsbench/sums.py", sound) if "swapped" in fault.kind}
    noticed, survived = (mutations.tried(project, swapped[line], 30.0) for line in (2, 6))
    assert (noticed["outcome"], noticed["test"]) == ("noticed", "tests/unit/test_sums.py::test_twice")
    assert survived["outcome"] == "survived"
    assert (project / "xttsbench" / "sums.py").read_text(encoding="utf-8") == sound


COVERED = """\
LIMIT = 3
def clipped(
    value=2,
):
    if value > LIMIT and (
        value
    ):
        return LIMIT
    return value
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (1, ["tests/unit/test_b.py::test_b", "tests/tf/test_a.py::test_a"]),  # while it is imported: of the module
        (3, ["tests/unit/test_b.py::test_b", "tests/tf/test_a.py::test_a"]),
        (6, ["tests/unit/test_b.py::test_b", "tests/tf/test_a.py::test_a"]),  # of the condition, wherever it goes on
        (8, ["tests/tf/test_a.py::test_a"]),
        (9, ["tests/unit/test_b.py::test_b"]),
        (10, []),
    ],
)
def test_the_tests_that_run_a_line_are_chosen(
    mutations: ModuleType, tmp_path: Path, line: int, expected: list[str]
) -> None:
    (tmp_path / "m.py").write_text(COVERED + "def other(): return\\\n    1\n", encoding="utf-8")
    a, b = "tests/tf/test_a.py::test_a", "tests/unit/test_b.py::test_b"
    lines = {1: {""}, 2: {""}, 5: {a, b}, 8: {a}, 9: {b}}
    assert mutations.Covered(tmp_path, {"m.py": lines}).tests_of("m.py", line) == expected


def test_the_test_that_runs_least_besides_comes_first(mutations: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(COVERED, encoding="utf-8")
    a, b = "tests/unit/test_a.py::test_a", "tests/unit/test_b.py::test_b"
    covered = mutations.Covered(tmp_path, {"m.py": {8: {a, b}}, "n.py": {1: {a}, 2: {a}}})
    assert covered.tests_of("m.py", 8) == [b, a]


def test_only_the_tests_that_run_the_line_are_tried(mutations: ModuleType, project: Path) -> None:
    (fault,) = [
        fault
        for fault in mutations.faults("xttsbench/sums.py", (project / "xttsbench" / "sums.py").read_text())
        if (fault.line, fault.kind) == (2, "None returned")
    ]
    wrong, right = (f"tests/unit/test_sums.py::test_{name}" for name in ("wrong", "twice"))
    assert mutations.tried(project, fault, 30.0, [wrong])["outcome"] == "survived"
    found = mutations.tried(project, fault, 30.0, [wrong, right])
    assert (found["outcome"], found["test"], found["chosen"]) == ("noticed", right, "by coverage")


def test_a_fault_without_which_the_tests_end_is_noticed(mutations: ModuleType, project: Path) -> None:
    module = project / "xttsbench" / "sums.py"
    module.write_text("def half(x):\n    while x > 1:\n        x -= 1\n    return x\n", encoding="utf-8")
    (project / "tests" / "unit" / "test_sums.py").write_text(
        "from xttsbench.sums import half\n\n\ndef test_half():\n    assert half(3) == 1\n", encoding="utf-8"
    )
    endless = next(f for f in mutations.faults("xttsbench/sums.py", module.read_text()) if "(x <= 1)" in f.after)
    endless = dataclasses.replace(endless, after="    while __import__('time').sleep(99) is None:")
    found = mutations.tried(project, endless, 5.0)
    assert (found["outcome"], found["test"]) == ("noticed", "no end")


def test_a_test_that_fails_without_the_fault_too_notices_nothing(mutations: ModuleType, project: Path) -> None:
    tests = project / "tests" / "unit" / "test_sums.py"
    tests.write_text("import xttsbench.sums\n\n\ndef test_broken():\n    assert False\n")
    (fault, *_) = mutations.faults("xttsbench/sums.py", (project / "xttsbench" / "sums.py").read_text())
    assert mutations.tried(project, fault, 30.0)["outcome"] == "the test fails anyway"
