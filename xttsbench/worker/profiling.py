"""A TensorFlow profile of a window of steady steps, and the few numbers of it that the report shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import tensorflow as tf

from xttsbench.records.trial import ProfileSummary
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import LiveBatches
from xttsbench.worker.bench import Bench, Step


class Interval(NamedTuple):
    """An event of a trace, in picoseconds."""

    name: str
    start_ps: int
    end_ps: int


def covered_s(intervals: Sequence[Interval]) -> float:
    """Seconds covered by at least one of the intervals; overlaps count once."""
    covered, reached = 0, None
    for _, start, end in sorted(intervals, key=lambda interval: interval.start_ps):
        begin = start if reached is None else max(start, reached)
        covered += max(end - begin, 0)
        reached = end if reached is None else max(reached, end)
    return covered / 1e12


def idle_s(intervals: Sequence[Interval]) -> float:
    """Seconds between the first start and the last end that no interval covers."""
    if not intervals:
        return 0.0
    first = min(interval.start_ps for interval in intervals)
    last = max(interval.end_ps for interval in intervals)
    return (last - first) / 1e12 - covered_s(intervals)


_STEPS: Final = 20
_SETTLE: Final = 5
_COPIES: Final = ("memcpy", "memset", "copy")


def profile_window(loaded: Loaded, step: Step | None, bench: Bench, directory: str) -> ProfileSummary:
    """Profile up to twenty steps after five unprofiled ones, with ``next()`` inside the step marker.

    A profile that another profiler prevents is reported as unmeasured; the trial goes on.
    """
    source = LiveBatches(loaded.dataset)

    def one() -> None:
        batch = source.next()
        if step is not None:
            step(batch)
        if bench.synchronise is not None:
            bench.synchronise()
        if bench.accelerator is not None:
            bench.accelerator.compute()

    for _ in range(_SETTLE):
        one()
    try:
        tf.profiler.experimental.start(directory)
    except tf.errors.AlreadyExistsError:
        return ProfileSummary(
            directory="profile", steps=0, unmeasured={"profile": "the target runs a profiler of its own"}
        )
    try:
        for number in range(_STEPS):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                one()
    finally:
        tf.profiler.experimental.stop()
    return summarise(directory, _STEPS)


def summarise(directory: str, steps: int) -> ProfileSummary:
    """Read the newest XPlane under ``directory``: waiting on the host; kernels, copies and gaps on the GPU."""
    files = sorted(Path(directory).glob("plugins/profile/*/*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    if not files:
        return ProfileSummary(directory="profile", steps=0, unmeasured={"profile": "TensorFlow wrote no XPlane"})
    # Inside, since the protocol buffer's module moved between versions and only a profile needs it.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(files[-1].read_bytes())
    waits = list(_intervals(space.planes, "/host:CPU", ("iteratorgetnextop::docompute",)))
    device = list(_intervals(space.planes, "/device:GPU", None))
    unmeasured = {}
    if not waits:
        unmeasured["wait_s"] = "no IteratorGetNext in the window"
    copies = [event for event in device if any(word in event.name.lower() for word in _COPIES)]
    kernels = [event for event in device if event not in copies]
    if not device:
        unmeasured["kernel_s"] = unmeasured["copy_s"] = unmeasured["idle_s"] = "no GPU in the profile"
    return ProfileSummary(
        directory="profile",
        steps=steps,
        wait_s=covered_s(waits) / steps if waits else None,
        kernel_s=covered_s(kernels) / steps if device else None,
        copy_s=covered_s(copies) / steps if device else None,
        idle_s=idle_s(device) / steps if device else None,
        unmeasured=unmeasured,
    )


def _intervals(planes: Iterable[Any], prefix: str, names: tuple[str, ...] | None) -> Iterable[Interval]:
    """Events of the planes of that name; on a device only the lines that hold what ran (streams), not summaries."""
    for plane in planes:
        if not plane.name.startswith(prefix):
            continue
        for line in plane.lines:
            if names is None and not line.name.lower().startswith("stream"):
                continue
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if names is None or name.lower() in names:
                    start = line.timestamp_ns * 1000 + event.offset_ps
                    yield Interval(name, start, start + event.duration_ps)
