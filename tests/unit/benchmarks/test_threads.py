"""The benchmark of public threads: what is named and cured is told from what is not, and from what is wrong."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

_FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "threads"


def _module(name: str, folder: str = "threads") -> ModuleType:
    """A module of the benchmark; ``diagnosis`` has some of the same names."""
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", _FOLDER.parent / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_JUDGING = _module("judging")
with mock.patch.dict(sys.modules, judging=_JUDGING):
    _CASES, _LOOPS = _module("cases"), _module("cases", "loops")
_SOURCE = "import numpy\n\ndef slow(x):\n    return x\n"


def _case(cause: tuple[str, ...], cured: tuple[str, ...] | None = ("native",), sentence: str = "") -> Any:
    return _CASES.Case(1, "a/b#1", "slow", "t.py", ("optimize", "t.py:make"), cause, cured, sentence)


def _report(
    bottleneck: str = "input", confidence: float = 0.99, rule: str = "python-function", **optimized: Any
) -> Any:
    return {
        "verdict": {"bottleneck": bottleneck, "confidence": confidence, "summary": "it waits for slow() (t.py:3)"},
        "findings": [{"rule": rule, "limiting": True, "title": "t", "remedy": "r", "location": {}}],
        "optimized": optimized or None,
    }


@pytest.mark.parametrize(
    ("cause", "report", "named"),
    [
        (("verdict input", "limiting python-function|x", "line def slow", "says Two words"), _report(), "yes"),
        (("verdict host|input", "rule python-function"), _report(), "yes"),
        (("verdict host",), _report(), "WRONG"),
        (("verdict host",), _report(confidence=0.8), "no"),
        (("verdict host",), _report("inconclusive"), "no"),
        (("verdict input", "limiting python-function"), _report(rule="shuffle-fill"), "WRONG"),
        (("verdict input", "limiting python-function"), _report(rule="input-bound"), "no"),
        (("verdict input", "says four words"), _report(), "no"),
        (("verdict input", "line def fast"), _report(), "no"),
    ],
)
def test_what_is_named(cause: tuple[str, ...], report: Any, named: str) -> None:
    assert _JUDGING.judged(_case(cause), report, "two\n   words", _SOURCE)["named"] == named


@pytest.mark.parametrize(
    ("cured", "optimized", "said"),
    [
        (("native",), {"fixes": ["native", "prefetch:2"], "equivalent": True}, "yes"),
        (("cache",), {"fixes": ["cache@Map/_1"], "equivalent": True}, "yes"),
        (("native",), {"fixes": ["prefetch:2"], "equivalent": True}, "no"),
        (("native",), {"fixes": ["native"], "equivalent": False}, "WRONG"),
        (("says two words",), {}, "yes"),
        (("says three words",), {}, "no"),
    ],
)
def test_what_is_cured(cured: tuple[str, ...], optimized: Any, said: str) -> None:
    assert _JUDGING.judged(_case((), cured), _report(**optimized), "two words", _SOURCE)["cured"] == said


def test_a_row_has_the_finding_beside_the_verdict_and_the_code_of_a_remedy() -> None:
    row = _JUDGING.judged(
        _case(("rule python-function",), ("native", "says two words")), _report(), "two words", _SOURCE
    )
    assert (row["said"], row["code"]) == ("it waits for slow() (t.py:3) t", ["two words"])


def test_not_ours_is_said_to_be() -> None:
    assert _JUDGING.judged(_case((), None, "two words"), _report(), "Two words.", _SOURCE)["cured"] == "not ours"
    assert _JUDGING.judged(_case((), None, "no words"), _report(), "Two words.", _SOURCE)["cured"] == "no"


def test_every_case_has_its_file_and_reference() -> None:
    numbers = [case.number for case in _CASES.CASES]
    assert sorted(set(numbers)) == sorted(numbers)
    for case in _CASES.CASES:
        text = (_CASES.TARGETS / case.file).read_text(encoding="utf-8")
        assert case.file.startswith(f"t{case.number:02d}_")
        assert all(one in text for one in re.split(r",\s*", case.reference))
        assert (case.cured is None) == bool(case.sentence)


def test_every_loop_without_a_dataset_has_its_target_or_says_where_it_was_published() -> None:
    targets = _FOLDER.parent / "loops" / "targets"
    assert [case.number for case in _LOOPS.CASES] == list(range(1, 9))
    for case in _LOOPS.CASES:
        own = case.reference == "planted"
        file = targets / case.file
        assert file.exists() == own
        assert own or f"@take {case.reference.split('/')[1].split()[0]}/" in file.with_suffix(".txt").read_text()
