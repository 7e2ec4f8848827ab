"""A run's samples for other programs: a time line in Chrome's trace format, which Perfetto opens, and a table as CSV.

The clock of steps and readings is one for all processes of a machine, so all trials of a run stand on one time line,
each as a process with its steps, what was traced and compiled, its turns and its processors.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from xttsbench.records.rows import COLUMNS, absent
from xttsbench.records.trial import Segment, TrialRecord
from xttsbench.reporting.text import plain

_STEPS, _COMPILATIONS, _TURNS = 1, 2, 3
_THREADS: Final = {_STEPS: "steps", _COMPILATIONS: "tracing and compilation", _TURNS: "turns"}
_PARTS: Final = ("device_ns", "emulated_ns", "sync_ns", "gc_ns", "cpu_ns")
_COUNTS: Final = ("round", "epoch", "batch_size", "shape_id")
_FORMULA: Final = ("=", "+", "-", "@")
"""How a cell begins that a spreadsheet would compute."""

Event = dict[str, Any]


def perfetto(trials: Sequence[TrialRecord]) -> str:
    """Every step of every trial as JSON in Chrome's trace format; times in microseconds from the first of all.

    A step is its wait and its work, and what the loop did since the step before. Of tracing and compilation only the
    duration is known, and the step that they fell into: they begin with it here.
    """
    events = list(_events(trials))
    first = min((event["ts"] for event in events if "ts" in event), default=0)
    for event in events:
        if "ts" in event:
            event["ts"] = (event["ts"] - first) / 1e3
        if "dur" in event:
            event["dur"] /= 1e3
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, ensure_ascii=False) + "\n"


def table(trials: Sequence[TrialRecord]) -> str:
    """Every step of every trial as a row of CSV, with the columns of the journal and their units."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("trial", "kind", "configuration", "segment", "step", "warm_up", *COLUMNS))
    for trial in trials:
        spec = trial.spec
        names = _cell(spec.trial_id), spec.rung, _cell(spec.arm or spec.fix or "")
        for segment in trial.segments:
            for step, row in enumerate(_rows(segment)):
                writer.writerow(
                    (*names, segment.name, step, int(step < segment.warmup_steps), *(row[name] for name in COLUMNS))
                )
    return text.getvalue()


def _events(trials: Iterable[TrialRecord]) -> Iterator[Event]:
    for process, trial in enumerate(trials, start=1):
        made = [*_steps(trial, process), *_turns(trial, process), *_readings(trial, process)]
        if not made:
            continue
        yield _named("process_name", process, 0, plain(f"{trial.spec.trial_id} ({trial.spec.rung})"))
        yield from (_named("thread_name", process, thread, name) for thread, name in _THREADS.items())
        yield from made


def _steps(trial: TrialRecord, process: int) -> Iterator[Event]:
    for segment in trial.segments:
        for step, row in enumerate(_rows(segment)):
            start, wait, work = row["start_ns"], row["wait_ns"], row["step_ns"]
            begun = start + wait + work - row["wall_ns"] + row["pause_ns"]
            about = {"segment": segment.name, "step": step, "warm_up": step < segment.warmup_steps}
            if step and begun < start:
                yield _slice("between steps", process, _STEPS, begun, start - begun, about)
            if wait:
                yield _slice("wait for input", process, _STEPS, start, wait, about)
            if work:
                numbers = {name: row[name] for name in (*_PARTS, *_COUNTS) if row[name]}
                yield _slice("step", process, _STEPS, start + wait, work, about | numbers)
            at = start + wait
            for name, part, count in (("trace", "trace_ns", "traces"), ("XLA compile", "xla_ns", "xla_compiles")):
                if row[part]:
                    yield _slice(name, process, _COMPILATIONS, at, row[part], about | {count: row[count]})
                    at += row[part]


def _turns(trial: TrialRecord, process: int) -> Iterator[Event]:
    for turn in trial.rounds:
        yield _slice(f"round {turn.round}", process, _TURNS, turn.start_ns, turn.end_ns - turn.start_ns, {})


def _readings(trial: TrialRecord, process: int) -> Iterator[Event]:
    host = trial.readings.host
    if host is not None:
        for before, after, used, now in zip(host.t_ns, host.t_ns[1:], host.cpu_s, host.cpu_s[1:], strict=False):
            if after > before:
                yield _counter("processors in use", process, before, (now - used) / (after - before) * 1e9)
    for gpu in trial.readings.gpus:
        for when, share in zip(gpu.utilization_t_ns, gpu.utilization, strict=False):
            yield _counter(f"GPU {gpu.index} utilization", process, when, share)


def _rows(segment: Segment) -> Iterator[dict[str, int]]:
    """The rows of a segment; a column that its journal does not have holds what says that nothing is known."""
    columns = {name: segment.columns.get(name) or (absent(name),) * segment.steps for name in COLUMNS}
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _slice(name: str, process: int, thread: int, start_ns: int, duration_ns: int, about: dict[str, Any]) -> Event:
    return {"name": name, "ph": "X", "pid": process, "tid": thread, "ts": start_ns, "dur": duration_ns, "args": about}


def _counter(name: str, process: int, at_ns: int, value: float) -> Event:
    return {"name": name, "ph": "C", "pid": process, "tid": 0, "ts": at_ns, "args": {"value": round(value, 4)}}


def _named(kind: str, process: int, thread: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _cell(text: str) -> str:
    """A name of the user's as a cell that stays text."""
    shown = plain(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
