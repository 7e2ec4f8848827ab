"""A trial's record while it comes in: messages, and rows in memory that outlive the process that writes them."""

from __future__ import annotations

from mmap import mmap
from typing import Any

from pydantic import ValidationError

from xttsbench.records.readings import Readings
from xttsbench.records.row_memory import RowMemory
from xttsbench.records.trial import Segment, TrialError, TrialRecord, TrialSpec, TrialStatus


class Collected:
    """Builds a :class:`TrialRecord` from the child's messages and rows.

    Args:
        spec: what the child was told.
        rows: where the child writes its rows; by default memory of this process, for a trial in this one.
    """

    def __init__(self, spec: TrialSpec, rows: RowMemory | None = None) -> None:
        self.rows = rows or RowMemory(mmap(-1, RowMemory.size_bytes()))
        self._spec = spec
        self._parts: dict[str, Any] = {}
        self._notes: list[str] = []
        self.phase = "fork"
        self.status: TrialStatus = "ok"
        self.cause: str | None = None
        self.error: dict[str, Any] | None = None
        self.done = False
        self.turns: list[list[int]] = []
        """Start and end of each turn that is over; the first entry is empty and says that the process is ready."""

    @property
    def steps(self) -> int:
        """Steps that have ended, over all segments."""
        return self.rows.steps

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of the child (see :class:`xttsbench.worker.channel.Channel`)."""
        if "phase" in message:
            self.phase = message["phase"]
        elif "part" in message:
            self._parts[message["part"]] = message["value"]
        elif "note" in message:
            self._notes.append(message["note"])
        elif "traces" in message:
            self._parts["traces"] = message["traces"]
        elif "status" in message:
            self.status, self.cause, self.error = message["status"], message.get("cause"), message.get("error")
        elif "waits" in message:
            self.turns.append(message["waits"])
        elif "done" in message:
            self.done = True

    def record(self, *, started_utc: str, duration_s: float, readings: Readings) -> TrialRecord:
        """The journal line, with everything that has arrived."""
        found = self.rows.read()
        segments = [Segment(name=one.name, columns=one.columns, warmup_steps=one.warmup_steps) for one in found]
        lost = [
            f"of the segment {one.name} the last {len(one.columns.get('wall_ns', ()))} rows are kept"
            for one in found
            if one.lost
        ]
        fields: dict[str, Any] = {
            "spec": self._spec,
            "status": self.status,
            "cause": self.cause,
            "error": TrialError(**self.error) if self.error else None,
            "started_utc": started_utc,
            "duration_s": duration_s,
            "segments": tuple(segments),
            "readings": readings,
            "notes": tuple(dict.fromkeys([*self._notes, *lost])),
        }
        try:
            return TrialRecord.model_validate(fields | self._parts)
        except ValidationError as error:
            # A part that does not fit must cost neither the samples nor the other parts.
            unfit = {str(problem["loc"][0]) for problem in error.errors()}
            fit = {name: value for name, value in self._parts.items() if name not in unfit}
            dropped = f"dropped, since they do not fit the record: {', '.join(sorted(unfit))}"
            return TrialRecord.model_validate(fields | fit | {"notes": (*fields["notes"], dropped)})
