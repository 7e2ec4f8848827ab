"""The rule `memory-leak`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from xttsbench.analysis.readings import measured_span
from xttsbench.analysis.variation import trend
from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.trial import TrialRecord

_MIN_SAMPLES: Final = 8
_STRETCHES: Final = 8
_MIN_GROWTH_BYTES: Final = 8 << 20
_MIN_GROWTH_SHARE: Final = 0.01
"""Of the resident memory: an allocator's own pools grow by less for a while."""
_UNKNOWN_BUFFER: Final = 16
"""Elements that a tuned buffer is taken to hold where its size was not read."""
_SOON_S: Final = 3600.0


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
    evidence="bytes a step, bytes grown, resident bytes, and steps and seconds until the memory is full",
    threshold="8 MiB and 1 % grown, still growing at the end, beyond what buffers and caches of the pipeline hold; "
    "critical where it is full within an hour; never a bottleneck",
    remedy="Look for what each step leaves behind: losses kept in a list as tensors (keep float(loss) every so "
    "many steps), functions, optimizers or datasets made inside the loop, a cache in memory that a later "
    "repeat() never lets end.",
    false_alarms="a buffer or cache whose size was not read still fills",
)
def memory_leak(evidence: Evidence) -> Findings:
    """Memory that grows from step to step to the end in every process, and when it is full."""
    measured = [one for trial in evidence.ladder if (one := _growth(trial)) is not None]
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
    yield memory_leak.finding(
        f"memory grows by {growth.bytes_per_step / 1e6:.2g} MB a step and does not stop{ends}",
        {
            "bytes_per_step": growth.bytes_per_step,
            "grown_bytes": growth.grown_bytes,
            "steps": growth.steps,
            "resident_bytes": growth.last_bytes,
            "processes": len(growths),
            "steps_left": steps_left,
            "seconds_left": seconds_left,
            "traces_again": retraced or None,
        },
        "Each trace of a tf.function is kept: pass tensors instead of Python values, and make the function once."
        if retraced >= growth.steps / 10
        else None,
        severity="critical" if seconds_left is not None and seconds_left < _SOON_S else "warning",
    )


def _growth(trial: TrialRecord) -> _Growth | bool | None:
    """How memory grew in a trial; ``False`` where it did not, ``None`` where it was not read often enough."""
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
    if found is None or grown < max(_MIN_GROWTH_BYTES, _MIN_GROWTH_SHARE * float(resident[-1])):
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
    batch_bytes = evidence.batches.bytes / max(evidence.batches.cached, 1) if evidence.batches else 0.0
    buffers = 0.0
    for op in evidence.pipeline.ops:
        size = op.element_bytes if op.element_bytes is not None else batch_bytes
        if "Cache" in op.op and not op.filename and growth.epochs == 1:
            stored = None if op.element_bytes is None else op.element_bytes * (op.elements_per_batch or 1.0)
            if stored is None or growth.bytes_per_step <= 2 * stored:
                return True
        held = [op.chosen_buffer_size or op.buffer_size, op.chosen_parallelism or op.parallelism]
        for count in held:
            if count:
                buffers += size * (count if count > 0 else _UNKNOWN_BUFFER)
    if evidence.pipeline.injects_prefetch:
        buffers += batch_bytes * _UNKNOWN_BUFFER
    return growth.grown_bytes <= buffers


def _room_bytes(evidence: Evidence) -> tuple[float | None, str]:
    known = evidence.known("memory")
    limit, total = known.get("limit_bytes"), known.get("total_bytes")
    if isinstance(limit, int | float) and (not isinstance(total, int | float) or limit < total):
        return float(limit), "control group's memory"
    return (float(total), "machine's memory") if isinstance(total, int | float) else (None, "")
