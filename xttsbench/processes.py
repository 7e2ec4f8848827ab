"""Processes and descriptors as the kernel knows them: whom a child ends with, who its orphans go to, who is killed.

A process id is free for another process as soon as its parent has waited for the process. So a signal goes to a child
that has not been waited for, or through a descriptor of the process (``pidfd_open(2)``), and to nobody else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import site
import threading
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

TRIALS: Final = "XTTSBENCH_TRIALS"
"""Variable of a helper and all that its trials start: a folder for AutoGraph's sources, which goes with the helper."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def checkout() -> str | None:
    """The folder that holds this package, where Python would not find it by itself: a checkout run by ``cli.py``."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return None if root in site.getsitepackages() else root


def with_package(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a child that finds this package, whose path comes last."""
    path = os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), checkout())))
    return {**environ, **({"PYTHONPATH": path} if path else {})}


def readable(
    sources: Iterable[int | _HasDescriptor], timeout_s: float | None, *, writable: _HasDescriptor | None = None
) -> set[int]:
    """Descriptors that can be read, or whose other end is gone, after waiting for one that long (``None``: for ever).

    The wait ends early as well where ``writable``, which is one of them, can be written. ``select(2)`` knows no
    descriptor above 1,023.
    """
    poll = select.poll()
    for one in sources:
        poll.register(one, select.POLLIN)
    if writable is not None:
        poll.modify(writable, select.POLLIN | select.POLLOUT)
    found = poll.poll(None if timeout_s is None else 1000 * max(timeout_s, 0.0))
    return {descriptor for descriptor, events in found if events & ~select.POLLOUT}


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel (Linux) for this signal when the parent dies, 0 for none.

    See afterwards whether it still lives: a parent that died before this call sends no signal any more.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def closed(source: int | _HasDescriptor, timeout_s: float | None = 0.0) -> bool:
    """Whether the other end of a socket or pipe is gone within that time (``None``: for ever), all read or not."""
    poll = select.poll()
    poll.register(source, select.POLLRDHUP)
    return bool(poll.poll(None if timeout_s is None else 1000 * timeout_s))


def end_with_parent(source: int) -> None:
    """End with the parent, however it dies; ``source`` is the descriptor of something whose other end it holds.

    The kernel's own way is about the thread of the parent that started this process; whatever else the parent has
    started may hold the other end.
    """
    die_with_parent()

    def follow() -> None:
        closed(source, None)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def adopt_orphans() -> None:
    """Have what descends from this process come to it when its parent ends, whatever session it is in (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def children() -> set[int]:
    """Process ids of this process's children, of those too that have ended and were not waited for."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            found.update(map(int, file.read().split()))
    return found


def ends_within(child: int, timeout_s: float) -> bool:
    """Whether a child of this process ends in that time; it is not waited for, so that its id stays its own."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(readable([descriptor], timeout_s))
    finally:
        os.close(descriptor)


def signal_name(number: int) -> str:
    """Name of a signal, ``SIGKILL``; its number where it has none."""
    return signal.Signals(number).name if number in set(signal.Signals) else str(number)


def kill_group(child: int) -> None:
    """Kill a child of this process that has not been waited for, and its process group.

    Both ids are its own until then, even where it has ended; before it has called ``setsid`` it has no group.
    """
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
