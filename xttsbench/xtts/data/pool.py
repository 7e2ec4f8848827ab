"""Work on many clips in several processes, in order, with its progress.

The processes are spawned, not forked, for the parent may hold threads of TensorFlow's.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from types import ModuleType
from typing import Final, Protocol, TypeVar

from xttsbench.errors import XttsbenchError
from xttsbench.processes import end_with_parent

Job = TypeVar("Job")
Result = TypeVar("Result")
_MOST_WORKERS: Final = 16


class Progress(Protocol):
    """Called as work goes on."""

    def update(self, what: str, done: int, total: int) -> None:
        """So many of ``total`` parts of ``what`` (e.g. ``"clips made"``) are done; a total of 0 is not known."""


class Silent:
    """Progress that nobody watches."""

    def update(self, what: str, done: int, total: int) -> None:
        """Ignore it."""


def allowed_workers() -> int:
    """Return how many processes to use where the user does not say: the cores that we may run on, 16 at most."""
    return min(len(os.sched_getaffinity(0)), _MOST_WORKERS)


def in_processes(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Generator[Result, None, None]:
    """Yield ``function(job)`` for each job, in order; in this process where ``workers`` is 1.

    Jobs and results are pickled. Close the iterator (``contextlib.closing``) where it may be left early: that ends the
    processes. The function is one of a module that imports no TensorFlow.

    Raises:
        XttsbenchError: a process died.
    """
    if workers <= 1:
        yield from map(function, jobs)
        return
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    try:
        with spawning():
            results = executor.map(function, jobs)
        yield from results
    except BrokenProcessPool as error:
        raise XttsbenchError(
            f"one of {workers} processes that work on the clips died, for want of memory perhaps; "
            "take fewer with --workers"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def in_chunks(
    function: Callable[[Sequence[Job]], Result],
    jobs: Sequence[Job],
    size: int,
    workers: int | None,
    what: str,
    progress: Progress | None,
) -> Iterator[Result]:
    """Yield what the function returns of each ``size`` jobs, in order, as :func:`in_processes`.

    Without a number of ``workers`` the allowed cores work, and one for no more than two chunks. The progress is told
    how many jobs of ``what`` (e.g. ``"clips made"``) are done, after each chunk was used.
    """
    progress, done = progress or Silent(), 0
    chunks = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    if chunks:
        progress.update(what, 0, len(jobs))
    workers = workers or (allowed_workers() if len(chunks) > 2 else 1)
    with closing(in_processes(function, chunks, min(workers, len(chunks)))) as results:
        for chunk, result in zip(chunks, results, strict=True):
            yield result
            done += len(chunk)
            progress.update(what, done, len(jobs))


def _begin() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        end_with_parent(parent.sentinel)


@contextmanager
def spawning() -> Iterator[None]:
    """Let a process be spawned that knows neither our ``__main__`` nor Ctrl-C.

    A spawned process imports the parent's ``__main__`` again, which for a user's script without the usual guard means
    to run it again; our functions need nothing of it. A mask of signals is inherited, so that Ctrl-C, which a terminal
    sends to all, is left to the parent, which ends the others.
    """
    main = sys.modules["__main__"]
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
