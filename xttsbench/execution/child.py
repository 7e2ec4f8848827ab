"""A process that works for this one: its environment, the memory for its rows, and its record while that comes in."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import site
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from xttsbench.records.readings import Readings
from xttsbench.records.rows import ROWS, RowMemory
from xttsbench.records.trial import Segment, TrialError, TrialRecord, TrialSpec, TrialStatus


def child_environment(more: Mapping[str, str] | None = None, *, has_gpu: bool, quiet: bool = True) -> dict[str, str]:
    """This process's variables for a child: quiet, and able to find this package.

    Args:
        more: variables on top of all others.
        has_gpu: whether the machine has an NVIDIA driver.
        quiet: without TensorFlow's notices, unless the user asks for them.
    """
    environ = dict(os.environ)
    if quiet:
        # TensorFlow's notices would bury the report; whoever wants them sets the variable. Without an NVIDIA driver
        # its complaint about that is logged as an error, in every trial, and says nothing that the report does not.
        environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if has_gpu else "3")
    if (root := _checkout()) is not None:
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), root)))
    return environ | dict(more or {})


def _checkout() -> str | None:
    """The folder that holds this package, where Python would not find it by itself: a checkout run by ``cli.py``."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return None if root in site.getsitepackages() else root


class SharedRows:
    """A file in memory to be handed over by its descriptor, which is open within the context manager.

    Its size is sealed, so that nothing the other side does can take memory away from under this one.

    Args:
        rows: of each segment that are kept.

    Attributes:
        memory: its rows, as long as this process wants to read them.
    """

    def __init__(self, rows: int = ROWS) -> None:
        size = RowMemory.size_bytes(rows)
        self._descriptor = os.memfd_create("xttsbench-rows", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, size)
        with contextlib.suppress(OSError):  # some container layers know no seals
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.memory = RowMemory(mmap.mmap(self._descriptor, size))

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def __enter__(self) -> SharedRows:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class Collected:
    """Builds a :class:`TrialRecord` from the child's messages and rows.

    Args:
        spec: what the child was told.
        rows: where the child writes its rows; by default memory of this process, for a trial in this one.
    """

    def __init__(self, spec: TrialSpec, rows: RowMemory | None = None) -> None:
        self.rows = rows or RowMemory(mmap.mmap(-1, RowMemory.size_bytes()))
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
