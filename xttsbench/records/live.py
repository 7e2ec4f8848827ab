"""A watched run while it goes on: what it says of itself in its directory, and where running ones are found.

A watched process (``xttsbench watch``, :class:`xttsbench.keras.Watch`, :func:`xttsbench.watched`) keeps
:data:`LIVE_FILE` in its run directory, replaced whole at most once a second. As long as it runs,
``<pid>.json`` in :func:`running_directory` says where that directory is, so that ``xttsbench monitor`` can show its
steps beside the machine.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Final, Literal

import platformdirs

from xttsbench.records.base import SCHEMA_VERSION, Record

LIVE_FILE: Final = "live.json"
"""Name of a :class:`LiveRun` in its run directory."""
_VARIABLE: Final = "XTTSBENCH_RUNTIME"


class RecentSteps(Record):
    """The newest steps of a watched run: a few seconds of them, warm-up included."""

    steps: int
    """How many they are, 1 or more."""
    step_time_s: float
    """Their mean, from the end of a step to the end of the next one."""
    input_wait_fraction: float
    """Share of that time that was spent waiting for input, 0..1."""


class LiveRun(Record):
    """A watched run as it was when this was written."""

    schema_version: Literal[2] = SCHEMA_VERSION
    pid: int
    """Of the watched process."""
    script: str
    """The script and its arguments as a shell would take them, or what stands for them (``fit``, a loop)."""
    started_utc: str
    """ISO 8601, as all times of records."""
    updated_utc: str
    """When this was written; a run whose process is gone and that is not over was killed."""
    over: bool
    """The run has ended, and nothing here changes any more."""
    steps: int
    """Steps so far, over all loops that train."""
    recent: RecentSteps | None = None
    """``None`` where no step has ended yet, or none in the last few seconds."""


class RunningRun(Record):
    """What the file of a running watched process says: ``<pid>.json`` in :func:`running_directory`."""

    run: str
    """Absolute path of its run directory."""


def running_directory() -> Path:
    """Return the directory of the files of running watched processes; its mode is 0700, it may not exist yet."""
    with warnings.catch_warnings():  # where the system names no directory, the one that stands in for it will do
        warnings.simplefilter("ignore")
        base = os.environ.get(_VARIABLE) or platformdirs.user_runtime_path("xttsbench")
    return Path(base).absolute() / "watched"
