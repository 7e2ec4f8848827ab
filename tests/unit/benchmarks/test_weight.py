"""Lines of code, as the weight of the project counts them."""

from __future__ import annotations

from pathlib import Path

from tests import by_file

weight = by_file.load(Path(__file__).parents[3] / "benchmarks" / "weight.py", "weight")


def test_docstrings_comments_and_blank_lines_weigh_nothing() -> None:
    text = '"""A module\n\nof three lines."""\n\n# why\n\nLIMIT = (  # of all\n    3\n)\n"""An attribute."""\n'
    assert weight.code_lines(text) == 3


def test_a_string_that_is_a_value_is_code() -> None:
    assert weight.code_lines('TEXT = """one\n\nthree"""\nprint(TEXT)\n') == 4


def test_a_function_is_counted_without_its_docstring() -> None:
    assert weight.code_lines('def f():\n    """Return one."""\n    return 1  # always\n') == 2
