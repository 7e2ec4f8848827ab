"""The pool on the parent's side: its processes, handing calls to those that are free, and replacing one that died.

A call takes a free process from a queue, talks to it, and puts it back; there is no thread in between, and the
interpreter lock is free while the call waits. One thread starts all processes, for the kernel ends them with the
thread that started them (``PR_SET_PDEATHSIG``), and calls come from threads of TensorFlow's that may end.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from xttsbench.errors import XttsbenchError
from xttsbench.fixes.pool.packing import user_files
from xttsbench.fixes.pool.work import Channel, anonymous_file, global_digest

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])['path']; "
    "from xttsbench.fixes.pool.work import main; main(sys.argv.pop(1))"
)
_SILENT: Final = {"TF_CPP_MIN_LOG_LEVEL": "3"}
"""Environment that silences TensorFlow's start-up log, which the parent has shown; exceptions come back anyway."""
_FRUGAL: Final = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""For a function that imports TensorFlow only when it is called; loaded earlier, it sees no GPU at all."""
_ATTEMPTS: Final = 2
_ENDING_S: Final = 5.0
"""Longest wait, in seconds, for a process whose connection broke to end by itself, so that its exit code is seen."""


class WorkerDiedError(XttsbenchError):
    """A process of the pool ended during a call, and another one in a second attempt."""


class StartError(XttsbenchError):
    """A process of the pool did not get ready."""


class Worker:
    """One process: asked by one thread at a time."""

    def __init__(self, told: Mapping[str, Any], descriptor: int, number: int) -> None:
        self.number = number
        ours, theirs = multiprocessing.Pipe()
        block = anonymous_file()
        handles = {"connection": theirs.fileno(), "block": block, "functions": descriptor}
        given = {**told, **handles, "number": number, "path": [path or os.getcwd() for path in sys.path]}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, json.dumps(given)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), block, descriptor),
                env=_SILENT | os.environ | _FRUGAL,
            )
        self._channel = Channel(ours, block)

    def wait_until_ready(self) -> None:
        """Wait until the functions are loaded.

        Raises:
            StartError: they cannot be loaded, or the process died.
        """
        try:
            answer = self._channel.receive()
        except (EOFError, OSError) as error:
            raise StartError(f"a process ended while it loaded the functions ({self.end()})") from error
        if answer[0] == "raised":
            self.end(0)
            raise StartError(f"the functions cannot be loaded in another process: {answer[2]}\n{answer[3]}")

    def ask(self, number: int, arguments: tuple[Any, ...]) -> Any:
        """Have function ``number`` called.

        Raises:
            EOFError: the process is gone.
            OSError: the same, seen otherwise.
            BaseException: what the function raised, with the process's traceback as its cause.
        """
        self._channel.send((number, arguments))
        answer = self._channel.receive()
        if answer[0] == "value":
            return answer[1]
        _, pickled, summary, text = answer
        raise _exception(pickled, summary) from _InProcessError(text)

    def end(self, wait_s: float = _ENDING_S) -> str:
        """End the process if it has not ended, and say how it did."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        if self._process.poll() is None:
            self._process.kill()
        status = self._process.wait()
        self._channel.close()
        if status < 0:
            with suppress(ValueError):
                return f"signal {-status}, {signal.Signals(-status).name}"
        return f"exit code {status}"


class WorkerPool:
    """Processes that call functions for as long as this object lives."""

    def __init__(self, pickled: bytes, names: Sequence[str], count: int) -> None:
        """Start ``count`` processes and wait until all are ready.

        Args:
            pickled: pickle of a list of ``(function, whether it takes tensors)``.
            names: how each function is called in messages: name, file and line.
            count: of processes.

        Raises:
            StartError: one did not get ready; the others are ended.
        """
        self._names = names
        self._state = _State(pickled)
        self.close = weakref.finalize(self, self._state.close)
        """Ends all processes, whatever they do; calls under way raise."""
        self.close.atexit = False  # calls may be under way as the program ends; the processes end right after it
        threading.Thread(target=self._state.keep, args=(count,), name="xttsbench-pool", daemon=True).start()
        try:
            first = [self._state.taken() for _ in range(count)]
        except BaseException:
            self.close()
            raise
        for worker in first:
            self._state.free.put(worker)

    def call(self, number: int, arguments: tuple[Any, ...]) -> Any:
        """Call function ``number`` in a free process, waiting for one; from any thread.

        A process that dies is replaced and the call is made once more, since the cause may lie elsewhere.

        Raises:
            WorkerDiedError: the process of the second attempt died as well.
            XttsbenchError: the pool is closed, or belongs to the process that this one was forked from.
            BaseException: what the function raised.
        """
        ends: list[str] = []
        while len(ends) < _ATTEMPTS:
            worker = self._state.taken()
            died = False
            try:
                return worker.ask(number, arguments)
            except (EOFError, OSError) as error:
                died = not isinstance(error.__cause__, _InProcessError)  # else it is the function's own
                if not died:
                    raise
                ends.append(self._state.replaced(worker))
            finally:
                if not died:
                    self._state.free.put(worker)
        raise WorkerDiedError(
            f"The process that ran {self._names[number]} ended during the call, and so did a second one "
            f"({'; '.join(ends)}). Run without processes:<n> to see the function fail by itself; "
            "SIGKILL is often a want of memory: take fewer processes."
        )


class _State:
    """State that outlives the pool while its processes are ended."""

    def __init__(self, pickled: bytes) -> None:
        # Processes that wait for a call; an error stays in it for all who ask.
        self.free: queue.SimpleQueue[Worker | XttsbenchError] = queue.SimpleQueue()
        self._pickled, self._told = pickled, {"words": list(global_digest()), "files": user_files()}
        self._owner = os.getpid()
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._workers: set[Worker] = set()
        self._lock = threading.RLock()  # closing may come from the garbage collector, in any thread
        self._closed = False

    def taken(self) -> Worker:
        if os.getpid() != self._owner:
            raise XttsbenchError(
                "A dataset with processes:<n> was used in a fork of the process that made it. Make it in the fork."
            )
        found = self.free.get()
        if isinstance(found, XttsbenchError):
            self.free.put(found)
            raise found
        return found

    def replaced(self, worker: Worker) -> str:
        """Have another process take the place of one that died, and say how that one ended."""
        how = worker.end()
        with self._lock:
            self._workers.discard(worker)
        self._wanted.put(worker.number)
        return how

    def keep(self, count: int) -> None:
        """Start processes as they are wanted, ``count`` of them first, until the pool is closed."""
        descriptor = anonymous_file()
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(self._pickled)
            self._pickled = b""  # one copy of what may be large
            started = [self._started(descriptor, number) for number in range(count)]
            while True:
                for worker in started:
                    worker.wait_until_ready()
                    self.free.put(worker)
                number = self._wanted.get()
                if number is None:
                    return
                started = [self._started(descriptor, number)]
        except XttsbenchError as error:
            self.free.put(error)
        except OSError as error:
            self.free.put(StartError(f"a process cannot be started: {error}"))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, set()
        self.free.put(XttsbenchError("The processes of this dataset have been ended."))
        self._wanted.put(None)
        for worker in workers:
            worker.end(0)

    def _started(self, descriptor: int, number: int) -> Worker:
        with self._lock:
            if self._closed:
                raise XttsbenchError("The processes of this dataset have been ended.")
            worker = Worker(self._told, descriptor, number)
            self._workers.add(worker)
        return worker


class _InProcessError(Exception):
    """The cause of an exception that comes from a process of the pool: the traceback there, as text."""

    def __str__(self) -> str:
        return f"in a process of the pool\n{self.args[0]}"


def _exception(pickled: bytes | None, summary: str) -> BaseException:
    if pickled is not None:
        with suppress(Exception):
            error = pickle.loads(pickled)
            if isinstance(error, BaseException):
                return error
    return RuntimeError(summary)
