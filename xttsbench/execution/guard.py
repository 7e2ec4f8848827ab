"""Calls that may fail without ending the run that is watched: of each failure there is one line."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import TypeVar

from xttsbench.errors import XttsbenchError

T = TypeVar("T")


class Guard:
    """Calls what may fail."""

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}

    @property
    def lines(self) -> tuple[str, ...]:
        """Failures in the order in which they came, each once."""
        return tuple(self._failed.values())

    def __call__(self, what: str, action: Callable[..., T], *arguments: object) -> T | None:
        """Return what an action gives; ``None`` where it fails. ``what`` it does, in words that begin a sentence."""
        try:
            return action(*arguments)
        except Exception as error:
            self._failed.setdefault(what, _line(what, error))
            return None


def _line(what: str, error: Exception) -> str:
    if isinstance(error, XttsbenchError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{what} failed: {error.strerror}{f' ({error.filename})' if error.filename else ''}."
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{what} failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}{place}."
