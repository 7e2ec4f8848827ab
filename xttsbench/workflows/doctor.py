"""``xttsbench doctor``: reads the machine, has TensorFlow look at it from a child, and has the checks judge both.

The NVIDIA driver is asked from a child as well; how far a child came is said: a crash or a hang is a finding.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from xttsbench.doctor import examine
from xttsbench.errors import HelperError
from xttsbench.execution.child import child_environment, start
from xttsbench.probes import machine as probes
from xttsbench.processes import ends_within, kill_group, signal_name
from xttsbench.records.machine import Driver, Examination, Machine, Sight
from xttsbench.xtts.data.make import cache_directory

PATIENCE_S: Final = 180.0
"""As long as a helper may take to start: TensorFlow is imported in 4-7 s, from a cold network disk in a minute."""
WINDOW_S: Final = 1.0
"""Seconds for which the neighbours are watched: a hundred ticks of the kernel's counters."""
BUSY_SHARE, LONGER_S = 0.05, 3.0
"""Share of the processors above which neighbours are watched again, and for how many seconds: only lasting load counts.
"""


def doctor(patience_s: float = PATIENCE_S, command: str = "xttsbench doctor") -> Examination:
    """Read everything, then judge it.

    A child that looks at TensorFlow is killed after ``patience_s`` seconds; ``command`` is for the record.
    """
    software, driver = probes.software(), ask_driver()
    # Before anything of ours computes, so that what is busy is others'.
    processors, swapped = probes.processors_and_swap(WINDOW_S)
    if (processors.steal_share or 0.0) + (processors.foreign_share or 0.0) > BUSY_SHARE:
        processors, swapped = probes.processors_and_swap(LONGER_S)  # whether they stay
    machine = Machine(
        software=software,
        driver=driver,
        processors=processors,
        memory=probes.memory(swapped),
        places=(
            probes.place("runs", Path("reports")),
            probes.place("made data", cache_directory()),
            probes.place("temporary files", Path(tempfile.gettempdir())),
        ),
        sight=look(patience_s),
    )
    return Examination(
        command=command,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        checks=examine(machine),
        machine=machine,
    )


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
    with tempfile.NamedTemporaryFile() as words, tempfile.TemporaryFile() as told:
        try:
            child = start(
                "xttsbench.worker.sight",
                told.fileno(),
                str(os.getpid()),
                what,
                what="The process that looks",
                environment=environment,
                log=Path(words.name),
                start_new_session=True,
            )
        except HelperError as error:
            return {}, f"not to be started: {error.__cause__}", ""
        try:
            busy = not ends_within(child.pid, patience_s)
        finally:
            kill_group(child.pid)  # it has not been waited for
            # One that the kernel holds inside of a driver cannot be killed, and is not waited for.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_KILLED_S)
        told.seek(0)
        known: dict[str, Any] = {}
        for line in told:
            known |= json.loads(line) if line.endswith(b"\n") else {}  # else it was killed meanwhile
        ended = f"still busy after {patience_s:g} s" if busy else _named(child.returncode)
        return known, None if known.get("stage") == "done" else ended, _printed(words)


def _named(code: int | None) -> str:
    """Phrase for a process's end, by its exit code (negative: by that signal; ``None``: the kernel cannot end it)."""
    if code is None:
        return "not to be killed"
    if code >= 0:
        return f"ended with exit code {code}"
    return f"killed by {signal_name(-code)}"


def _printed(words: IO[bytes]) -> str:
    words.seek(max(words.seek(0, os.SEEK_END) - _WORDS_BYTES, 0))
    return words.read().decode("utf-8", "replace")


def _last_words(printed: str) -> str:
    """The last lines that are no notice of TensorFlow's."""
    lines = (line.strip() for line in printed.splitlines())
    telling = [line for line in lines if line and not _NOTICE.match(line)]
    return "\n".join(telling[-_LAST_LINES:])
