"""Samples host and GPUs beside one trial, driven by the loop that waits for the child: no thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from xttsbench.probes.host import HostProbe
from xttsbench.probes.nvml import GpuProbe
from xttsbench.records.readings import Readings

INTERVAL_S: Final = 0.2


class Monitor:
    """Readings of one process and of all GPUs, at an even interval.

    The caller waits at most :meth:`due` seconds for the child, then calls :meth:`tick`. ``gpus`` is what
    :func:`xttsbench.probes.nvml.open_gpus` returned; the probe is used again by the next trial, so it is not closed
    here, and only one monitor at a time may use it. Without GPUs that reason is in the readings.
    """

    def __init__(
        self,
        pid: int,
        *,
        interval_s: float = INTERVAL_S,
        gpus: tuple[GpuProbe | None, str | None],
        clock: Callable[[], int] = time.perf_counter_ns,
        host: HostProbe | None = None,
    ) -> None:
        if interval_s <= 0:
            raise ValueError(f"interval_s must be above 0, received {interval_s}")
        self._interval_ns = round(interval_s * 1e9)
        self._gpus, self._no_gpu_reason = gpus
        if self._gpus is not None:
            self._gpus.restart()
        self._host = host or HostProbe(pid)
        self._next_ns = clock() + self._interval_ns

    def due(self, now_ns: int) -> float:
        """Seconds from ``now_ns`` (``time.perf_counter_ns``) to the next sample; 0 where it is overdue."""
        return max(self._next_ns - now_ns, 0) / 1e9

    def tick(self, now_ns: int) -> None:
        """Take a sample where one is due. A caller that comes late skips the missed ones and keeps the rhythm."""
        if now_ns < self._next_ns:
            return
        self._next_ns += ((now_ns - self._next_ns) // self._interval_ns + 1) * self._interval_ns
        self.sample()

    def sample(self) -> None:
        """Take a sample whatever the rhythm: at the edges of what is measured."""
        self._host.sample()
        if self._gpus is not None:
            self._gpus.sample()

    def readings(self) -> Readings:
        """Everything sampled so far."""
        if self._gpus is None:
            reason = self._no_gpu_reason or "no GPU was looked for"
            return Readings(host=self._host.readings(), unmeasured={"gpus": reason})
        return Readings(host=self._host.readings(), gpus=self._gpus.readings())
