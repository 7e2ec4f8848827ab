"""Scalars of a watched run for TensorBoard, written without TensorFlow."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from xttsbench.errors import UsageError
from xttsbench.records.watch import WatchSummary

_VERSION = "brain.Event:2"


class Scalars:
    """An event file.

    Args:
        directory: made where it is missing.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = Event
        self._writer: Any = RecordWriter
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.xttsbench"
        self._path = directory / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._append(Event(wall_time=time.time(), file_version=_VERSION))
        except OSError as error:
            raise UsageError(
                f"--tensorboard {str(directory)!r} cannot be written: {error.strerror or error}. Name another."
            ) from error

    def write(self, summary: WatchSummary) -> None:
        """Add what is known by now, at the number of steps so far; nothing before the first."""
        if not summary.steps or not summary.stretches:
            return
        newest = summary.stretches[-1]
        values: dict[str, float] = {
            "step_time_s": newest.wall_s / newest.steps,
            "input_wait_fraction": newest.wait_s / max(newest.wall_s, 1e-12),
            "stalls": float(summary.stalls.count),
            "stalled_share": summary.stalls.share_of_time,
            "traces": float(summary.traces),
        }
        if newest.rss_bytes is not None:
            values["resident_bytes"] = float(newest.rss_bytes)
        if summary.attribution_s is not None and summary.step_time_s is not None:
            for name, seconds in summary.attribution_s:
                values[f"share/{name}"] = seconds / max(summary.step_time_s.estimate, 1e-12)
        event = self._event(wall_time=time.time(), step=summary.steps)
        for name, value in values.items():
            event.summary.value.add(tag=f"xttsbench/{name}", simple_value=value)
        with suppress(OSError):
            self._append(event)

    def _append(self, event: Any) -> None:
        with self._path.open("ab") as file:
            self._writer(file).write(event.SerializeToString())
