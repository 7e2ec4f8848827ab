"""Readings of the host and of the GPU taken beside the steps, as columns on the clock of the steps."""

from __future__ import annotations

from typing import Any, Final

from pydantic import model_validator

from xttsbench.records.base import Record

MACHINE_COLUMNS: Final = ("machine_busy_s", "machine_steal_s", "machine_idle_s")
"""Columns of the whole machine's processors, which are read and missing together."""


class HostReadings(Record):
    """Readings of one process (and its children), one entry per sample.

    Times are ``time.perf_counter_ns`` (CLOCK_MONOTONIC, the same in every process of the machine), so they line up
    with the steps. Counters are cumulative.
    """

    allowed_cpus: float | None = None
    """Processors that the process may use, affinity and quota considered."""
    t_ns: tuple[int, ...] = ()
    cpu_s: tuple[float, ...] = ()
    """Processor time of the process and its children, user and system, cumulative."""
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
    pids: tuple[int, ...] = ()
    """The process and its children, all that were seen."""
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
    unmeasured: dict[str, str] = {}
    """Field to the reason why it is empty."""

    @model_validator(mode="before")
    @classmethod
    def _version_1(cls, fields: Any) -> Any:
        """Journals of version 1 have one share in place of the machine's counters, in which stolen time was busy."""
        if not isinstance(fields, dict) or "machine_busy" not in {*fields, *fields.get("unmeasured", {})}:
            return fields
        kept = {name: value for name, value in fields.items() if name != "machine_busy"}
        unmeasured = {name: why for name, why in fields.get("unmeasured", {}).items() if name != "machine_busy"}
        why = "read by an earlier version, which took stolen time for use"
        return kept | {"unmeasured": unmeasured | dict.fromkeys(MACHINE_COLUMNS, why)}


class GpuReadings(Record):
    """NVML readings of one GPU, one entry per sample; a field that the driver does not give stays empty."""

    index: int
    name: str
    uuid: str
    t_ns: tuple[int, ...] = ()
    memory_used_bytes: tuple[int | None, ...] = ()
    memory_total_bytes: int | None = None
    sm_clock_mhz: tuple[int | None, ...] = ()
    max_sm_clock_mhz: int | None = None
    """The highest that the GPU can do."""
    memory_clock_mhz: tuple[int | None, ...] = ()
    throttle_reasons: tuple[int | None, ...] = ()
    """Bit mask of ``nvmlClocksEventReasons``."""
    pcie_rx_bytes_per_s: tuple[int | None, ...] = ()
    pcie_tx_bytes_per_s: tuple[int | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    utilization_t_ns: tuple[int, ...] = ()
    """Times of the driver's own sample buffer (finer than our polling), on the clock of the steps."""
    utilization: tuple[float, ...] = ()
    """Share of the driver's sample period in which a kernel ran, 0..1."""
    processes: tuple[int, ...] = ()
    """Process ids that hold a compute context, at the last sample."""
    process_memory_bytes: tuple[int | None, ...] = ()
    """Memory of the GPU that each of ``processes`` holds; ``None`` where the driver does not tell."""
    unmeasured: dict[str, str] = {}


class Readings(Record):
    """Everything read beside one trial."""

    host: HostReadings | None = None
    gpus: tuple[GpuReadings, ...] = ()
    unmeasured: dict[str, str] = {}
    """``gpus`` -> "no NVIDIA driver" and the like."""


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
