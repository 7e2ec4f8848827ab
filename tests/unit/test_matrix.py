"""What is claimed of versions is what ``make matrix`` tried; and how its table is made."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.by_file import load
from xttsbench.records.machine import TENSORFLOW

ROOT = Path(__file__).parents[2]
RESULTS: dict[str, Any] = json.loads((ROOT / "reports" / "reference" / "matrix.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    return load(ROOT / "tests" / "matrix.py", "matrix")


def whole(matrix: ModuleType, parts: dict[str, Any]) -> bool:
    """Whether a cell has something in each column."""
    return {*matrix.columns_of(parts)} == {*matrix.columns_of(matrix.parts())}


def test_what_is_claimed_passed(matrix: ModuleType) -> None:
    failed = {name: [part["failed"] for part in cell["parts"].values()] for name, cell in RESULTS["cells"].items()}
    assert not [name for name, parts in failed.items() if any(parts)]
    assert {name.partition("-")[0] for name in failed} == {*TENSORFLOW}
    pinned = re.search(r"^tensorflow==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    for version in {*TENSORFLOW} - {pinned[1]}:  # on which `make test` runs all of it
        tried = [cell["parts"] for name, cell in RESULTS["cells"].items() if name.startswith(f"{version}-")]
        assert any(whole(matrix, parts) for parts in tried), f"no Python had all parts with {version}"


def test_the_project_names_the_same_versions(matrix: ModuleType) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    last = int(TENSORFLOW[-1].split(".")[1])
    assert f"tensorflow>={TENSORFLOW[0]},<2.{last + 1}" in project["dependencies"]
    pythons = {name.partition("-")[2] for name, cell in RESULTS["cells"].items() if whole(matrix, cell["parts"])}
    listed = {line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r"Python :: 3\.\d+$", line)}
    assert listed == pythons
    first, *_, last = sorted(pythons)
    said = f"Python {first} to {last}, TensorFlow {TENSORFLOW[0]} to {TENSORFLOW[-1]}"
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")
    assert matrix.claimed() == TENSORFLOW


def test_the_stored_table_is_of_the_stored_results_and_names_no_place(matrix: ModuleType) -> None:
    stored = (ROOT / "reports" / "reference" / "matrix.md").read_text(encoding="utf-8")
    assert stored == matrix.table(RESULTS)
    assert not re.search(r"(?<![\w.*`/-])/(?:home|root|tmp|work|usr)\b", stored + json.dumps(RESULTS))


def test_its_parts_hold_every_test_with_tensorflow(matrix: ModuleType) -> None:
    given = [ROOT / path.partition("::")[0] for paths in matrix.parts().values() for path in paths]
    assert all(path.exists() for path in given)
    files = (ROOT / "tests" / "tf").rglob("test_*.py")
    assert [path for path in files if not any(path.is_relative_to(one) for one in given)] == []
    for name in matrix.FIVE.values():
        file, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (ROOT / "tests" / "e2e" / file).read_text(encoding="utf-8")


def test_a_failure_and_what_was_not_tried_are_in_the_table(matrix: ModuleType) -> None:
    found = {"passed": 3, "skipped": 1, "failed": ["tests/a.py::b"], "passed_when_run_again": ["tests/a.py::c"]}
    versions = {"tensorflow": "2.20.0", "python": "3.12.1", "keras": "3.1", "numpy": "2.1"}
    page = matrix.table(
        {
            "cells": {"2.20-3.12": {"versions": versions, "parts": {"unit": found}}},
            "not_tried": {"2.19-3.13": "no wheels"},
        }
    )
    assert "| 2.20.0 | 3.12.1 | 3.1 | 2.1 | 3 passed, **1 failed**, 1 skipped | not run |" in page
    assert "- 2.20-3.12, unit: failed: `tests/a.py::b`" in page
    assert "- 2.20-3.12, unit: passed when run again: `tests/a.py::c`" in page
    assert "- TensorFlow and Python 2.19-3.13: no wheels" in page


def test_a_failed_test_is_run_once_more_by_itself(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def pytest_(_python: Path, arguments: list[str]) -> dict[str, str]:
        asked.append(arguments)
        return {"a": "failed", "b": "failed", "c": "passed", "d": "skipped"} if len(asked) == 1 else {"a": "passed"}

    monkeypatch.setattr(matrix, "pytest", pytest_)
    found = matrix.run(Path("python"), ["tests/unit"], 3)
    assert asked[1] == ["a", "b"]
    assert (found["passed"], found["skipped"], found["failed"], found["passed_when_run_again"]) == (2, 1, ["b"], ["a"])


def test_those_that_failed_can_be_run_alone_later(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "pytest", lambda _python, names: {name: "passed" for name in names if name != "b"})
    before = {"passed": 7, "skipped": 0, "failed": ["a", "b"], "passed_when_run_again": ["c"], "seconds": 1}
    after = {"passed": 8, "skipped": 0, "failed": ["b"], "passed_when_run_again": ["a", "c"], "seconds": 1}
    assert matrix.again(Path("python"), before) == after


def test_how_each_test_ended_comes_from_pytest_itself(matrix: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n\n\ndef test_good():\n    pass\n\n\ndef test_bad():\n    assert False\n\n\n"
        "@pytest.mark.skip(reason='no')\ndef test_left_out():\n    pass\n\n\n"
        "@pytest.fixture\ndef falls():\n    yield\n    raise ValueError\n\n\n"
        "def test_falls_afterwards(falls):\n    pass\n"
    )
    found = matrix.pytest(Path(sys.executable), [str(tmp_path / "test_mine.py")])
    assert {name.rpartition("::")[2]: how for name, how in found.items()} == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_left_out": "skipped",
        "test_falls_afterwards": "failed",
    }
