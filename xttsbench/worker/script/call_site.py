"""Whose line asks for a batch: it tells the loops of a script from each other."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType
from typing import Any, Final

_OURS: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_NOT_USERS: Final = (_OURS, sysconfig.get_paths()["stdlib"] + os.sep, "<frozen")
_FRAMEWORKS: Final = (f"{os.sep}tensorflow{os.sep}python{os.sep}", f"{os.sep}keras{os.sep}src{os.sep}")


def call_site() -> tuple[str, int]:
    """File and line of the innermost frame that is neither ours, TensorFlow's nor Python's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_USERS) and not any(part in file for part in _FRAMEWORKS):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


def made_at(dataset: Any) -> tuple[str, int] | None:
    """Where a dataset was made, where that is remembered; for a distributed one, where its original was."""
    from xttsbench.pipeline.graph.places import place_of

    return place_of(original(dataset))


def original(dataset: Any) -> Any:
    """The dataset that a distributed one was made from; any other as it is."""
    return getattr(dataset, "_original_dataset", dataset)
