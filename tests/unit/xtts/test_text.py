"""Text to ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.xtts.data.make import PHONES
from xttsbench.xtts.text import SYMBOLS, VOCABULARY, encode, encoded_length, left_out


def test_case_and_white_space_are_folded_and_unknown_characters_dropped() -> None:
    assert encode("  Ab\t\n c§ ").tolist() == [1, 2, 27, 3]


def test_ids_are_in_the_vocabulary_and_none_is_padding() -> None:
    assert sorted(encode(SYMBOLS)) == list(range(1, VOCABULARY))


def test_synthetic_speech_can_be_written() -> None:
    assert set(PHONES) <= set(SYMBOLS)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Café — déjà", "cafe - deja"),
        ("it’s ‘so’", "it's 'so'"),
        ("room 12 b", "room b"),
        ("a\u00a0b\u2003c\u2028d", "a b c d"),
        ("ＡＢ ﬁ", "ab fi"),
        ("İ", "i"),
    ],
)
def test_typographic_forms_are_plain_ones(text: str, plain: str) -> None:
    np.testing.assert_array_equal(encode(text), encode(plain))
    assert "".join(SYMBOLS[number - 1] for number in encode(text)) == plain


@given(st.text())
def test_ids_are_known_and_the_length_is_theirs(text: str) -> None:
    length = encoded_length(text)
    if not length:
        with pytest.raises(ValueError, match="no character of"):
            encode(text)
        return
    ids = encode(text)
    assert (ids.dtype, ids.shape) == (np.int32, (length,))
    assert ids.min() >= 1
    assert ids.max() < VOCABULARY
    letters = "".join(SYMBOLS[number - 1] for number in ids)
    np.testing.assert_array_equal(encode(letters), ids)


@pytest.mark.parametrize("text", ["漢", "", " ", "12", "\t\n"])
def test_nothing_known_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"no character of {text!r}".replace("\\", "\\\\")):
        encode(text)
    assert encoded_length(text) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Soli, fu!", ""), ("a1b1 2", "12"), ("é e\u0301 ‘so’ – l\n", ""), ("naïve € жук", "€жук"), ("", "")],
)
def test_what_is_left_out_is_named_once(text: str, expected: str) -> None:
    assert left_out(text) == expected
