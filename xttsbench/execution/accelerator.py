"""``--accelerator``: the real device, or an emulated one given as milliseconds or as a file of recorded step times.

``gpu-or-emulated:...`` is for scenarios that judge the input side: the GPU of whoever has one, and for the others a
wait in its place, since behind a processor that also has to make the batches nothing starves.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.execution.journal import TRIALS, read_trials
from xttsbench.inputs import read_text
from xttsbench.probes.nvml import open_gpus
from xttsbench.records.plan import Accelerator

_MOST_MS: Final = 600_000.0
_MOST_TIMES: Final = 20_000
_FORMS: Final = "real, emulated:MS (milliseconds a step), emulated:FILE (recorded step times) or gpu-or-emulated:..."
_GPU_OR: Final = "gpu-or-"
_MARKS: Final = dict.fromkeys(map(ord, "[],"), " ")  # of a JSON list


def parse_accelerator(text: str, *, beside: Path | None = None) -> Accelerator:
    """Read the option.

    A file holds milliseconds: one number a line, or a JSON list of them; or it is a run's directory (or its
    ``trials.jsonl``), whose steps alone are replayed.

    Args:
        text: as it was written.
        beside: where else a file may lie that is not found from the working directory: beside a scenario.

    Raises:
        UsageError: none of the forms.
        InvalidInputError: the file holds something else.
    """
    if text.startswith(_GPU_OR):
        emulated = parse_accelerator(text.removeprefix(_GPU_OR), beside=beside)  # checked with a GPU too
        probe, _ = open_gpus()
        if probe is None:
            return emulated
        probe.close()
        return Accelerator()
    if text == "real":
        return Accelerator()
    kind, separator, value = text.partition(":")
    if kind != "emulated" or not separator or not value:
        raise UsageError(f"--accelerator {text!r}: use {_FORMS}.")
    try:
        milliseconds = float(value)
    except ValueError:
        return _recorded(value, beside)
    if not (math.isfinite(milliseconds) and 0 < milliseconds <= _MOST_MS):
        raise UsageError(f"--accelerator {text!r}: the milliseconds must be above 0 and at most {_MOST_MS:g}.")
    return Accelerator(
        kind="emulated", label=f"emulated accelerator, {milliseconds:g} ms a step", step_times_ms=(milliseconds,)
    )


def _recorded(value: str, beside: Path | None) -> Accelerator:
    path = Path(os.path.expanduser(value))  # os.path: an unknown user or a name too long is no file, not an error
    if beside is not None and not os.path.exists(path) and os.path.exists(beside / path):
        path = beside / path
    if not os.path.exists(path):
        raise UsageError(f"--accelerator emulated:{value}: {value!r} is neither a number nor a file; use {_FORMS}.")
    times = _from_run(path) if path.is_dir() or path.name == TRIALS else _from_numbers(path)
    good = [time for time in times if math.isfinite(time) and 0 < time <= _MOST_MS]
    if not good or len(good) < len(times):
        bad = next((time for time in times if time not in good), None)
        found = f"it holds {bad!r}" if bad is not None else "it holds none"
        raise InvalidInputError(
            f"{path}: step times must be milliseconds above 0 and at most {_MOST_MS:g}, and {found}."
        )
    good = good[:_MOST_TIMES]
    return Accelerator(
        kind="emulated",
        label=f"emulated accelerator, {len(good)} recorded step times, mean {sum(good) / len(good):.3g} ms",
        step_times_ms=tuple(good),
        source=value,
    )


def _from_run(path: Path) -> list[float]:
    trials = read_trials(path if path.is_dir() else path.parent)
    segments = [segment for trial in trials if (segment := trial.segment("step_only")) is not None]
    return [ns / 1e6 for segment in segments for ns in segment.columns.get("step_ns", ())[segment.warmup_steps :]]


def _from_numbers(path: Path) -> list[float]:
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"{path} cannot be read as text: {reason}.") from error
    times, listed = [], text.lstrip().startswith("[")
    for number, line in enumerate(text.splitlines(), start=1):
        cell = line.partition("#")[0].strip(" \t,;")
        for word in cell.translate(_MARKS).split() if listed else [cell] * bool(cell):
            try:
                times.append(float(word))
            except ValueError:
                raise InvalidInputError(
                    f"{path}, line {number}: {word[:40]!r} is not a number of milliseconds; write one number a line."
                ) from None
    return times
