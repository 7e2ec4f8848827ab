"""Text from outside (names, messages, paths, remedies) made safe to print; markup is escaped by each exporter.

A target's names may hold terminal escapes, bidirectional overrides, newlines or lone surrogates. They stay visible as
text, but they can neither move the cursor nor break a table or an encoder.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ANSI: Final = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # operating system commands, such as a window title or a link
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)"  # device control and other strings
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences, such as colours
    r"|\x1b[ -/]*[0-~]?"  # other escapes
)
_FORMULA: Final = ("=", "+", "-", "@")
_SPACES: Final = re.compile(r"\s+")
_DROPPED: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Control characters, invisible format characters (bidirectional overrides among them), separators of lines."""


def plain(text: object) -> str:
    """One line of ``text`` without terminal escapes and control characters; runs of white space become one space."""
    return _SPACES.sub(" ", _strip(str(text).replace("\n", " ").replace("\r", " ").replace("\t", " "))).strip()


def cell(text: object) -> str:
    """``text`` as a cell of a CSV that stays text: a spreadsheet would compute what begins like a formula."""
    shown = plain(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def plain_lines(text: object) -> tuple[str, ...]:
    """The lines of ``text``, each without terminal escapes and control characters, indentation kept."""
    lines = str(text).replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).strip("\n").split("\n")
    return tuple(_strip(line).rstrip() for line in lines)


def _strip(text: str) -> str:
    """``text`` without escapes and controls, lone surrogates (undecodable file names) as a replacement mark."""
    kept = []
    for character in _ANSI.sub("", text):
        category = unicodedata.category(character)
        if category == "Cs":
            kept.append("\N{REPLACEMENT CHARACTER}")
        elif category not in _DROPPED:
            kept.append(character)
    return "".join(kept)
