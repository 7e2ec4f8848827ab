"""What the GPUs and the host's main thread did in a profiled window of steps, as read from TensorFlow's XPlane.

All seconds are means per step. Times in nanoseconds are on the clock of the steps and of the readings
(``time.perf_counter_ns``), so that a slice can be laid beside a row and beside an NVML sample.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, model_validator

from xttsbench.records.base import Record

ACTIVITY_VERSION: Final = 1

Work = Literal["kernel", "collective", "to_device", "from_device", "between_devices", "on_device"]
"""What an event on a GPU's stream is: a kernel that computes, one of a collective (NCCL), a copy by its direction;
``on_device`` is a copy within its memory or a memset."""
WORK: Final[tuple[Work, ...]] = ("kernel", "collective", "to_device", "from_device", "between_devices", "on_device")
COPIES: Final[tuple[Work, ...]] = ("to_device", "from_device", "between_devices", "on_device")

Cause = Literal["compile", "saving", "input", "sync", "dispatch", "host"]
"""What the host did: traced or compiled, saved or wrote summaries, waited for the input, waited for a device, launched
ops, or ran Python in which TensorFlow was not called."""
CAUSES: Final[tuple[Cause, ...]] = ("compile", "saving", "input", "sync", "dispatch", "host")
"""In the order in which a moment that several causes cover goes to one of them."""


class Gap(Record):
    """A stretch in which nothing ran on any stream of a GPU."""

    start_ns: int
    duration_s: float
    step: int
    """Number of the step of the window, from 0, in which it began."""
    cause: Cause | None = None
    """What the host did for the largest part of it; ``None`` where the profile has nothing of the host."""


class GpuSlices(Record):
    """What ran on a GPU, for a time line: columns of equal length, in the order of their starts.

    Events of one kind that follow one another on a stream are one slice where all of them would be too many.
    """

    lanes: tuple[str, ...] = ()
    """Names of the streams."""
    start_ns: tuple[int, ...] = ()
    duration_ns: tuple[int, ...] = ()
    lane: tuple[int, ...] = ()
    """Position in ``lanes``."""
    work: tuple[int, ...] = ()
    """Position in :data:`WORK`."""
    events: tuple[int, ...] = ()
    """How many events of the profile a slice stands for."""

    @model_validator(mode="after")
    def _equal_lengths(self) -> GpuSlices:
        lengths = {len(getattr(self, name)) for name in ("start_ns", "duration_ns", "lane", "work", "events")}
        if len(lengths) > 1:
            raise ValueError(f"slices of a GPU: columns of unequal lengths {sorted(lengths)}")
        return self


class GpuDevice(Record):
    """One GPU in the profiled window; seconds are means per step.

    ``kernel_s``, ``collective_alone_s``, ``copy_alone_s`` and ``idle_s`` add up to the step.
    """

    index: int
    """Its number in TensorFlow (``GPU:0``), which is not always NVML's."""
    kernel_s: float
    """While at least one kernel computed."""
    collective_s: float
    """While a collective ran, whatever else did."""
    copy_s: float
    """While a copy or a memset ran, whatever else did."""
    collective_alone_s: float
    """While a collective ran and no kernel computed."""
    copy_alone_s: float
    """While a copy ran, and neither a kernel nor a collective."""
    idle_s: float
    """While nothing ran on any of its streams."""
    work_s: dict[Work, float] = {}
    """By kind, while at least one event of the kind ran."""
    bytes: dict[Work, int] = {}
    """Copied per step, by direction, where the profile says how much."""
    kernels: float = 0.0
    """Kernels per step."""
    idle_by_cause_s: dict[Cause, float] = {}
    """What the host did meanwhile; adds up to ``idle_s``, and is empty where the profile has nothing of the host."""
    gaps: float = 0.0
    """Gaps per step."""
    longest_gaps: tuple[Gap, ...] = ()
    slices: GpuSlices | None = Field(None)
    unmeasured: dict[str, str] = {}


class Kernel(Record):
    """One kernel (or copy) by name, over all GPUs."""

    name: str
    work: Work
    time_s: float
    """Per step, summed over streams and GPUs."""
    calls: float
    """Per step."""


class GpuActivity(Record):
    """The profiled window; ``devices`` is empty where the profile has nothing of a GPU, and ``unmeasured`` says why."""

    version: int = ACTIVITY_VERSION
    steps: int
    start_ns: int | None = None
    """When the window began; ``None`` where it could not be put on the clock of the steps."""
    step_s: float
    """Mean time of a step of the window, which profiling may have slowed."""
    step_starts_ns: tuple[int, ...] = ()
    step_ends_ns: tuple[int, ...] = ()
    host_s: dict[Cause, float] = {}
    """What the main thread did, per step; empty where the profile has nothing of it."""
    devices: tuple[GpuDevice, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    """The costliest ones."""
    imbalance: float | None = None
    """By how much the busiest GPU's kernel time exceeds the mean of all, as a share of that mean."""
    slowest: int | None = None
    """The GPU whose kernels take longest in most steps, where there are several."""
    slowest_share: float | None = None
    """Share of the steps in which it was the slowest."""
    unmeasured: dict[str, str] = {}


class XProfVerdict(Record):
    """What XProf's own input-pipeline analysis says of the same profile."""

    says: Literal["input", "not input", "perhaps input", "nothing"]
    statement: str = ""
    """Its sentence."""
    input_share: float | None = None
    """Its input time over its step time; ``None`` where it found no step time."""
    step_s: float | None = None
    """Its mean step time."""
    op: str | None = None
    """The input op with the most time of its own."""
    advice: str = ""
    version: str | None = None
