"""How many letters of what was to be said were not heard."""

from __future__ import annotations

from collections.abc import Iterable

from xttsbench.xtts.evaluation.templates import BLANK


def edit_distance(said: str, heard: str) -> int:
    """Return the fewest letters to insert, delete or replace that make one of the other (Levenshtein, 1966)."""
    row = list(range(len(heard) + 1))
    for number, letter in enumerate(said, start=1):
        above, row[0] = row[0], number
        for place, other in enumerate(heard, start=1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (letter != other))
    return row[-1]


def phone_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Return the edit distances of (text, what was heard) over the letters of all texts, blanks left out.

    0 is every letter in its place; above 1 more was heard than was to be said.

    Raises:
        ValueError: the texts hold no letter.
    """
    errors = letters = 0
    for text, heard in pairs:
        said = text.replace(BLANK, "")
        errors += edit_distance(said, heard)
        letters += len(said)
    if not letters:
        raise ValueError("a rate of errors needs a letter to be said, and the texts hold none")
    return errors / letters
