"""The trial's own pipe to the parent: a JSON object a line, apart from standard output so that prints do no harm."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

from xttsbench.records.base import Record
from xttsbench.records.trial import TrialSpec


class Channel:
    """Sends messages to the parent; the first line that comes from there is the trial's specification.

    Messages: ``{"phase": name}``, ``{"rows": segment, "columns": {...}}``, ``{"warmup": n, "segment": name}``,
    ``{"part": field, "value": ...}`` for a field of the trial record, ``{"note": text}``, ``{"error": ...,
    "status": ...}`` and, last, ``{"done": true}``.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def receive_spec(self) -> TrialSpec:
        """Block for the specification of the trial."""
        with self._connection.makefile("r", encoding="utf-8") as lines:
            return TrialSpec.model_validate_json(lines.readline())

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; blocks while the parent is busy, and raises ``OSError`` when it is gone."""
        self._connection.sendall(json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n")

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


class DirectChannel(Channel):
    """A channel without a pipe; messages are written and read as on one, so that records are the same."""

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self._take = take

    def send(self, message: dict[str, Any]) -> None:
        """Hand one message over."""
        self._take(json.loads(json.dumps(message, allow_nan=False)))
