"""Many short strings in one buffer: a million Python objects would take a hundred megabytes more than their letters."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False, slots=True)
class Strings:
    """A column of strings: UTF-8 one after the other, and where each begins."""

    buffer: bytes | bytearray
    starts: npt.NDArray[np.int64]
    """``[n + 1]`` first byte of each; the last is the length of the buffer."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> str:
        return self.buffer[self.starts[row] : self.starts[row + 1]].decode("utf-8")


class StringsBuilder:
    """Gathers a column, string by string."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._starts = array("q", [0])

    def append(self, value: bytes) -> None:
        """Add a string, already in UTF-8."""
        self._buffer += value
        self._starts.append(len(self._buffer))

    def build(self) -> Strings:
        """Return the column; the builder is used up."""
        return Strings(self._buffer, np.frombuffer(self._starts, np.int64))
