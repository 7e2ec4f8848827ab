"""Edit distances and the rate of errors, against counts by hand."""

from __future__ import annotations

import pytest

from xttsbench.xtts.evaluation.error_rate import edit_distance, phone_error_rate


@pytest.mark.parametrize(
    ("said", "heard", "edits"),
    [
        ("", "", 0),
        ("sol", "sol", 0),
        ("sol", "", 3),
        ("", "sol", 3),
        ("sol", "sul", 1),
        ("sol", "sl", 1),
        ("sol", "sool", 1),
        ("kitten", "sitting", 3),
        ("abcdef", "fabcde", 2),
    ],
)
def test_edit_distance_is_the_fewest_edits(said: str, heard: str, edits: int) -> None:
    assert edit_distance(said, heard) == edits
    assert edit_distance(heard, said) == edits


def test_errors_are_counted_over_all_letters_and_blanks_are_none() -> None:
    assert phone_error_rate([("so li", "soli"), ("fu", "fa")]) == pytest.approx(1 / 6)
    assert phone_error_rate([("fu", "fumumu")]) == pytest.approx(2)


@pytest.mark.parametrize("pairs", [[], [(" ", "s")]])
def test_a_rate_of_nothing_is_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="none"):
        phone_error_rate(pairs)
