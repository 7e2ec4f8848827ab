"""What long work on data says to whoever watches it; the command line draws it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called as work goes on."""

    def update(self, what: str, done: int, total: int) -> None:
        """So many of ``total`` parts of ``what`` (e.g. ``"clips made"``) are done; a total of 0 is not known."""


class Silent:
    """Progress that nobody watches."""

    def update(self, what: str, done: int, total: int) -> None:
        """Ignore it."""
