"""Text to ids: characters, after the simplest normalisation."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

SYMBOLS: Final = "abcdefghijklmnopqrstuvwxyz '.,;:?!-"
"""Known characters; the id of the first is 1, for 0 is padding."""

_IDS: Final = {symbol: number for number, symbol in enumerate(SYMBOLS, start=1)}
VOCABULARY: Final = len(SYMBOLS) + 1


def encode(text: str) -> npt.NDArray[np.int32]:
    """Return the ids of a text's known characters, ``[n]``; case is folded and white space is one blank.

    Raises:
        ValueError: nothing that is known is left.
    """
    ids = [_IDS[character] for character in " ".join(text.lower().split()) if character in _IDS]
    if not ids:
        raise ValueError(f"no character of {text!r} is among {SYMBOLS!r}")
    return np.asarray(ids, np.int32)
