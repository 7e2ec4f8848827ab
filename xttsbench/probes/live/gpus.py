"""GPUs as a reading each time; one that is lost, or a driver that answers errors, is a value of it."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Final

from xttsbench.probes.live.pace import Pace
from xttsbench.probes.nvml import GpuProbe, open_gpus
from xttsbench.records.monitoring import Reading
from xttsbench.records.readings import GpuReadings, throttle_reason_names

_NVML: Final = "NVML: "
_SHARE: Final = 0.001
_COPIED: Final = (
    *("memory_used_bytes", "sm_clock_mhz", "memory_clock_mhz", "power_w"),
    *("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
)


class Gpus:
    """Reads all GPUs, as often as takes at most 0.1 % of a processor.

    Attributes:
        names: what the driver calls each GPU, by number; empty where there is none.
        errors: what the driver answers in place of readings now, by number.
        samples: the driver's own of the utilization since the reading before, by column: time on
            ``time.perf_counter_ns`` and share.
        unmeasured: column to why it is empty.
    """

    def __init__(self, opened: tuple[GpuProbe | None, str | None] | None = None) -> None:
        self._probe, reason = open_gpus() if opened is None else opened
        self._pace = Pace(_SHARE, 0.0)
        self.unmeasured: dict[str, str] = {"gpus": reason} if reason else {}
        self.names: dict[int, str] = {}
        self.errors: dict[int, str] = {}
        self.samples: dict[str, tuple[tuple[int, float], ...]] = {}
        self._known: dict[int, set[str]] = {}
        for gpu in self._probe.take() if self._probe is not None else ():
            self.names[gpu.index], self._known[gpu.index] = gpu.name, set()

    def read(self, family: Iterable[int] = ()) -> Reading:
        """What they did since the last reading; an empty one where it is not their turn.

        Args:
            family: the process and its children whose memory on the GPUs is summed up; none where no one asks.
        """
        found: Reading = {}
        self.samples = {}
        if self._probe is None or not self._pace.due():
            return found
        with self._pace:
            self._probe.sample()
            family, held = set(family), []
            for gpu in self._probe.take():
                found |= self._reading(gpu)
                pairs = zip(gpu.processes, gpu.process_memory_bytes, strict=True)
                held += [used for pid, used in pairs if pid in family and used is not None]
            if held:
                found["process_gpu_memory_bytes"] = sum(held)
        return found

    def close(self) -> None:
        """End the session with the driver."""
        if self._probe is not None:
            self._probe.close()

    def _reading(self, gpu: GpuReadings) -> Reading:
        known = self._known[gpu.index]
        known |= {name for name in (*_COPIED, "throttle_reasons") if getattr(gpu, name)}
        refused = [
            why for name, why in gpu.unmeasured.items() if why.startswith(_NVML) and (name in known or not known)
        ]
        self.errors.pop(gpu.index, None)
        if refused:
            self.errors[gpu.index] = refused[0].removeprefix(_NVML)
        self.unmeasured |= {
            f"gpu{gpu.index}_{name}": why for name, why in gpu.unmeasured.items() if why.startswith(_NVML)
        }
        found: Reading = {"name": gpu.name, "error": self.errors.get(gpu.index)}
        if gpu.memory_total_bytes is not None:
            found["memory_total_bytes"] = gpu.memory_total_bytes
        found |= {name: values[-1] for name in _COPIED if (values := getattr(gpu, name))}
        if gpu.utilization:
            found["utilization"] = fmean(gpu.utilization)
            times = zip(gpu.utilization_t_ns, gpu.utilization, strict=True)
            self.samples[f"gpu{gpu.index}_utilization"] = tuple(times)
        if gpu.throttle_reasons and (mask := gpu.throttle_reasons[-1]) is not None:
            found["throttle_reasons"] = " ".join(throttle_reason_names(mask))
        if "processes" not in gpu.unmeasured:
            found["pids"] = " ".join(map(str, gpu.processes))
        return {f"gpu{gpu.index}_{name}": value for name, value in found.items()}
