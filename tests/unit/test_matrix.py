"""What is claimed of versions is what ``make matrix`` tried."""

from __future__ import annotations

import json
import re
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
