"""Channel between a process and the parent that starts it: tie, answers, stop and end.

Imports no TensorFlow.

Messages go over a socket of their own, a JSON object a line, apart from standard output so that prints do no harm.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, Final, NoReturn, TextIO, TypeVar

from xttsbench.processes import closed, die_with_parent
from xttsbench.records.base import Record
from xttsbench.records.code import ScriptRun
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec, Turn

SomeRecord = TypeVar("SomeRecord", bound=Record)

_WRITABLE: Final = 0x200  # PyBUF_WRITE
_PATIENCE_S: Final = 5  # with a parent that does not read what a script's process sends


def answer(serve: Callable[..., int], name: str, more: int = 0) -> NoReturn:
    """Serve the parent over the socket whose number is the first argument, and end with the exit code of that.

    Args:
        serve: gets the socket, and the numbers of other descriptors.
        name: of the module that is run, for whoever starts it by hand.
        more: how many other descriptors there are.
    """
    if len(sys.argv) != 2 + more or not "".join(sys.argv[1:]).isdigit():
        sys.exit(f"{name} is started by xttsbench itself, with the numbers of its descriptors.")

    def talk() -> int:
        with socket.socket(fileno=int(sys.argv[1])) as control:
            die_with_parent()
            # Where the parent died before the kernel was asked there is nobody to serve.
            return 1 if closed(control) else serve(control, *map(int, sys.argv[2:]))

    leave_after(talk)


def leave_after(work: Callable[[], int]) -> NoReturn:
    """Do what this process is for, and end it with the exit code of that; a parent that is gone is no error."""
    code = 1
    try:
        code = work()
    except (BrokenPipeError, ConnectionResetError):
        pass
    except Exception:
        traceback.print_exc()  # TensorFlow cannot be imported, say: leaving would swallow it
    finally:
        leave(code)


def flush() -> None:
    """Have everything printed that was."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


AUTOGRAPH: Final = "tensorflow.python.autograph.pyct.loader"
"""Module of TensorFlow's that writes AutoGraph's sources."""
_GENERATED: Final = "__autograph_generated_file"
"""Beginning of the names of the modules that TensorFlow's AutoGraph writes."""


def leave(code: int) -> NoReturn:
    """End this process; not by ``sys.exit``: a live Python function in tf.data can hang the interpreter's shutdown.

    The sources that AutoGraph put into the temporary folder are removed: it does so itself where Python shuts down.
    """
    flush()
    for name, module in list(sys.modules.items()):
        if name.startswith(_GENERATED) and (file := getattr(module, "__file__", None)):
            with contextlib.suppress(OSError):
                os.unlink(file)
    os._exit(code)


def sources_apart(folder: str) -> None:
    """Have AutoGraph, which is loaded, write its sources into that folder: who is killed leaves them behind."""
    create = partial(tempfile.NamedTemporaryFile, dir=folder)
    vars(sys.modules[AUTOGRAPH])["tempfile"] = SimpleNamespace(NamedTemporaryFile=create)  # all that it takes of it


@contextlib.contextmanager
def quiet_unless_it_fails() -> Iterator[None]:
    """Keep what C++ writes to standard error while TensorFlow is imported; show it if that fails.

    Those notices come before TensorFlow reads its log level, so no variable silences them.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") < "2":
        yield  # the user wants to see them
        return
    with tempfile.TemporaryFile() as kept:
        own = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(own, kept.read())
            raise
        finally:
            os.dup2(own, 2)
            os.close(own)


class Channel:
    """Sends messages to the parent; the first line that comes from there says what is to be done.

    Messages: ``{"phase": name}``, ``{"part": field, "value": ...}`` for a field of the trial record,
    ``{"note": text}``, ``{"waits": [start, end]}`` of a process that waits for its turn, with the ``perf_counter_ns``
    of the turn that it had, ``{"asks": true}`` of one that waits to hear whether its rounds suffice, ``{"error": ...,
    "status": ...}`` and, last, ``{"done": true}``. Lines after the first from the parent are turns, or words of a
    final verdict; an empty one says that there is none, or none more.

    Args:
        connection: to the parent.
        rows: memory that the parent reads, for what is too much for messages: the rows of steps.
    """

    process_ends = True
    """Fate of the process: it ends with what it has to do, so nothing needs to be tidied up."""

    def __init__(self, connection: socket.socket, rows: RowMemory | None = None) -> None:
        self.rows = rows or RowMemory(bytearray(RowMemory.size_bytes(1)))
        self._connection = connection

    @cached_property
    def _lines(self) -> TextIO:  # not before it is asked for: who holds it keeps the socket open
        return self._connection.makefile("r", encoding="utf-8")

    def receive(self, kind: type[SomeRecord]) -> SomeRecord:
        """Block for what is to be done: the specification of a trial, or the job of a training."""
        return kind.from_line(self._lines.readline())

    def next_turn(self, *stretch_ns: int) -> Turn | None:
        """Say that the turn of that stretch of time is over, stand still, and give the next one; ``None`` for the end.

        The process stops itself, and what it has started, at once: until the parent lets them go on, the buffers stay
        as the last step left them.
        """
        self.send({"waits": stretch_ns})
        os.killpg(os.getpgrp(), signal.SIGSTOP)
        line = self._lines.readline().strip()
        return Turn.model_validate_json(line) if line else None

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; blocks while the parent is busy, and raises ``OSError`` when it is gone."""
        self._connection.sendall(_line(message))

    def phase(self, name: str) -> None:
        """Say what begins now; it also tells the parent that the trial is alive."""
        self.send({"phase": name})

    def part(self, field: str, value: Record | Sequence[Record | str] | float | None) -> None:
        """Set one field of the trial record."""

        def plain(one: object) -> object:
            return one.model_dump(mode="json") if isinstance(one, Record) else one

        self.send({"part": field, "value": [plain(one) for one in value] if isinstance(value, list) else plain(value)})

    def detach(self) -> None:
        """Send nothing from now on, where the process outlives its parent."""

    def decided(self) -> bool:
        """Whether the parent says that the rounds so far suffice; it looks while this process waits."""
        self.send({"asks": True})
        return bool(self._lines.readline().strip())

    def note(self, text: str) -> None:
        """Add a note to the trial record."""
        self.send({"note": text})


def shared_rows(descriptor: int) -> RowMemory:
    """The memory for rows that the parent handed over; its descriptor is closed.

    Raises:
        OSError: it cannot be mapped.
    """
    size = os.fstat(descriptor).st_size
    # Python's own mmap would keep a descriptor open, with the number that a script's first file has under plain Python.
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    address = library.mmap(
        None, ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, ctypes.c_long(0)
    )
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(descriptor)
    view = ctypes.pythonapi.PyMemoryView_FromMemory
    view.restype, view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    return RowMemory(view(address, size, _WRITABLE))


class DirectChannel(Channel):
    """A channel without a pipe; messages are written and read as on one, so that records are the same."""

    process_ends = False

    def __init__(self, take: Callable[[dict[str, Any]], None], rows: RowMemory) -> None:
        self.rows = rows
        self._take = take

    def decided(self) -> bool:
        """Nobody looks: whoever could runs the trial."""
        return False

    def send(self, message: dict[str, Any]) -> None:
        """Hand one message over."""
        self._take(json.loads(json.dumps(message, allow_nan=False)))


class SilentChannel(Channel):
    """A channel to nobody, for measuring what measuring costs."""

    def __init__(self) -> None:
        self.rows = RowMemory(bytearray(RowMemory.size_bytes(64)))

    def send(self, message: dict[str, Any]) -> None:
        """Put the message into words, and forget it."""
        _line(message)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


exit_now: Callable[[int], Any] = os._exit
"""``os._exit`` itself, in whose place a script that runs finds ours."""


class StoppedByUs(BaseException):
    """Enough steps were measured. No ``Exception``: a script that goes on after errors would go on after this one."""


def out_of_the_way(connection: socket.socket) -> socket.socket:
    """The same connection under a high number: a script gets the low ones, and may close them all."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    moved = fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, max(min(soft, 1024) - 24, 3))
    connection.close()
    return socket.socket(fileno=moved)


class LockedChannel(Channel):
    """A channel that several threads of this process use; in a process that the script forked it is silent.

    Where a message cannot be sent, a process that ``outlives_parent`` is silent from then on; another one ends, as
    nobody is left to tell. The script may have closed the descriptor, and opened it anew for a file of its own: nothing
    is written there, and it stays open.
    """

    def __init__(self, connection: socket.socket, rows: RowMemory, *, outlives_parent: bool = False) -> None:
        super().__init__(connection, rows)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._number, self._is = connection.fileno(), os.fstat(connection.fileno())
        self._outlives_parent = outlives_parent
        if outlives_parent:  # and goes on, where the parent stands still and reads nothing
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _PATIENCE_S, 0))

    def send(self, message: dict[str, Any]) -> None:
        """Send one message, unless nobody hears it."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            try:
                if not os.path.samestat(os.fstat(self._number), self._is):
                    raise OSError(errno.EBADF, "another file has its number")
                self._connection.sendall(_line(message), socket.MSG_NOSIGNAL)  # the script may want to die of SIGPIPE
            except Exception as error:
                if not self._outlives_parent:
                    if isinstance(error, OSError):
                        exit_now(1)
                    raise
                self.detach()

    def detach(self) -> None:
        """Send nothing from now on; whatever the descriptor is by now stays open."""
        self._pid = 0
        self._connection.detach()


class ScriptReport:
    """The record of a script's run, sent to the parent whenever it changes."""

    def __init__(self, spec: TrialSpec, channel: Channel) -> None:
        self.spec = spec
        self.channel = channel
        self.run = ScriptRun()

    def tell(self, **changed: Any) -> None:
        """Change the record, and send it where it is another one then."""
        before, self.run = self.run, self.run.model_copy(update=changed)
        if self.run != before:
            self.channel.part("script", self.run)
