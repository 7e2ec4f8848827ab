"""The corpus of scripts: each of its versions is Python, and differs from the script where it says so."""

from __future__ import annotations

import pytest
import script_cases


def test_there_are_twelve_and_more_with_and_without_fit():
    names = [case.name for case in script_cases.CASES]
    assert len(set(names)) == len(names) >= 12
    fits = sum(".fit(" in case.version({}) for case in script_cases.CASES)
    assert 4 <= fits <= len(names) - 4


@pytest.mark.parametrize("case", script_cases.CASES, ids=lambda case: case.name)
def test_its_versions_are_python_and_not_the_original(case):
    for edits in (case.tuned, case.autotune):
        text = case.version(edits)
        compile(text, case.name, "exec", dont_inherit=True)
        assert text != case.version({}) or not edits
    with pytest.raises(ValueError, match="0 times"):
        case.version({"no such text": ""})
