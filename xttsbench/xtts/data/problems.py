"""All that is wrong with a data set in one error: counted by kind, the first few named, and what to do next."""

from __future__ import annotations

from collections import Counter
from typing import Final

from xttsbench.errors import InvalidInputError

SHOWN: Final = 5
"""Problems that an error names; the others are counted."""


class Problems:
    """Gathers what is wrong with clips, so that a user mends a data set once and not clip by clip."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.shown: list[str] = []

    def __len__(self) -> int:
        return self.kinds.total()

    def add(self, kind: str, where: str, what: str) -> None:
        """Note a problem.

        Args:
            kind: what it is one of, in words that follow a number: ``"without a WAV file"``.
            where: file and line, or file.
            what: what is wrong there.
        """
        self.kinds[kind] += 1
        if len(self.shown) < SHOWN:
            self.shown.append(f"{where}: {what}")

    def error(self, where: str, checked: int, remedy: str) -> InvalidInputError:
        """Return the error that says all of it.

        Args:
            where: the data set.
            checked: clips that were looked at, good ones included.
            remedy: what to do next.
        """
        count = len(self)
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.kinds.most_common())
        first = "" if count <= SHOWN else f", the first {SHOWN}"
        return InvalidInputError(
            f"{where}: {count} of {checked} clip{'s' * (checked != 1)} cannot be used ({kinds}){first}: "
            f"{'; '.join(self.shown)}. {remedy}"
        )
