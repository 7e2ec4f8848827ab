"""The wish to end, as a signal says it; the loop looks at it at the boundary of each step."""

from __future__ import annotations

from types import FrameType


class Stop:
    """Whether the process was asked to end."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Remember it; what a signal handler has to look like."""
        self.asked = True

    def __call__(self) -> bool:
        """Whether the process was asked to end."""
        return self.asked
