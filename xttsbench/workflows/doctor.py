"""``xttsbench doctor``: reads the machine, has TensorFlow look at it from a child, and has the checks judge both.

The NVIDIA driver is asked from a child as well; how far a child came is said: a crash or a hang is a finding.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from xttsbench.analysis.readings import measured_span
from xttsbench.doctor import examine
from xttsbench.errors import InvalidInputError
from xttsbench.execution.child import child_environment
from xttsbench.execution.journal import read_trials
from xttsbench.probes import machine as probes
from xttsbench.probes.machine import storage
from xttsbench.processes import ends_within, kill_group, readable
from xttsbench.records.machine import Driver, Examination, Machine, Sight
from xttsbench.records.trial import MAIN_KINDS, TrialRecord
from xttsbench.xtts.data.make import cache_directory

PATIENCE_S: Final = 180.0
"""As long as a helper may take to start: TensorFlow is imported in 4-7 s, from a cold network disk in a minute."""
WINDOW_S: Final = 1.0
"""Seconds for which the neighbours are watched: a hundred ticks of the kernel's counters."""
BUSY_SHARE, LONGER_S = 0.05, 3.0
"""Share of the processors above which neighbours are watched again, and for how many seconds: only lasting load counts.
"""


@dataclass(frozen=True)
class Request:
    """Options of the user.

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
    data = request.data
    read = storage(data).model_copy(update={"needed_bytes_per_s": needed}) if data is not None else None
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
    found = [rate for trial in read_trials(run) if (rate := _rate(trial)) is not None]
    if not found:
        raise InvalidInputError(
            f"--run {str(run)!r}: no trial of it has a step and reads files; name a run of diagnose with the same "
            "data, or leave --run out."
        )
    return max(found)


def _rate(trial: TrialRecord) -> float | None:
    span, host, segment = measured_span(trial), trial.readings.host, trial.segment("as_is")
    if trial.spec.kind not in MAIN_KINDS or span is None or host is None or segment is None:
        return None
    read = span.growth(host, "read_call_bytes")
    alone = trial.segment("step_only") or segment
    step_s = float(np.mean(alone.columns["step_ns"][alone.warmup_steps :] or (0,))) / 1e9
    return read / span.steps / step_s if read and step_s > 0 else None


DRIVER_PATIENCE_S: Final = 20.0
"""A driver that nobody holds open loads its firmware anew, which takes some seconds for each GPU."""
_KILLED_S: Final = 5.0
_LOADING: Final = "dso_loader=2,cuda_diagnostics=1"
"""TensorFlow's source files that say which CUDA library they could not load, and only where they are asked to."""
_WORDS_BYTES: Final = 1 << 20
_LAST_LINES: Final = 4
_MISSING: Final = re.compile(r"Could not load dynamic library '([^']+)'; dlerror: ([^;\n]*)")
_OTHERS: Final = ("libcuda.", "libnvidia-ml.", "libnvinfer")
"""Libraries that come with the driver, which other readings tell of, and those of TensorRT, which is an extra."""
_INIT: Final = re.compile(r"failed call to cuInit: (?:INTERNAL: )?(?:CUDA error: )?([^\n]+)")
_NOTICE: Final = re.compile(
    r"\d{4}-\d\d-\d\d .*: [IWE] |[IWE]\d{4} |WARNING: All log messages|To enable the following instructions"
)


def look(patience_s: float = PATIENCE_S) -> Sight:
    """Looks at TensorFlow's view of the machine, in the environment that this process has.

    A child that is not done after ``patience_s`` seconds is killed.
    """
    known, ended, printed = _ask("tensorflow", patience_s)
    complaint = _INIT.search(printed)
    # What TensorFlow tried itself comes first; it tries nothing where it meets no GPU.
    tried = {name: why.strip() for name, why in _MISSING.findall(printed) if not name.startswith(_OTHERS)}
    return Sight(
        **known | {"missing": known.get("missing", {}) | tried},
        ended=ended,
        last_words=_last_words(printed) if ended else "",
        complaint=complaint[1].strip() if complaint else None,
    )


def ask_driver(patience_s: float = DRIVER_PATIENCE_S) -> Driver:
    """Asks the NVIDIA driver; where that ends badly, the reason for having no GPU is the child's end.

    A child that is not done after ``patience_s`` seconds is killed.
    """
    known, ended, _ = _ask("driver", patience_s)
    if ended is not None:
        return Driver(reason=f"the process that asked the NVIDIA driver was {ended}", ill=True)
    return Driver.model_validate(known["driver"])


def _ask(what: str, patience_s: float) -> tuple[dict[str, Any], str | None, str]:
    """Have a child say what it knows: that, how it ended where it did not say all, and what it printed."""
    environment = child_environment({"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": _LOADING}, has_gpu=True)
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as words, os.fdopen(reading, "rb", buffering=0) as pipe:
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "xttsbench.worker.sight", str(writing), what],
                pass_fds=[writing],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            return {}, f"not to be started: {error.strerror or error}", ""
        finally:
            os.close(writing)
        try:
            known = _listen(pipe, time.monotonic() + patience_s)
            done = known.get("stage") == "done"
            busy = not done and not ends_within(child.pid, 0.5)
        finally:
            kill_group(child.pid)  # it has not been waited for
            # One that the kernel holds inside of a driver cannot be killed, and is not waited for.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_KILLED_S)
        ended = f"still busy after {patience_s:g} s" if busy else _named(child.returncode)
        return known, None if done else ended, _printed(words)


def _listen(pipe: IO[bytes], deadline_s: float) -> dict[str, Any]:
    """Messages of the child until it closed its end, was done, or time was up."""
    known: dict[str, Any] = {}
    buffer = b""
    while known.get("stage") != "done" and (left_s := deadline_s - time.monotonic()) > 0:
        if not readable([pipe], left_s):
            break
        if not (piece := pipe.read(1 << 16)):
            break
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in lines:
            known |= json.loads(line)
    return known


def _named(code: int | None) -> str:
    """Phrase for a process's end, by its exit code (negative: by that signal; ``None``: the kernel cannot end it)."""
    if code is None:
        return "not to be killed"
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _printed(words: IO[bytes]) -> str:
    words.seek(max(words.seek(0, os.SEEK_END) - _WORDS_BYTES, 0))
    return words.read().decode("utf-8", "replace")


def _last_words(printed: str) -> str:
    """The last lines that are no notice of TensorFlow's."""
    lines = (line.strip() for line in printed.splitlines())
    telling = [line for line in lines if line and not _NOTICE.match(line)]
    return "\n".join(telling[-_LAST_LINES:])
