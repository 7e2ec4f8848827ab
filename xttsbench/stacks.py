"""Stacks of a process's other threads, read without harm to them."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

_COLLECTS: Final = sys.version_info < (3, 12)
"""Whether garbage may be collected while a frame is made."""
_turn = threading.RLock()


@contextlib.contextmanager
def stacks() -> Iterator[dict[int, FrameType]]:
    """The frame of each thread, by its identifier, to be walked within the block, and no longer.

    No garbage is collected within. In Python 3.11 each step up another thread's stack allocates an object, which may
    collect garbage, whose finalizers let that thread run on: its frame is gone then, and reading it crashes the process
    (``_PyFrame_MakeAndSetFrameObject``). From 3.12 on nothing is collected there.
    """
    if not _COLLECTS:
        yield sys._current_frames()
        return
    with _turn:  # or the first of two threads to leave would have garbage collected beneath the other
        collects = gc.isenabled()
        try:
            gc.disable()
            yield sys._current_frames()
        finally:
            if collects:
                gc.enable()


def _in_a_fork() -> None:
    """A process that was forked while another thread was within has neither that thread nor what it would do next."""
    global _turn  # noqa: PLW0603 - a lock that another thread held is of no use here
    if not _turn.acquire(blocking=False):
        gc.enable()
    _turn = threading.RLock()


if _COLLECTS:
    os.register_at_fork(after_in_child=_in_a_fork)
