from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.reporting.words import plain, plain_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07name", "name"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("a\r\nb\tc", "a b c"),
        ("a\x00\x07\x7fb", "ab"),
        ("a\u202eb\u2066c", "abc"),
        ("caf\udce9", "caf\N{REPLACEMENT CHARACTER}"),
        ("größe=µ 中", "größe=µ 中"),
    ],
)
def test_what_moves_the_cursor_goes_and_what_can_be_read_stays(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(st.characters(codec=None)))
def test_plain_text_is_one_line_that_encodes_and_holds_no_control_character(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert plain(shown) == shown


def test_lines_keep_their_indentation() -> None:
    assert plain_lines("\nfirst:\n\tx = 1\x1b[0m  \r\n    y\n") == ("first:", "    x = 1", "    y")
