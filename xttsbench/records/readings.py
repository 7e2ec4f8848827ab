"""Readings of the host and of the GPU beside the steps, and what a profiled window of steps shows of both.

Times in nanoseconds are on the clock of the steps (``time.perf_counter_ns``), so that a reading, a slice of the
profile and a step can be laid side by side. What the profile gives, read from TensorFlow's XPlane, is per step.
"""

from __future__ import annotations

from typing import Final, Literal

from xttsbench.records.base import Record

MACHINE_COLUMNS: Final = ("machine_busy_s", "machine_steal_s", "machine_idle_s")
"""Columns of the whole machine's processors, which are read and missing together."""


class HostReadings(Record):
    """Readings of one process (and its children), one entry per sample.

    Times are ``time.perf_counter_ns`` (CLOCK_MONOTONIC, the same in every process of the machine), so they line up
    with the steps. Counters are cumulative.
    """

    allowed_cpus: float | None = None  # Processors that the process may use, affinity and quota considered
    t_ns: tuple[int, ...] = ()
    cpu_s: tuple[float, ...] = ()  # Processor time of the process and its children, user and system, cumulative
    run_delay_s: tuple[float, ...] = ()
    """Time for which threads of the process and its children were ready to run and waited for a processor, summed over
    threads, cumulative."""
    rss_bytes: tuple[int, ...] = ()
    major_faults: tuple[int, ...] = ()
    """Page faults that had to read from storage (page-cache misses of mapped files), cumulative."""
    read_bytes: tuple[int, ...] = ()
    """Bytes that reads of the process fetched from storage (page-cache misses of plain reads), cumulative."""
    read_call_bytes: tuple[int, ...] = ()
    """Bytes that read calls of the process returned, from the page cache, storage, pipes and sockets, cumulative."""
    throttled_s: tuple[float, ...] = ()
    """Time for which the control group's processor quota stopped its threads, summed over processors, cumulative."""
    pids: tuple[int, ...] = ()  # The process and its children, all that were seen
    machine_busy_s: tuple[float, ...] = ()
    """Processor time that anyone used (user, nice, system, interrupts; stolen time is not use), summed over the
    processors that the process may run on, cumulative."""
    machine_steal_s: tuple[float, ...] = ()
    """Time for which the hypervisor ran something else while these processors had work, cumulative."""
    machine_idle_s: tuple[float, ...] = ()
    """Time for which these processors had nothing to run, waiting for storage included, cumulative."""
    parent_cpu_s: tuple[float, ...] = ()
    """Processor time of the process that takes these readings, no part of ``cpu_s``, cumulative."""
    thread_group_cpu_s: dict[str, float] = {}
    """Processor time by thread name (``tf_data_*``, ``tf_Compute``, ``python`` ...), first sample to last."""
    unmeasured: dict[str, str] = {}  # Field to the reason why it is empty


class GpuReadings(Record):
    """NVML readings of one GPU, one entry per sample; a field that the driver does not give stays empty."""

    index: int
    name: str
    uuid: str
    t_ns: tuple[int, ...] = ()
    memory_used_bytes: tuple[int | None, ...] = ()
    memory_total_bytes: int | None = None
    sm_clock_mhz: tuple[int | None, ...] = ()
    max_sm_clock_mhz: int | None = None  # The highest that the GPU can do
    memory_clock_mhz: tuple[int | None, ...] = ()
    throttle_reasons: tuple[int | None, ...] = ()  # Bit mask of ``nvmlClocksEventReasons``
    pcie_rx_bytes_per_s: tuple[int | None, ...] = ()
    pcie_tx_bytes_per_s: tuple[int | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    utilization_t_ns: tuple[int, ...] = ()
    """Times of the driver's own sample buffer (finer than our polling), on the clock of the steps."""
    utilization: tuple[float, ...] = ()  # Share of the driver's sample period in which a kernel ran, 0..1
    processes: tuple[int, ...] = ()  # Process ids that hold a compute context, at the last sample
    process_memory_bytes: tuple[int | None, ...] = ()
    """Memory of the GPU that each of ``processes`` holds; ``None`` where the driver does not tell."""
    unmeasured: dict[str, str] = {}


class Readings(Record):
    """Everything read beside one trial."""

    host: HostReadings | None = None
    gpus: tuple[GpuReadings, ...] = ()
    unmeasured: dict[str, str] = {}  # ``gpus`` -> "no NVIDIA driver" and the like


REASONS: Final = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
HEAT: Final = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
POWER: Final = frozenset({"sw_power_cap", "hw_power_brake_slowdown"})
SLOWED: Final = HEAT | POWER | {"hw_slowdown", "board_limit", "reliability"}
"""Reasons that hold the clocks below what was asked for; idle and settings by hand are not among them."""


def throttle_reason_names(mask: int) -> tuple[str, ...]:
    """The names of a mask's bits, lowest first; a bit that is not known is ``bit_<n>``."""
    bits = (1 << n for n in range(mask.bit_length()) if mask >> n & 1)
    return tuple(REASONS.get(bit, f"bit_{bit.bit_length() - 1}") for bit in bits)


Work = Literal["kernel", "collective", "to_device", "from_device", "between_devices", "on_device"]
"""Kind of an event on a GPU's stream: a kernel that computes, one of a collective (NCCL), a copy by its direction;
``on_device`` is a copy within its memory or a memset.
"""
WORK: Final[tuple[Work, ...]] = ("kernel", "collective", "to_device", "from_device", "between_devices", "on_device")
COPIES: Final[tuple[Work, ...]] = ("to_device", "from_device", "between_devices", "on_device")

Cause = Literal["compile", "saving", "input", "sync", "dispatch", "host"]
"""Activity of the host: traced or compiled, saved or wrote summaries, waited for the input, waited for a device,
launched ops, or ran Python in which TensorFlow was not called.
"""
CAUSES: Final[tuple[Cause, ...]] = ("compile", "saving", "input", "sync", "dispatch", "host")
"""In the order in which a moment that several causes cover goes to one of them."""


class Gap(Record):
    """A stretch in which nothing ran on any stream of a GPU."""

    start_ns: int
    duration_s: float
    step: int  # Number of the step of the window, from 0, in which it began
    cause: Cause  # Activity of the host for the largest part of the gap


class GpuDevice(Record):
    """One GPU in the profiled window; seconds are means per step.

    ``kernel_s``, ``collective_alone_s``, ``copy_alone_s`` and ``idle_s`` add up to the step.
    """

    index: int  # Its number in TensorFlow (``GPU:0``), which is not always NVML's
    kernel_s: float  # While at least one kernel computed
    collective_s: float  # While a collective ran, whatever else did
    copy_s: float  # While a copy or a memset ran, whatever else did
    collective_alone_s: float  # While a collective ran and no kernel computed
    copy_alone_s: float  # While a copy ran, and neither a kernel nor a collective
    idle_s: float  # While nothing ran on any of its streams
    work_s: dict[Work, float] = {}  # By kind, while at least one event of the kind ran
    kernels: float = 0.0  # Kernels per step
    idle_by_cause_s: dict[Cause, float] = {}
    """Idle time by the host's activity; adds up to ``idle_s``."""
    longest_gaps: tuple[Gap, ...] = ()


class GpuActivity(Record):
    """The profiled window; ``devices`` is empty where the profile has nothing of a GPU, and ``unmeasured`` says why."""

    steps: int
    start_ns: int = 0  # When the window began
    step_s: float  # Mean time of a step of the window, which profiling may have slowed
    step_starts_ns: tuple[int, ...] = ()
    step_ends_ns: tuple[int, ...] = ()
    host_s: dict[Cause, float] = {}  # What the main thread did, per step
    devices: tuple[GpuDevice, ...] = ()
    imbalance: float | None = None
    """By how much the busiest GPU's kernel time exceeds the mean of all, as a share of that mean."""
    slowest: int | None = None  # The GPU whose kernels take longest in most steps, where there are several
    slowest_share: float | None = None  # Share of the steps in which it was the slowest
    unmeasured: dict[str, str] = {}


class XProfVerdict(Record):
    """Verdict of XProf's own input-pipeline analysis on the same profile."""

    says: Literal["input", "not input", "perhaps input", "nothing"]
    statement: str = ""  # Its sentence
    input_share: float | None = None  # Its input time over its step time; ``None`` where it found no step time
    version: str | None = None
