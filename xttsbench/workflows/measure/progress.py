"""What a workflow tells whoever watches it; the command line draws it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called as a run goes on."""

    def trial(self, name: str, spent_s: float, budget_s: float) -> None:
        """A trial begins, so many seconds into the time for the verdict."""

    def step(self, phase: str, steps: int) -> None:
        """A trial is in this phase, with so many steps so far."""

    def done(self, name: str, status: str, seconds: float) -> None:
        """A trial ended."""

    def standing(self, sentence: str) -> None:
        """A block of a comparison ended: how its arms stand."""


class Silent:
    """Progress that nobody watches."""

    def trial(self, name: str, spent_s: float, budget_s: float) -> None:
        """Ignore it."""

    def step(self, phase: str, steps: int) -> None:
        """Ignore it."""

    def done(self, name: str, status: str, seconds: float) -> None:
        """Ignore it."""

    def standing(self, sentence: str) -> None:
        """Ignore it."""
