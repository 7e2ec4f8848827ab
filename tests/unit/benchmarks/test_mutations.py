"""Faults for the tests to notice: what counts as noticed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.by_file import load

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def mutations() -> ModuleType:
    return load(ROOT / "benchmarks" / "mutations.py", "mutations")


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


def test_a_test_that_fails_without_the_fault_too_notices_nothing(mutations: ModuleType, project: Path) -> None:
    tests = project / "tests" / "unit" / "test_sums.py"
    tests.write_text("import xttsbench.sums\n\n\ndef test_broken():\n    assert False\n")
    (fault, *_) = mutations.faults("xttsbench/sums.py", (project / "xttsbench" / "sums.py").read_text())
    assert mutations.tried(project, fault, 30.0)["outcome"] == "the test fails anyway"
