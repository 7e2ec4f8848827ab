"""End of a program that has a dataset with fixes: its iterators end before the interpreter does.

TensorFlow destroys an iterator once the Python functions that it called have come back. When the interpreter is
finalized, CPython ends a thread that comes back to it (up to 3.13) or holds it for ever (from 3.14), so that an
iterator which is destroyed then waits for ever. Up to 3.12 the thread that was ended mostly kept the program's module,
and so the iterator, from being destroyed; 3.13 destroys it. Plain TensorFlow hangs there as well; a fix that has
several functions run at once, ahead of the loop, should not make it more likely.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import threading
from typing import Any, Final

from tensorflow.python.data.ops.iterator_ops import OwnedIterator
from tensorflow.python.data.ops.multi_device_iterator_ops import OwnedMultiDeviceIterator

_ITERATORS: Final = (OwnedIterator, OwnedMultiDeviceIterator)
_WAIT_S: Final = 1.0
"""Longest wait, in seconds, for calls that are under way as the program ends."""


@functools.cache
def end_iterators_at_exit() -> None:
    """Have every iterator of this process ended when the program ends, from now on."""
    _IteratorsEnd()


class _IteratorsEnd:
    """A thread that ends the iterators, made early, for none can be started once the program ends (CPython 3.12).

    One that does not get done, as a call does not come back, keeps the iterators from being destroyed by others: it
    holds them, and ends with the process.
    """

    def __init__(self) -> None:
        self._asked, self._done, self._never = threading.Event(), threading.Event(), threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._end, name="xttsbench-iterators", daemon=True)
        self._thread.start()
        atexit.register(self._ask)

    def _ask(self) -> None:
        if os.getpid() == self._pid:  # a fork has no such thread
            self._asked.set()
            self._done.wait(_WAIT_S)

    def _end(self) -> None:
        self._asked.wait()
        iterators = [one for one in gc.get_objects() if type(one) in _ITERATORS]
        states: list[dict[str, Any]] = [dict(vars(one)) for one in iterators]
        if self._others_run():  # and may read these data until the end
            self._done.set()
            self._never.wait()
        for one in iterators:
            vars(one).clear()
        states.clear()
        self._done.set()

    def _others_run(self) -> bool:
        known = (threading.main_thread(), self._thread)
        threads = [one for one in threading.enumerate() if one not in known]
        return not all(isinstance(one, threading._DummyThread) or one.name.startswith("xttsbench-") for one in threads)
