"""Stacks of a process's other threads, read without harm to them."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def stacks() -> Iterator[dict[int, FrameType]]:
    """The frame of each thread, by its identifier, to be walked within the block, and no longer.

    No garbage is collected within. In Python 3.11 each step up another thread's stack allocates an object, which may
    collect garbage, whose finalizers let that thread run on: its frame is gone then, and reading it crashes the process
    (``_PyFrame_MakeAndSetFrameObject``). From 3.12 on nothing is collected there.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield sys._current_frames()
    finally:
        if collects:
            gc.enable()
