"""A process of the pool: loads the functions, then answers one call after the other until its parent is gone.

It is started as a fresh interpreter that knows nothing of the parent's ``__main__``: a user's script without the usual
guard must not run again.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]  # it brings no types
import numpy as np

from xttsbench.fixes.processes.channel import Channel
from xttsbench.fixes.processes.restored import FilesByName, seed_worker

_PR_SET_PDEATHSIG: Final = 1
_AS_THEY_ARE: Final = (np.ndarray, np.generic, bytes, str, int, float, complex, bool, list)
"""Results that the parent turns into a tensor as it would without the pool."""


def main(start: str) -> None:
    """Answer calls until the parent closes the connection.

    Args:
        start: JSON of what :class:`xttsbench.fixes.processes.workers.Worker` hands to its process.
    """
    given = json.loads(start)
    connection = socket.socket(fileno=given["connection"])
    _end_with_parent(connection)
    channel = Channel(connection, given["block"])
    try:
        FilesByName(given["files"]).install()
        seed_worker(given["number"], given["words"])
        with mmap.mmap(given["functions"], 0, access=mmap.ACCESS_READ) as pickled:
            functions: list[tuple[Callable[..., Any], bool]] = pickle.loads(pickled)
        if any(eager for _, eager in functions):
            import tensorflow  # noqa: F401  # now, not in the first call
        if "tensorflow" in sys.modules:
            functions = _prepared(functions)
        ready: tuple[Any, ...] = ("ready",)
    except BaseException as error:
        ready = _raised(error)
    try:
        channel.send(ready)
        while True:
            number, arguments = channel.receive()
            function, eager = functions[number]
            _answer(channel, function, eager, arguments)
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone or done with us


def _answer(channel: Channel, function: Callable[..., Any], eager: bool, arguments: tuple[Any, ...]) -> None:
    try:
        value = _sendable((_eagerly if eager else _plainly)(function, arguments))
    except BaseException as error:  # SystemExit too: it is the parent's call that ends with it
        channel.send(_raised(error))
        return
    try:
        channel.send(("value", value))
    except OSError:
        raise
    except Exception as error:
        channel.send(_raised(TypeError(f"the result cannot be sent to another process: {error}")))


def _plainly(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


def _eagerly(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a function of tensors with the arrays that the parent made of its tensors."""
    import tensorflow as tf

    tensors = [
        tf.constant(value, tf.string if isinstance(value, bytes) or value.dtype == object else None)
        for value in arguments
    ]
    return function(*tensors)


def _sendable(value: Any) -> Any:
    """A result without classes that the parent may not know: named tuples as tuples, tensors as arrays."""
    if isinstance(value, list | tuple):
        return [_sendable_part(part) for part in value]
    return _sendable_part(value)


def _sendable_part(value: Any) -> Any:
    if value is None or isinstance(value, _AS_THEY_ARE):
        return np.asarray(value) if isinstance(value, np.ma.MaskedArray) else value
    if hasattr(value, "numpy"):
        return value.numpy()
    if isinstance(value, tuple):
        return [_sendable_part(part) for part in value]
    return np.asarray(value)


def _raised(error: BaseException) -> tuple[Any, ...]:
    """What tells the parent of an exception: itself where it can be copied, its name and message, its traceback."""
    text = "".join(traceback.format_exception(error))
    pickled: bytes | None = None
    with suppress(Exception):
        pickled = cloudpickle.dumps(error)
    return "raised", pickled, f"{type(error).__name__}: {error}", text


def _prepared(functions: list[tuple[Callable[..., Any], bool]]) -> list[tuple[Callable[..., Any], bool]]:
    """The functions as TensorFlow calls them: unconverted. Keeps TensorFlow in this process off the GPUs.

    It would take the memory there that the training step needs.
    """
    import tensorflow as tf

    with suppress(RuntimeError):  # the user's module has used TensorFlow as it was imported
        tf.config.set_visible_devices([], "GPU")
    return [(tf.autograph.experimental.do_not_convert(function), eager) for function, eager in functions]


def _end_with_parent(connection: socket.socket) -> None:
    """End when the parent does, however it died; leave Ctrl-C, which a terminal sends to all of us, to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, AttributeError):  # Linux
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)

    def follow() -> None:
        poll = select.poll()
        poll.register(connection.fileno(), getattr(select, "POLLRDHUP", 0))  # hang-ups are always reported
        poll.poll()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()
