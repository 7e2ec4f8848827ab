"""The machine and its GPUs as a reading each time, and how often one may be taken without costing much.

Each reading is what went on since the one before it, from counters that the kernel keeps anyway. What cannot be read is
``None`` in the reading, with the reason in ``unmeasured`` of its probe; a GPU that is lost, or a driver
that answers errors, is a value of the reading.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import psutil

from xttsbench.probes.nvml import GpuProbe, open_gpus
from xttsbench.probes.procfs import memory_limit_bytes, memory_limit_left_bytes, read_text, throttled_s
from xttsbench.records.machine import Reading
from xttsbench.records.readings import GpuReadings, throttle_reason_names

_SAVED_S: Final = 60.0
_SLOW_SHARE, _SLOW_S = 0.001, 1.0  # memory and quota take longer to read than to change
_NVML: Final = "NVML: "
_SHARE: Final = 0.001
_OPENED_S: Final = 5.0
_ANSWER_S: Final = 0.1  # an answer is waited for so long; the PCIe counters of one GPU take 20 ms
_SILENT_S: Final = 2.0  # a driver that has not answered for so long is said to hang
_COPIED: Final = (
    *("memory_used_bytes", "sm_clock_mhz", "memory_clock_mhz", "power_w"),
    *("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
)


class Pace:
    """Says when work is due again, so that over time it takes at most ``share`` of one processor.

    The work is done in a ``with`` block. What it takes is drawn from an allowance that grows by ``share`` of each
    second up to a minute's worth, so that what is slow for once does not put off the next time for long.

    Args:
        share: of one processor, 0..1.
        least_s: seconds from one time to the next, at least.
        given_s: seconds' worth of the allowance that there is at the start.
        clock: seconds.
        cost: processor seconds of the calling thread.
    """

    def __init__(
        self,
        share: float,
        least_s: float,
        given_s: float = 10.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        cost: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._least_s = share, least_s
        self._clock, self._cost = clock, cost
        self._next_s = self._known_s = clock()
        self._left_s, self._before_s = share * given_s, 0.0

    def due(self) -> bool:
        """Whether the work may be done now."""
        now_s = self._clock()
        if self._left_s < self._share * _SAVED_S:
            self._left_s += (now_s - self._known_s) * self._share
        self._known_s = now_s
        return now_s >= self._next_s and self._left_s >= 0

    def __enter__(self) -> None:
        # A hair less than asked for, so that work at each tenth tick is not put off to the eleventh.
        self._next_s = self._clock() + 0.98 * self._least_s
        self._before_s = self._cost()

    def __exit__(self, *_: object) -> None:
        self._left_s -= self._cost() - self._before_s


class MachineProbe:
    """Reads the machine.

    Attributes:
        cores: numbers of the processors that are on.
        disks: names of the storage devices.
        unmeasured: column to why it is empty.
    """

    def __init__(self, root: Path = Path("/"), *, clock: Callable[[], float]) -> None:
        self._root, self._clock, self._load = root, clock, str(root / "proc/loadavg")
        self.unmeasured: dict[str, str] = {}
        self._slow = Pace(_SLOW_SHARE, _SLOW_S)
        self._limited = memory_limit_bytes(root) is not None
        # Whole devices of storage: not partitions, loops, memory, or what is made of other devices.
        self._devices = {path.parent.name for path in root.glob("sys/block/*/device")}
        self._read_s = self._stopped_at_s = clock()
        self._moved = self._storage()
        self._times = _processors()
        self.cores = tuple(range(len(self._times)))
        self.disks = tuple(sorted(self._moved))
        self._stopped_s = throttled_s(root)
        if not self.cores:
            self.unmeasured["cpu_share"] = "/proc/stat cannot be read"
        if not self.disks:
            self.unmeasured["storage_read_bytes_per_s"] = "no storage device is to be seen in /proc/diskstats"
        if self._stopped_s is None:
            self.unmeasured["quota_throttled_cpus"] = "no processor quota is set, or its stops are not counted"

    def read(self) -> Reading:
        """Activity of the machine since the last reading; memory and quota in about one reading a second."""
        now_s = self._clock()
        seconds, self._read_s = now_s - self._read_s, now_s
        found: Reading = {}
        self._add_processors(found)
        if seconds > 0 and self.disks:
            self._add_storage(found, seconds)
        if self._slow.due():
            with self._slow:
                self._add_memory(found)
                self._add_quota(found, now_s)
        return found

    def _add_processors(self, found: Reading) -> None:
        before, self._times = self._times, _processors()
        shares = {}
        for core, was, now in zip(self.cores, before, self._times, strict=False):
            # The counters of idle time and of waiting may fall by a tick.
            parts = [max(one - other, 0.0) for one, other in zip(now, was, strict=True)]
            if whole := sum(parts):  # else it sleeps
                shares[core] = [part / whole for part in parts[:3]]
        found |= {f"cpu{core}_share": used for core, (used, _, _) in shares.items()}
        if shares:
            means = map(fmean, zip(*shares.values(), strict=True))
            found |= zip(("cpu_share", "cpu_steal_share", "cpu_iowait_share"), means, strict=True)
        with suppress(OSError):
            load = read_text(self._load)  # proc(5): "0.2 0.1 0.0 runnable/all last"
            found["runnable_threads"] = int(load.split()[3].partition("/")[0])

    def _add_storage(self, found: Reading, seconds: float) -> None:
        before, self._moved = self._moved, self._storage()
        sums = dict.fromkeys(("read_bytes_per_s", "write_bytes_per_s"), 0.0)
        busiest = 0.0
        for name, now in self._moved.items():
            was = before.get(name, now)
            rates = {
                "read_bytes_per_s": max(now.read_bytes - was.read_bytes, 0) / seconds,
                "write_bytes_per_s": max(now.write_bytes - was.write_bytes, 0) / seconds,
            }
            busy = min(max(now.busy_time - was.busy_time, 0) / 1e3 / seconds, 1.0)
            sums = {what: value + rates[what] for what, value in sums.items()}
            busiest = max(busiest, busy)
            found |= {f"disk_{name}_{what}": value for what, value in rates.items()} | {f"disk_{name}_busy_share": busy}
        if self._moved:
            found |= {f"storage_{what}": value for what, value in sums.items()} | {"storage_busy_share": busiest}

    def _storage(self) -> dict[str, Any]:
        """Counters of each device."""
        with suppress(OSError, NotImplementedError):
            found = psutil.disk_io_counters(perdisk=True, nowrap=False)  # to look for that takes as long again
            return {name: found[name] for name in sorted(self._devices & found.keys())}
        return {}

    def _add_memory(self, found: Reading) -> None:
        """Adds memory, from the control group where its limit is below the machine's."""
        limit = memory_limit_bytes(self._root) if self._limited else None
        left = None if limit is None else memory_limit_left_bytes(self._root)
        try:
            memory = psutil.virtual_memory()
        except (OSError, KeyError, ValueError) as error:
            self.unmeasured["memory_used_bytes"] = f"the memory cannot be read: {error}"
            return
        total, available = memory.total, memory.available
        if limit is not None and left is not None and limit < total:
            total, available = limit, min(left, available)
        found |= {"memory_used_bytes": total - available, "memory_total_bytes": total}

    def _add_quota(self, found: Reading, now_s: float) -> None:
        if self._stopped_s is None or now_s <= self._stopped_at_s:
            return
        if (stopped_s := throttled_s(self._root)) is not None:
            found["quota_throttled_cpus"] = max(stopped_s - self._stopped_s, 0.0) / (now_s - self._stopped_at_s)
            self._stopped_s, self._stopped_at_s = stopped_s, now_s


def _processors() -> list[tuple[float, float, float, float]]:
    """Seconds of each processor so far: in use, stolen, idle while something waits for storage, idle otherwise."""
    with suppress(OSError):
        return [
            (t.user + t.nice + t.system + t.irq + t.softirq, t.steal, t.iowait, t.idle)
            for t in psutil.cpu_times(percpu=True)
        ]
    return []


def _begun(call: Callable[[], Any]) -> Future[Any]:
    """A call of the driver on a thread of its own: one that never returns holds up neither readings nor the end."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="xttsbench-gpus", daemon=True).start()
    return future


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
        self._pace = Pace(_SHARE, 0.0)
        self._probe: GpuProbe | None = None
        self.names: dict[int, str] = {}
        self.errors: dict[int, str] = {}
        self.samples: dict[str, tuple[tuple[int, float], ...]] = {}
        self._asked: Future[Any] | None = None  # of the call that is not over
        self._asked_s = 0.0
        try:
            self._probe, reason, self.names = _begun(lambda: _named(*opened())).result(_OPENED_S)
        except TimeoutError:
            reason = f"the NVIDIA driver has not answered within {_OPENED_S:.0f} s; does nvidia-smi?"
        self.unmeasured: dict[str, str] = {"gpus": reason} if reason else {}
        self._known: dict[int, set[str]] = {number: set() for number in self.names}

    def read(self, family: Iterable[int] = ()) -> Reading:
        """Activity of the GPUs since the last reading; an empty one where it is not their turn.

        Args:
            family: the process and its children whose memory on the GPUs is summed up; none where no one asks.
        """
        found: Reading = {}
        self.samples = {}
        if self._probe is None:
            return found
        within_s = 0.0
        if self._asked is None:
            if not self._pace.due():
                return found
            self._asked, self._asked_s, within_s = _begun(self._sampled), time.monotonic(), _ANSWER_S
        try:
            gpus = self._asked.result(within_s)
        except TimeoutError:
            if time.monotonic() - self._asked_s > _SILENT_S:
                self.errors = dict.fromkeys(self.names, "the driver has stopped answering")
                found |= {f"gpu{number}_error": error for number, error in self.errors.items()}
            return found
        self._asked = None
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
        if self._probe is not None and self._asked is None:
            with suppress(TimeoutError):
                _begun(self._probe.close).result(_ANSWER_S)

    def _reading(self, gpu: GpuReadings) -> Reading:
        known = self._known[gpu.index]
        known |= {name for name in (*_COPIED, "throttle_reasons") if getattr(gpu, name)}
        reasons = {name: why for name, why in gpu.unmeasured.items() if why.startswith(_NVML)}
        self.unmeasured |= {f"gpu{gpu.index}_{name}": why for name, why in reasons.items()}
        self.errors.pop(gpu.index, None)
        if refused := [why for name, why in reasons.items() if name in known or not known]:
            self.errors[gpu.index] = refused[0].removeprefix(_NVML)
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
    return probe, reason, {gpu.index: gpu.name for gpu in probe.take()} if probe is not None else {}
