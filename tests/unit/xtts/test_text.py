"""Text to ids."""

from __future__ import annotations

import pytest

from xttsbench.xtts.synthesis import PHONES
from xttsbench.xtts.text import SYMBOLS, VOCABULARY, encode


def test_case_and_white_space_are_folded_and_unknown_characters_dropped() -> None:
    assert encode("  Ab\t\n c§ ").tolist() == [1, 2, 27, 3]


def test_ids_are_in_the_vocabulary_and_none_is_padding() -> None:
    assert sorted(encode(SYMBOLS)) == list(range(1, VOCABULARY))


def test_synthetic_speech_can_be_written() -> None:
    assert set(PHONES) <= set(SYMBOLS)


def test_nothing_known_is_refused() -> None:
    with pytest.raises(ValueError, match="no character of '漢'"):
        encode("漢")
