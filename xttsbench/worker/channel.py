"""The trial's own pipe to the parent: a JSON object a line, apart from standard output so that prints do no harm."""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
from collections.abc import Callable
from functools import cached_property
from typing import Any, TextIO

from xttsbench.records.base import Record
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec, Turn


class Channel:
    """Sends messages to the parent; the first line that comes from there is the trial's specification.

    Messages: ``{"phase": name}``, ``{"part": field, "value": ...}`` for a field of the trial record,
    ``{"note": text}``, ``{"waits": [start, end]}`` of a process that waits for its turn, with the ``perf_counter_ns``
    of the turn that it had, ``{"error": ..., "status": ...}`` and, last, ``{"done": true}``. Lines after the first from
    the parent are turns; an empty one says that there are no more.

    Args:
        connection: to the parent.
        rows: memory that the parent reads, for what is too much for messages: the rows of steps.
    """

    def __init__(self, connection: socket.socket, rows: RowMemory | None = None) -> None:
        self.rows = rows or RowMemory(bytearray(RowMemory.size_bytes(1)))
        self._connection = connection

    @cached_property
    def _lines(self) -> TextIO:  # not before it is asked for: who holds it keeps the socket open
        return self._connection.makefile("r", encoding="utf-8")

    def receive_spec(self) -> TrialSpec:
        """Block for the specification of the trial."""
        return TrialSpec.model_validate_json(self._lines.readline())

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

    def part(self, field: str, value: Record | list[Record] | float | str | None) -> None:
        """Set one field of the trial record."""

        def plain(one: object) -> object:
            return one.model_dump(mode="json") if isinstance(one, Record) else one

        self.send({"part": field, "value": [plain(one) for one in value] if isinstance(value, list) else plain(value)})

    def note(self, text: str) -> None:
        """Add a note to the trial record."""
        self.send({"note": text})


def shared_rows(descriptor: int) -> RowMemory:
    """The memory for rows that the parent handed over; its descriptor is closed."""
    rows = RowMemory(mmap.mmap(descriptor, 0))
    os.close(descriptor)
    return rows


class DirectChannel(Channel):
    """A channel without a pipe; messages are written and read as on one, so that records are the same."""

    def __init__(self, take: Callable[[dict[str, Any]], None], rows: RowMemory) -> None:
        self.rows = rows
        self._take = take

    def send(self, message: dict[str, Any]) -> None:
        """Hand one message over."""
        self._take(json.loads(json.dumps(message, allow_nan=False)))


class SilentChannel(Channel):
    """A channel to nobody, with room for a few rows: for measuring what measuring costs.

    Args:
        in_words: put messages into words all the same, which is what sending costs but for the pipe.
    """

    def __init__(self, *, in_words: bool = False) -> None:
        self.rows = RowMemory(bytearray(RowMemory.size_bytes(64)))
        self._in_words = in_words

    def send(self, message: dict[str, Any]) -> None:
        """Forget the message."""
        if self._in_words:
            _line(message)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
