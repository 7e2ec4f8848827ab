"""How a process that the parent starts begins, is tied to it, is asked to stop, and ends. Standard library alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel (Linux) for this signal when the parent dies, 0 for none; elsewhere the socket alone must do.

    Ask :func:`closed` afterwards: a parent that died before this call sends no signal any more.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)


def closed(control: socket.socket) -> bool:
    """Whether the parent's end of a socket is closed."""
    ready, _, _ = select.select([control], [], [], 0.0)
    return bool(ready) and not control.recv(1, socket.MSG_PEEK)


def answer(serve: Callable[..., int], name: str, more: int = 0) -> NoReturn:
    """Serve the parent over the socket whose number is the first argument, and end with the exit code of that.

    Args:
        serve: gets the socket, and the numbers of other descriptors.
        name: of the module that is run, for whoever starts it by hand.
        more: how many other descriptors there are.
    """
    if len(sys.argv) != 2 + more or not "".join(sys.argv[1:]).isdigit():
        sys.exit(f"{name} is started by xttsbench itself, with the numbers of its descriptors.")
    code = 1
    try:
        with socket.socket(fileno=int(sys.argv[1])) as control:
            code = serve(control, *map(int, sys.argv[2:]))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone: so are we
    except Exception:
        traceback.print_exc()  # TensorFlow cannot be imported, say: leaving would swallow it
    finally:
        leave(code)


def leave(code: int) -> NoReturn:
    """End this process; not by ``sys.exit``: a live Python function in tf.data can hang the interpreter's shutdown."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


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


class Stop:
    """Whether the process was asked to end."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Remember it; what a signal handler has to look like."""
        self.asked = True

    def __call__(self) -> bool:
        """Whether the process was asked to end."""
        return self.asked
