"""The parent's side of a trial: helper process, pipe, limits, readings, journal. Never imports TensorFlow.

Here stand the signals that wait while a script is watched; nothing else is imported with them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

HELD_BACK: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
)


@contextmanager
def held_back() -> Iterator[None]:
    """Keep signals waiting for :func:`xttsbench.execution.watched.run_whole`, and drop what is left then.

    Threads inherit what their maker holds back. Begin this before NumPy is imported, whose threads would otherwise take
    a signal whenever the main thread is busy, and the whole process would end by it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
    try:
        yield
    finally:
        while signal.sigtimedwait(HELD_BACK, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
