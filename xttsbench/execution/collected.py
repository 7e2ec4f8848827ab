"""A trial's record while it comes in, message by message, so that what arrived outlives the trial's end."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from xttsbench.records.readings import Readings
from xttsbench.records.trial import Segment, TrialError, TrialRecord, TrialSpec, TrialStatus


class Collected:
    """Builds a :class:`TrialRecord` from the child's messages.

    Args:
        spec: what the child was told.
        most_rows: rows of a segment that are kept, the newest; ``None`` keeps all.
    """

    def __init__(self, spec: TrialSpec, *, most_rows: int | None = None) -> None:
        self._spec = spec
        self._most_rows = most_rows
        self._columns: dict[str, dict[str, list[int]]] = {}
        self._warmup: dict[str, int] = {}
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
        """Steps that have arrived, over all segments."""
        return sum(len(columns.get("wall_ns", ())) for columns in self._columns.values())

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of the child (see :class:`xttsbench.worker.channel.Channel`)."""
        if "phase" in message:
            self.phase = message["phase"]
        elif "rows" in message:
            columns = self._columns.setdefault(message["rows"], {})
            for name, values in message["columns"].items():
                kept = columns.setdefault(name, [])
                kept.extend(values)
                if self._most_rows is not None and len(kept) > self._most_rows:
                    del kept[: -self._most_rows]
                    self._notes.append(f"of the segment {message['rows']} the last {self._most_rows} rows are kept")
        elif "warmup" in message:
            self._warmup[message["segment"]] = message["warmup"]
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
        segments = [
            Segment(
                name=name,
                columns={column: tuple(values) for column, values in columns.items()},
                warmup_steps=min(self._warmup.get(name, 0), len(columns.get("wall_ns", ()))),
            )
            for name, columns in self._columns.items()
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
            "notes": tuple(dict.fromkeys(self._notes)),
        }
        try:
            return TrialRecord.model_validate(fields | self._parts)
        except ValidationError as error:
            # A part that does not fit must cost neither the samples nor the other parts.
            unfit = {str(problem["loc"][0]) for problem in error.errors()}
            fit = {name: value for name, value in self._parts.items() if name not in unfit}
            dropped = f"dropped, since they do not fit the record: {', '.join(sorted(unfit))}"
            return TrialRecord.model_validate(fields | fit | {"notes": (*fields["notes"], dropped)})
