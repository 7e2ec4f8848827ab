"""What ties a process to its parent: it ends with it, however the parent died. Needs the standard library alone."""

from __future__ import annotations

import contextlib
import ctypes
import select
import signal
import socket
from typing import Final

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
