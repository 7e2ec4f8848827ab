"""NVIDIA GPUs through NVML's own bindings: utilization from the driver's sample buffer, memory, clocks, bus and power.

The last value of the utilization says little about steps of milliseconds; the driver keeps a buffer of finer samples
with their times, which are put on the clock of the steps here. Every call may be unsupported on a given GPU, driver
or permission, so each field fails alone and with its reason.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import pynvml  # nvidia-ml-py; it ships no types

from xttsbench.records.readings import GpuReadings

PCIE_EVERY: Final = 5
"""The driver counts the bus's bytes over 20 ms while the caller waits, so each GPU is asked at every fifth sample."""
_KIB: Final = 1024

_SAMPLE_FIELDS: Final = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}
# A versioned call that the driver lacks raises the second, which is no NVMLError.
_ERRORS: Final = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)
_FOR_GOOD: Final = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_NoPermission,
    pynvml.NVMLLibraryMismatchError,
)


def open_gpus(
    *, clock: Callable[[], int] = time.perf_counter_ns, wall: Callable[[], int] = time.time_ns
) -> tuple[GpuProbe | None, str | None]:
    """A probe of all GPUs of the machine, or ``None`` and the reason in a few words.

    ``clock`` is the clock of the steps and ``wall`` the time since the epoch, both in nanoseconds.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return None, "no NVIDIA driver (libnvidia-ml.so.1 was not found)"
    except pynvml.NVMLError_DriverNotLoaded:
        return None, "the NVIDIA driver is installed but not loaded"
    except _ERRORS as error:
        return None, f"NVML cannot be initialised: {error}"
    try:
        count = pynvml.nvmlDeviceGetCount()
        reason = None if count else "the NVIDIA driver lists no GPU"
    except _ERRORS as error:
        count, reason = 0, f"NVML cannot count the GPUs: {error}"
    if reason is not None:
        _shutdown()
        return None, reason
    return GpuProbe([_Gpu(index) for index in range(count)], clock, wall), None


def look_at_gpus() -> tuple[tuple[GpuReadings, ...], GpuProbe | None, str | None]:
    """One sample of each GPU; its closed probe, for the versions, or ``None`` and the reason."""
    probe, reason = open_gpus()
    if probe is None:
        return (), None, reason
    probe.sample()
    probe.close()
    return probe.readings(), probe, None


class GpuProbe:
    """An open NVML session over all GPUs. Made by :func:`open_gpus`; one trial at a time."""

    def __init__(self, gpus: list[_Gpu], clock: Callable[[], int], wall: Callable[[], int]) -> None:
        self._gpus = gpus
        self._clock = clock
        self._wall = wall
        self.driver_version: str | None = None
        self.cuda_version: str | None = None
        with contextlib.suppress(*_ERRORS):
            self.driver_version = _text(pynvml.nvmlSystemGetDriverVersion())
        with contextlib.suppress(*_ERRORS):
            number = int(pynvml.nvmlSystemGetCudaDriverVersion())
            self.cuda_version = f"{number // 1000}.{number % 1000 // 10}"
        self.restart()

    def restart(self) -> None:
        """Forget the samples so far: another trial begins, and what the driver buffered before is not its own."""
        self._samples = 0
        for gpu in self._gpus:
            gpu.forget()
            gpu.last_seen_us = self._wall() // 1000

    def take(self) -> tuple[GpuReadings, ...]:
        """As :meth:`readings`, and forget them: for who samples for hours. The next ones go on where these end."""
        found = self.readings()
        for gpu in self._gpus:
            gpu.forget()
        return found

    def sample(self) -> None:
        """Read every GPU once. Never raises for what a driver refuses."""
        now_ns = self._clock()
        # Taken anew each time, since the wall clock may be stepped during a trial and perf_counter is not.
        offset_ns = now_ns - self._wall()
        for gpu in self._gpus:
            gpu.sample(now_ns, offset_ns)
        # The bus is asked for at one GPU at most in a sample, so that eight of them do not hold up the caller.
        turn = self._samples % max(PCIE_EVERY, len(self._gpus))
        for index, gpu in enumerate(self._gpus):
            gpu.sample_pcie(ask=index == turn)
        self._samples += 1

    def readings(self) -> tuple[GpuReadings, ...]:
        """Samples since the last :meth:`restart`, one record per GPU in NVML's order."""
        return tuple(gpu.readings() for gpu in self._gpus)

    def close(self) -> None:
        """End the NVML session."""
        _shutdown()


class _Gpu:
    """One GPU: its handle, and the columns of the trial under way."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._given_up: dict[str, str] = {}
        """Columns that this GPU cannot give, with the reasons; they are not asked for again."""
        self._unmeasured: dict[str, str] = {}
        self._columns: dict[str, list[Any]] = {}
        self._t_ns: list[int] = []
        self._utilization: list[tuple[int, float]] = []
        self._processes: tuple[tuple[int, int | None], ...] = ()
        self.last_seen_us = 0
        self._pcie_asked = False
        self._handle = self._ask("name", pynvml.nvmlDeviceGetHandleByIndex, index)
        if self._handle is None:
            fields = (*_FIXED_CALLS, *_CALLS, *_PCIE_CALLS, "utilization", "processes")
            self._given_up = dict.fromkeys(fields, self._unmeasured["name"])
        self._fixed = {name: self._ask(name, call, self._handle) for name, call in _FIXED_CALLS.items()}
        self._given_up |= self._unmeasured

    def forget(self) -> None:
        self._unmeasured = dict(self._given_up)
        self._columns = {name: [] for name in (*_CALLS, *_PCIE_CALLS)}
        self._t_ns = []
        self._utilization = []
        self._processes = ()
        self._pcie_asked = False

    def sample(self, now_ns: int, offset_ns: int) -> None:
        self._t_ns.append(now_ns)
        for column, call in _CALLS.items():
            self._columns[column].append(self._ask(column, call, self._handle))
        self._processes = self._ask("processes", _compute_processes, self._handle) or ()
        samples = self._ask("utilization", _utilization_since, self._handle, self.last_seen_us) or ()
        for epoch_us, share in samples:
            self.last_seen_us = max(self.last_seen_us, epoch_us)
            self._utilization.append((epoch_us * 1000 + offset_ns, share))

    def sample_pcie(self, *, ask: bool) -> None:
        self._pcie_asked |= ask
        for column, call in _PCIE_CALLS.items():
            self._columns[column].append(self._ask(column, call, self._handle) if ask else None)

    def _ask(self, field: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """The call's answer, or ``None`` with the reason noted for the field."""
        if field in self._given_up:
            return None
        try:
            return call(*arguments)
        except _ERRORS as error:
            self._unmeasured[field] = f"NVML: {error}"
            if isinstance(error, _FOR_GOOD):
                self._given_up[field] = self._unmeasured[field]
            return None

    def readings(self) -> GpuReadings:
        unmeasured = dict(self._unmeasured)
        columns: dict[str, tuple[Any, ...]] = {
            name: tuple(values) if any(value is not None for value in values) else ()
            for name, values in self._columns.items()
        }
        if not self._t_ns:
            unmeasured = dict.fromkeys((*columns, "processes"), "no sample was taken") | unmeasured
        elif not self._pcie_asked:
            unmeasured = dict.fromkeys(_PCIE_CALLS, "no sample was this GPU's turn for the bus") | unmeasured
        if not self._utilization:
            unmeasured.setdefault("utilization", "the driver's buffer held no sample of this trial")
        return GpuReadings(
            index=self._index,
            name=_text(self._fixed["name"]),
            uuid=_text(self._fixed["uuid"]),
            t_ns=tuple(self._t_ns),
            memory_total_bytes=self._fixed["memory_total_bytes"],
            max_sm_clock_mhz=self._fixed["max_sm_clock_mhz"],
            utilization_t_ns=tuple(t_ns for t_ns, _ in self._utilization),
            utilization=tuple(share for _, share in self._utilization),
            processes=tuple(pid for pid, _ in self._processes),
            process_memory_bytes=tuple(used for _, used in self._processes),
            unmeasured=unmeasured,
            **columns,
        )


def _utilization_since(handle: Any, last_seen_us: int) -> Iterable[tuple[int, float]]:
    try:
        kind, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, last_seen_us)
    except pynvml.NVMLError_NotFound:
        return ()  # Nothing new since the last time.
    field = _SAMPLE_FIELDS[kind]
    found = ((int(sample.timeStamp), getattr(sample.sampleValue, field) / 100.0) for sample in samples)
    # Some drivers repeat the last sample, and fill the end of a short buffer with samples at time 0.
    return sorted(sample for sample in found if sample[0] > last_seen_us)


def _clock_reasons(handle: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError_FunctionNotFound:
        # The name that drivers before 535 know.
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _compute_processes(handle: Any) -> tuple[tuple[int, int | None], ...]:
    """Process id and memory of each; virtual GPUs, among others, do not tell the memory."""
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLLibraryMismatchError:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return tuple(sorted(((int(one.pid), one.usedGpuMemory) for one in processes), key=lambda one: one[0]))


def _pcie_bytes(handle: Any, counter: int) -> int:
    return int(pynvml.nvmlDeviceGetPcieThroughput(handle, counter)) * _KIB


_CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "memory_used_bytes": lambda handle: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
    "sm_clock_mhz": lambda handle: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
    "memory_clock_mhz": lambda handle: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
    "throttle_reasons": _clock_reasons,
    "power_w": lambda handle: float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000.0,
}
_PCIE_CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "pcie_rx_bytes_per_s": partial(_pcie_bytes, counter=pynvml.NVML_PCIE_UTIL_RX_BYTES),
    "pcie_tx_bytes_per_s": partial(_pcie_bytes, counter=pynvml.NVML_PCIE_UTIL_TX_BYTES),
}
_FIXED_CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "name": pynvml.nvmlDeviceGetName,
    "uuid": pynvml.nvmlDeviceGetUUID,
    "memory_total_bytes": lambda handle: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
    "max_sm_clock_mhz": lambda handle: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
}  # what does not change while a process runs


def _text(value: str | bytes | None) -> str:
    if value is None:
        return "unknown"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _shutdown() -> None:
    # A driver that went away meanwhile has ended the session already.
    with contextlib.suppress(*_ERRORS):
        pynvml.nvmlShutdown()
