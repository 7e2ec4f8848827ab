"""The user's Python files that the trials of a run load, as they were when the first of them did.

A file that is saved meanwhile would put two versions into one verdict. Size and time of a file are looked at first, its
content only where they are others.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from xttsbench.errors import TargetError
from xttsbench.records.trial import TrialRecord
from xttsbench.targets.spec import parse_target

_LOADS_S: Final = 10.0  # a script has imported its own modules after so long; a callable after its set-up


class Sources:
    """The files, from the beginning of a session on."""

    def __init__(self) -> None:
        self._began_ns = time.time_ns()
        self._known: dict[str, tuple[tuple[int, int], str]] = {}
        self._late: str | None = None  # saved before anybody knew that it is one of them

    def begin(self, target: str) -> None:
        """Know the file of a target before a trial loads it, where its name is that of a file."""
        try:
            spec = parse_target(target, scripts=True)
        except TargetError:  # the trial says so
            return
        if spec.kind != "module":
            self._know([spec.place])

    def changed(self) -> str | None:
        """The file that is another one than it was, or ``None``."""
        for path, (signature, digest) in self._known.items():
            try:
                now = _signature(path)
                if now != signature and _digest(path) != digest:
                    return path
                self._known[path] = now, digest
            except OSError:  # moved away or removed
                return path
        return self._late

    def judged(self, record: TrialRecord) -> TrialRecord:
        """The record, with the file that was saved before the trial can have loaded it; its files are known then."""
        new = [path for path in record.files if os.path.realpath(path) not in self._known and os.path.exists(path)]
        self._know(new)
        self._late = self._late or next((path for path in new if _signature(path)[0] > self._began_ns), None)
        path = self.changed()
        if path is None or record.status == "interrupted":
            return record
        loaded_s = datetime.fromisoformat(record.started_utc).timestamp() + (record.setup_s or _LOADS_S)
        if os.path.exists(path) and _signature(path)[0] / 1e9 > loaded_s:
            return record
        return record.model_copy(update={"status": "interrupted", "cause": said(path), "changed_file": path})

    def _know(self, paths: Iterable[str]) -> None:
        for path in map(os.path.realpath, paths):
            if path not in self._known:
                self._known[path] = _signature(path), _digest(path)


def said(path: str) -> str:
    """The sentence by which the user learns that a run has stopped for it."""
    return (
        f"{path} was saved while the run went on, so it stopped: the report is of the version before, and no patch "
        "was written. Run the command again to measure the file as it is now."
    )


def _signature(path: str) -> tuple[int, int]:
    info = os.stat(path)
    return info.st_mtime_ns, info.st_size


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
