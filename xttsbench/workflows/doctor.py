"""``xttsbench doctor``: reads the machine, has TensorFlow look at it from a child, and has the checks judge both."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from xttsbench.analysis.readings import measured_span
from xttsbench.doctor.registry import examine
from xttsbench.errors import InvalidInputError
from xttsbench.execution import journal
from xttsbench.execution.sight import PATIENCE_S, ask_driver, look
from xttsbench.probes import machine as probes
from xttsbench.probes.machine import storage
from xttsbench.records.machine import Examination, Machine, Storage
from xttsbench.records.trial import MAIN_KINDS, TrialRecord
from xttsbench.xtts.data.make import cache_directory

WINDOW_S: Final = 1.0
"""How long the neighbours are watched: a hundred ticks of the kernel's counters."""
BUSY_SHARE, LONGER_S = 0.05, 3.0
"""Where they take more than this of the processors, they are watched again, for longer: what counts is who stays."""


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        data: directory whose files are read; ``None`` reads none.
        run: a run of the same data, which says how fast they are needed.
        patience_s: seconds until a child that looks at TensorFlow is killed.
        command: the command line, for the record.
    """

    data: Path | None = None
    run: Path | None = None
    patience_s: float = PATIENCE_S
    command: str = "xttsbench doctor"


def doctor(request: Request) -> Examination:
    """Read everything, then judge it.

    Raises:
        InvalidInputError: the data or the run cannot be read, or the run does not say what it needs.
    """
    needed = _needed_bytes_per_s(request.run) if request.run is not None else None
    software, driver = probes.software(), ask_driver()
    # Before anything of ours computes, so that what is busy is others'.
    processors, swapped = probes.processors_and_swap(WINDOW_S)
    if (processors.steal_share or 0.0) + (processors.foreign_share or 0.0) > BUSY_SHARE:
        processors, swapped = probes.processors_and_swap(LONGER_S)  # whether they stay
    memory = probes.memory(swapped)
    read: Storage | None = None
    if request.data is not None:
        read = storage(request.data).model_copy(update={"needed_bytes_per_s": needed})
    machine = Machine(
        software=software,
        driver=driver,
        processors=processors,
        memory=memory,
        storage=read,
        places=(
            probes.place("runs", Path("reports")),
            probes.place("made data", cache_directory()),
            probes.place("temporary files", Path(tempfile.gettempdir())),
        ),
        sight=look(request.patience_s),
    )
    return Examination(
        command=request.command,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        checks=examine(machine),
        machine=machine,
    )


def _needed_bytes_per_s(run: Path) -> float:
    """Bytes that the steps of a run read, for each second that they would take if they never waited."""
    found = [rate for trial in journal.read(run) if (rate := _rate(trial)) is not None]
    if not found:
        raise InvalidInputError(
            f"--run {str(run)!r}: no trial of it has a step and reads files; name a run of diagnose with the same "
            "data, or leave --run out."
        )
    return max(found)


def _rate(trial: TrialRecord) -> float | None:
    span, host, segment = measured_span(trial), trial.readings.host, trial.segment("as_is")
    if trial.spec.rung not in MAIN_KINDS or span is None or host is None or segment is None:
        return None
    read = span.growth(host, "read_call_bytes")
    alone = trial.segment("step_only") or segment
    step_s = float(np.mean(alone.columns["step_ns"][alone.warmup_steps :] or (0,))) / 1e9
    return read / span.steps / step_s if read and step_s > 0 else None
