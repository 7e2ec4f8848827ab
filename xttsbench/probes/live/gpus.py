"""GPUs as a reading each time; one that is lost, or a driver that answers errors, is a value of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from statistics import fmean
from typing import Any, Final

from xttsbench.probes.live.pace import Pace
from xttsbench.probes.nvml import GpuProbe, open_gpus
from xttsbench.records.monitoring import Reading
from xttsbench.records.readings import GpuReadings, throttle_reason_names

_NVML: Final = "NVML: "
_SHARE: Final = 0.001
_OPENED_S: Final = 5.0
_ANSWER_S: Final = 0.1
"""An answer is waited for so long; the PCIe counters of one GPU take 20 ms."""
_SILENT_S: Final = 2.0
"""A driver that has not answered for so long is said to hang."""
_COPIED: Final = (
    *("memory_used_bytes", "sm_clock_mhz", "memory_clock_mhz", "power_w"),
    *("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
)


class _Driver:
    """Calls the driver on a thread of its own: a call that never returns holds up neither readings nor the end."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._asked_s: float | None = None
        threading.Thread(target=self._run, name="xttsbench-gpus", daemon=True).start()

    @property
    def silent_s(self) -> float | None:
        """Seconds since the call that has not returned; ``None`` where there is none."""
        return None if self._asked_s is None else time.monotonic() - self._asked_s

    def ask(self, call: Callable[[], Any]) -> None:
        """Begin a call; the one before has to be over."""
        self._asked_s = time.monotonic()
        self._calls.put(call)

    def answer(self, within_s: float) -> Any:
        """What the call returned, within so many seconds; raises what it raised, and ``Empty`` while it lasts."""
        found = self._answers.get(timeout=within_s) if within_s else self._answers.get_nowait()
        self._asked_s = None
        if isinstance(found, BaseException):
            raise found
        return found

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                self._answers.put(call())
            except BaseException as error:
                self._answers.put(error)


class Gpus:
    """Reads all GPUs, as often as takes at most 0.1 % of a processor; a driver that hangs is an error of theirs.

    Attributes:
        names: what the driver calls each GPU, by number; empty where there is none.
        errors: what the driver answers in place of readings now, by number.
        samples: the driver's own of the utilization since the reading before, by column: time on
            ``time.perf_counter_ns`` and share.
        unmeasured: column to why it is empty.
    """

    def __init__(self, opened: Callable[[], tuple[GpuProbe | None, str | None]] = open_gpus) -> None:
        self._driver, self._pace = _Driver(), Pace(_SHARE, 0.0)
        self._probe: GpuProbe | None = None
        self.names: dict[int, str] = {}
        self.errors: dict[int, str] = {}
        self.samples: dict[str, tuple[tuple[int, float], ...]] = {}
        self._known: dict[int, set[str]] = {}
        self._driver.ask(lambda: _named(*opened()))
        try:
            self._probe, reason, self.names = self._driver.answer(_OPENED_S)
        except Empty:
            reason = f"the NVIDIA driver has not answered within {_OPENED_S:.0f} s; does nvidia-smi?"
        self.unmeasured: dict[str, str] = {"gpus": reason} if reason else {}
        self._known = {number: set() for number in self.names}

    def read(self, family: Iterable[int] = ()) -> Reading:
        """What they did since the last reading; an empty one where it is not their turn.

        Args:
            family: the process and its children whose memory on the GPUs is summed up; none where no one asks.
        """
        found: Reading = {}
        self.samples = {}
        if self._probe is None:
            return found
        within_s = 0.0
        if (silent_s := self._driver.silent_s) is None:
            if not self._pace.due():
                return found
            self._driver.ask(self._sampled)
            within_s = _ANSWER_S
        try:
            gpus = self._driver.answer(within_s)
        except Empty:
            if silent_s is not None and silent_s > _SILENT_S:
                self.errors = dict.fromkeys(self.names, "the driver has stopped answering")
                found |= {f"gpu{number}_error": error for number, error in self.errors.items()}
            return found
        family, held = set(family), []
        for gpu in gpus:
            found |= self._reading(gpu)
            pairs = zip(gpu.processes, gpu.process_memory_bytes, strict=True)
            held += [used for pid, used in pairs if pid in family and used is not None]
        if held:
            found["process_gpu_memory_bytes"] = sum(held)
        return found

    def _sampled(self) -> tuple[GpuReadings, ...]:
        assert self._probe is not None
        with self._pace:
            self._probe.sample()
            return self._probe.take()

    def close(self) -> None:
        """End the session with the driver, if it answers."""
        if self._probe is not None and self._driver.silent_s is None:
            self._driver.ask(self._probe.close)
            with suppress(Empty):
                self._driver.answer(_ANSWER_S)

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


def _named(probe: GpuProbe | None, reason: str | None) -> tuple[GpuProbe | None, str | None, dict[int, str]]:
    """An opened probe, with the names of its GPUs."""
    return probe, reason, {gpu.index: gpu.name for gpu in probe.take()} if probe is not None else {}
