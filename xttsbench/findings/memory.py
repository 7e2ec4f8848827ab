"""The rules on the machine's memory: `memory-leak`, and `cold-storage`, where the page cache lacks the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from xttsbench.analysis.readings import Span, measured_span
from xttsbench.analysis.variation import trend
from xttsbench.evidence import Evidence
from xttsbench.evidence.pipeline import memory_bytes
from xttsbench.evidence.step import heaviest_line, place_of
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.readings import HostReadings
from xttsbench.records.report import Finding
from xttsbench.records.trial import TrialRecord

_MIN_SAMPLES: Final = 8
_STRETCHES: Final = 8
_MIN_GROWTH_BYTES: Final = 8 << 20
_MIN_GROWTH_SHARE: Final = 0.01  # Of the resident memory: an allocator's own pools grow by less for a while
_WARMING_S: Final = 10.0
_WARMING_SHARE: Final = 0.2
"""Least growth of memory within so few seconds: the allocators of TensorFlow's threads add a tenth meanwhile."""
_UNKNOWN_BUFFER: Final = 16  # Elements that a tuned buffer is taken to hold where its size was not read
_SOON_S: Final = 3600.0
_TRACES: Final = (
    "Each trace of a tf.function is kept: pass tensors instead of Python values, and make the function once."
)
_KEEPING: Final = "EagerPyFunc"
_PY_FUNCTION: Final = (
    "tf.py_function keeps memory of each call that is made op by op, and while a GradientTape records the tensors of "
    "the call, until a gradient goes through it: so TensorFlow does it (seen up to 2.21). Call tf.numpy_function(f, "
    "inputs, types) in its place, which gives f arrays; or make the step a tf.function, where one call's are kept."
)


@dataclass(frozen=True)
class _Growth:
    bytes_per_step: float
    bytes_per_s: float
    grown_bytes: float
    last_bytes: float
    steps: int
    epochs: int


@rule(
    "memory-leak",
    threshold="8 MiB and 1 % grown (20 % where less than 10 s were measured and the step calls no tf.py_function), and "
    "still at the end, beyond what buffers of the pipeline can hold; critical where the memory is full within an hour; "
    "never a bottleneck",
    remedy="Look for what each step leaves behind: losses kept in a list as tensors (keep float(loss) every so "
    "many steps), functions, optimizers or datasets made inside the loop, a cache in memory of a data set that "
    "never ends.",
    false_alarms="a buffer or cache that still fills and whose size was not read",
)
def memory_leak(evidence: Evidence) -> Findings:
    """Memory that grows from step to step, to the end, in every process that was read often enough."""
    calls = evidence.anatomy.ops.get(_KEEPING, 0.0) if evidence.anatomy is not None else 0.0
    measured = [one for trial in evidence.ladder if (one := _growth(trial, known=calls > 0)) is not None]
    growths = [one for one in measured if isinstance(one, _Growth)]
    if not growths or len(growths) < len(measured):
        return
    growth = min(growths, key=lambda one: one.bytes_per_step)
    if _fills(evidence, growth):
        return
    room, of = _room_bytes(evidence)
    steps_left = (room - growth.last_bytes) / growth.bytes_per_step if room else None
    seconds_left = (room - growth.last_bytes) / growth.bytes_per_s if room else None
    retraced = sum(trace.reason != "first" for trace in evidence.traces)
    ends = f"; the {of} is full after {max(steps_left, 0):,.0f} more steps" if steps_left is not None else ""
    remedy = _PY_FUNCTION if calls else _TRACES if retraced >= growth.steps / 10 else None
    yield memory_leak.finding(
        f"memory grows by {growth.bytes_per_step / 1e6:.2g} MB a step"
        f"{', which tf.py_function keeps,' if calls else ''} and does not stop{ends}",
        {
            "bytes_per_step": growth.bytes_per_step,
            "grown_bytes": growth.grown_bytes,
            "steps": growth.steps,
            "resident_bytes": growth.last_bytes,
            "processes": len(growths),
            "steps_left": steps_left,
            "seconds_left": seconds_left,
            "traces_again": retraced or None,
            "py_functions_per_step": calls or None,
        },
        remedy,
        severity="critical" if seconds_left is not None and seconds_left < _SOON_S else "warning",
        at=place_of(heaviest_line(evidence, ("python_function", "tensorflow"))) if calls else None,
    )


def _growth(trial: TrialRecord, *, known: bool) -> _Growth | bool | None:
    """Growth of memory in a trial; ``False`` where it did not grow, ``None`` where it was not read often enough.

    ``known``: the step calls what is known to keep memory, so that a little of it is no allocator's.
    """
    span, host = measured_span(trial), trial.readings.host
    if span is None or host is None or len(host.rss_bytes) != len(host.t_ns):
        return None
    where = span.inside(host.t_ns)
    if len(where) < _MIN_SAMPLES:
        return None
    resident = np.asarray(host.rss_bytes, dtype=np.float64)[where]
    at_s = np.asarray(host.t_ns, dtype=np.float64)[where] / 1e9
    levels = np.array([np.median(part) for part in np.array_split(resident, _STRETCHES)])
    rises, grown = np.diff(levels), float(levels[-1] - levels[0])
    found = trend(resident, at_s - at_s[0])
    share = _WARMING_SHARE if span.seconds < _WARMING_S and not known else _MIN_GROWTH_SHARE
    if found is None or grown < max(_MIN_GROWTH_BYTES, share * float(resident[-1])):
        return False
    # One jump, or a growth that levels off, is something that filled up.
    goes_on = float(levels[-1] - levels[_STRETCHES // 2]) >= 0.3 * grown and float(rises[-2:].sum()) >= 0.1 * grown
    steady = int((rises > 0).sum()) >= _STRETCHES - 2 and float(rises.max()) <= 0.5 * grown
    if not goes_on or not steady or found.tau < 0.7:
        return False
    per_step = found.slope * span.seconds / span.steps
    return _Growth(per_step, found.slope, grown, float(resident[-1]), span.steps, span.epochs)


def _fills(evidence: Evidence, growth: _Growth) -> bool:
    """Whether the pipeline's own buffers or a cache in its first pass can hold what was added."""
    if evidence.pipeline is None:
        return False
    batch_bytes = _batch_bytes(evidence)
    buffers = batch_bytes * _UNKNOWN_BUFFER if evidence.pipeline.injects_prefetch else 0.0
    for op in evidence.pipeline.ops:
        size = op.element_bytes if op.element_bytes is not None else batch_bytes
        if "Cache" in op.op and not op.filename and growth.epochs == 1:
            stored = None if op.element_bytes is None else op.element_bytes * (op.elements_per_batch or 1.0)
            if stored is None or growth.bytes_per_step <= 2 * stored:
                return True
        for count in (op.chosen_buffer_size or op.buffer_size, op.chosen_parallelism or op.parallelism):
            if count:
                buffers += size * (count if count > 0 else _UNKNOWN_BUFFER)
    return growth.grown_bytes <= buffers


def _room_bytes(evidence: Evidence) -> tuple[float | None, str]:
    known = evidence.known("memory")
    limit, total = known.get("limit_bytes"), known.get("total_bytes")
    if isinstance(limit, int | float) and (not isinstance(total, int | float) or limit < total):
        return float(limit), "control group's memory"
    return (float(total), "machine's memory") if isinstance(total, int | float) else (None, "")


_MIN_BYTES: Final = 4 << 20
_COLD_SHARE: Final = 0.5
_SOME_SHARE: Final = 0.1
_CACHED_SHARE: Final = 0.02
_BATCH_SHARE: Final = 0.25  # Of a batch's bytes that a step must read before its data can be said to come from files
_GOES_ON_SHARE: Final = 0.2
"""Share of the bytes from storage that are read in the second half of the steps, where the steps wait for them:
libraries that are loaded, and a first pass over files that stay in memory, are read at the start.
"""
_WAITS_SHARE: Final = 0.5
"""Largest computing share of the step's time, by the input or the whole process, at which it still counts as waiting.
"""


@rule(
    "cold-storage",
    threshold="4 MiB read, and a quarter of a batch's bytes a step; 10 % of it from storage, or 2 % at most where no "
    "second pass was seen or a pass is larger than the memory; a bottleneck only from 50 % where the step waits for "
    "data",
    remedy="Read more files at once, larger pieces (TFRecord or packed files), or copy the data to a local disk.",
    false_alarms="storage behind another layer (a network file system with a cache of its own) looks like the page "
    "cache",
)
def cold_storage(evidence: Evidence) -> Findings:
    """Reads that storage had to answer; or, where the page cache answered all, a cold pass that was not measured."""
    for trial in evidence.ladder:
        span, host = measured_span(trial), trial.readings.host
        if span is None or host is None:
            continue
        stored, read = span.growth(host, "read_bytes"), span.growth(host, "read_call_bytes")
        if stored is None:
            continue
        # Mapped files are fetched by faults, without a read call.
        everything = max(stored, read or 0.0)
        if everything < _MIN_BYTES or everything / span.steps < _BATCH_SHARE * _batch_bytes(evidence):
            return
        share = stored / everything
        if share >= _SOME_SHARE:
            yield _cold(evidence, span, host, stored, everything)
        elif share <= _CACHED_SHARE and read is not None:
            yield from _warm(evidence, span, everything)
        return


def _cold(evidence: Evidence, span: Span, host: HostReadings, stored: float, everything: float) -> Finding:
    share, faults = stored / everything, span.growth(host, "major_faults")
    late = replace(span, start_ns=(span.start_ns + span.end_ns) // 2).growth(host, "read_bytes")
    goes_on = late is not None and late >= _GOES_ON_SHARE * stored
    busy_s = evidence.input_cpu_s.estimate if evidence.input_cpu_s is not None else None
    waits = busy_s is not None and evidence.wall_s is not None and busy_s < _WAITS_SHARE * evidence.wall_s
    # The whole process hardly computes, so neither does its input.
    steps = evidence.steps
    cores = float(steps.cpu_s.sum() / steps.wall_s.sum()) if steps is not None else None
    waits |= cores is not None and 0 < cores < _WAITS_SHARE
    limiting = share >= _COLD_SHARE and waits and goes_on and evidence.limits("input")
    hidden = "" if evidence.limits("input") else "; the step does not wait for it"
    return cold_storage.finding(
        f"{share:.0%} of what the steps read came from storage, {stored / span.seconds / 1e6:.3g} MB/s{hidden}",
        {
            "storage_bytes_per_step": stored / span.steps,
            "read_bytes_per_step": everything / span.steps,
            "storage_share": share,
            "storage_bytes_per_s": stored / span.seconds,
            "major_faults_per_step": None if faults is None else faults / span.steps,
            "input_cpu_s_per_batch": busy_s,
            "cores_busy": cores,
        },
        "Read more files at once (interleave with num_parallel_calls), larger pieces (TFRecord or packed files "
        "instead of one small file a sample), or copy the data to a local disk; what fits in memory is faster from the "
        "second epoch on by itself."
        if limiting
        else "Nothing to mend now; the same run is faster once the files are in the page cache.",
        severity="warning" if limiting else "info",
        limiting=limiting,
        predicted_speedup=evidence.max_speedups.get("input") if limiting else None,
    )


def _warm(evidence: Evidence, span: Span, everything: float) -> Findings:
    """Everything came from the page cache: worth a word where that will not be so in training."""
    pass_steps = _pass_steps(evidence)
    pass_bytes = everything / span.steps * pass_steps if pass_steps else None
    memory = memory_bytes(evidence)
    outgrows = pass_bytes is not None and memory is not None and pass_bytes > memory
    again = span.epochs > 1 or bool(pass_steps and span.steps >= 2 * pass_steps)
    if again and not outgrows:
        return  # the data are read again and again, so that this is how training runs too
    if outgrows and pass_bytes is not None and memory is not None:
        title = (
            f"these files were in the page cache, but a pass reads {pass_bytes / 1e9:.3g} GB (of files that it may "
            f"read again and again), and there are {memory / 1e9:.3g} GB of memory: later passes may read from storage"
        )
    else:
        title = "all that the steps read came from the page cache: a cold first epoch will be slower; not measured"
    yield cold_storage.finding(
        title,
        {
            "read_bytes_per_step": everything / span.steps,
            "storage_share": 0.0,
            "pass_bytes": pass_bytes,
            "memory_bytes": memory,
        },
        "To measure the first epoch, measure on a machine that has not read these files yet.",
    )


def _batch_bytes(evidence: Evidence) -> float:
    return evidence.batches.bytes / max(evidence.batches.cached, 1) if evidence.batches else 0.0


def _pass_steps(evidence: Evidence) -> float | None:
    # Past a repeat there is no pass any more: the last op before it with a length has that of a pass.
    counts = [
        op.cardinality / op.elements_per_batch
        for op in evidence.graph.ops
        if op.cardinality is not None and op.cardinality > 0 and op.elements_per_batch
    ]
    return counts[-1] if counts else None
