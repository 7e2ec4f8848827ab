"""Text to ids: characters, after the simplest normalisation."""

from __future__ import annotations

import unicodedata
from typing import Final

import numpy as np
import numpy.typing as npt

SYMBOLS: Final = "abcdefghijklmnopqrstuvwxyz '.,;:?!-"
"""Known characters; the id of the first is 1, for 0 is padding."""

VOCABULARY: Final = len(SYMBOLS) + 1

# Typographic forms of what is known; Unicode's own decomposition leaves these as they are.
_PLAIN: Final = str.maketrans({"‘": "'", "’": "'", "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-"})
_IDS: Final = bytes.maketrans(SYMBOLS.encode(), bytes(range(1, VOCABULARY)))
_UNKNOWN: Final = bytes(set(range(128)) - set(SYMBOLS.encode()))


def encode(text: str) -> npt.NDArray[np.int32]:
    """Return the ids of a text's known characters, ``[n]``.

    Case is folded, accents are dropped, typographic apostrophes and dashes are plain ones, white space is one blank;
    what is still unknown (digits, other scripts) is left out.

    Raises:
        ValueError: nothing that is known is left.
    """
    ids = _encode(text)
    if not ids:
        raise ValueError(f"no character of {text!r} is among {SYMBOLS!r}")
    return np.frombuffer(ids, np.uint8).astype(np.int32)


def encoded_length(text: str) -> int:
    """Return the number of ids that :func:`encode` gives; 0 where it raises."""
    return len(_encode(text))


def left_out(text: str) -> str:
    """Return the characters of a text that :func:`encode` leaves out, each once, in their order; but for accents."""
    return "".join(
        character
        for character in dict.fromkeys(text)
        if not (_encode(character) or character.isspace() or unicodedata.combining(character))
    )


def _encode(text: str) -> bytes:
    text = text.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    known = " ".join(text.split()).encode("ascii", "ignore").translate(None, _UNKNOWN)
    return b" ".join(known.split()).translate(_IDS)  # again, for what was left out may leave two blanks
