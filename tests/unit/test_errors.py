from __future__ import annotations

import inspect
import re

import pytest

from xttsbench import errors

CLASSES = {
    name: value for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)
}


def test_all_is_complete_and_sorted() -> None:
    assert list(errors.__all__) == [*sorted(CLASSES), "first_line"]


def test_the_tree_in_the_docstring_is_that_of_the_classes() -> None:
    drawn: dict[str, tuple[str | None, int]] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([ |`-]*)([A-Z]\w+Error)\s+(?:exit code )?(\d+),", line)
        if not found:
            continue
        depth = len(found[1])
        path = [above for above in path if above[0] < depth]
        drawn[found[2]] = (path[-1][1] if path else None, int(found[3]))
        path.append((depth, found[2]))
    real = {
        name: (value.__base__.__name__ if value.__base__ is not Exception else None, value.exit_code)
        for name, value in CLASSES.items()
    }
    assert drawn == real


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("XttsbenchError", 1),
        ("UsageError", 2),
        ("NothingMeasuredError", 4),
        ("InvalidInputError", 5),
        ("TargetError", 5),
        ("JournalError", 5),
        ("HelperError", 1),
    ],
)
def test_exit_codes_are_those_of_the_contract(name: str, code: int) -> None:
    assert CLASSES[name].exit_code == code
    assert CLASSES[name].__doc__


def test_every_error_is_caught_by_the_base() -> None:
    assert all(issubclass(value, errors.XttsbenchError) for value in CLASSES.values())
    assert str(errors.TargetError("one sentence")) == "one sentence"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("what is wrong\n\twhere in C++"), "what is wrong"),
        (ValueError("\n  indented\nmore"), "indented"),
        (KeyError(), "KeyError"),
        (ValueError(" \n "), "ValueError"),
        ("said by a library\nin two lines", "said by a library"),
        (ValueError("x" * 400), "x" * 300),
    ],
)
def test_of_an_error_the_first_line_is_told_or_its_type(error, line) -> None:
    assert errors.first_line(error) == line
