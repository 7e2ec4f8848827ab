"""Signals that ask a command to end: SIGINT, SIGTERM and SIGHUP are a ``KeyboardInterrupt``, where that costs nothing.

While a run is measured and reported the first one waits for a place that can record the interruption
(:func:`interruptible`), so that no result is lost on its way to the disk and the report is written. The second one ends
the command at once.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BY_SIGNAL: Final = 128
"""The exit code of what a signal ended is that much more than the signal's number."""
_REPEATED_S: Final = 1.0
"""``timeout`` sends its signal twice, a terminal that closes does so through its shell, systemd may add a SIGHUP."""

asked: list[int] = []
"""Signals that asked this command to end, each once."""
_counted_s = 0.0
_doors = 0  # of those that heed signals, one within the other; outside of all nobody is asked
_waits = False


def note(number: int) -> bool:
    """Keep that a signal asks for the end; ``False`` where it only repeats the one before. A key is always meant."""
    global _counted_s  # noqa: PLW0603 - signals are the process's
    now_s = time.monotonic()
    if asked and number != signal.SIGINT and now_s - _counted_s < _REPEATED_S:
        return False
    _counted_s = now_s
    asked.extend([number] if _doors else [])
    return True


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal: raise ``KeyboardInterrupt``, unless it is the first one and waits."""
    if note(number) and (len(asked) > 1 or not _waits):
        raise KeyboardInterrupt


@contextmanager
def heeded(handler: Callable[[int, FrameType | None], Any] = interrupt) -> Iterator[None]:
    """Let a handler have the signals; those that are ignored, as under ``nohup``, stay so."""
    global _doors  # noqa: PLW0603 - signals are the process's
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is told of signals
        return
    found = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: old for number, old in found.items() if old not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handler)
    _doors += 1
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        _doors -= 1
        if not _doors:
            asked.clear()


def finishes() -> AbstractContextManager[None]:
    """Let the first signal wait: what goes on here is to have its report."""
    return _waiting(True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a signal, or one that waited, raise ``KeyboardInterrupt``, which the caller records as the run's end."""
    with _waiting(False):
        if asked:
            raise KeyboardInterrupt
        yield


@contextmanager
def _waiting(waits: bool) -> Iterator[None]:
    global _waits  # noqa: PLW0603 - signals are the process's
    before, _waits = _waits, waits
    try:
        yield
    finally:
        _waits = before
