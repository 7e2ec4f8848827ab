"""The machine and its GPUs as a reading each time, and how often one may be taken without costing much.

Each reading is what went on since the one before it, from counters that the kernel keeps anyway. What cannot be read is
``None`` in the reading, with the reason in ``unmeasured`` of its probe; a GPU that is lost, or a driver
that answers errors, is a value of the reading.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import fmean
from typing import Any, Final

import psutil

from xttsbench.probes.nvml import GpuProbe, open_gpus
from xttsbench.probes.procfs import (
    MachineTimes,
    memory_limit_bytes,
    memory_limit_left_bytes,
    processor_times,
    read_text,
    throttled_s,
)
from xttsbench.records.machine import Reading
from xttsbench.records.readings import GpuReadings, throttle_reason_names

_SAVED_S: Final = 60.0
_SECTOR_BYTES: Final = 512  # of `/proc/diskstats`, whatever the device's own sectors are
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
        self._root, self._clock = root, clock
        self._stat, self._diskstats = (str(root / "proc" / name) for name in ("stat", "diskstats"))
        self.unmeasured: dict[str, str] = {}
        self._slow = Pace(_SLOW_SHARE, _SLOW_S)
        self._limited = memory_limit_bytes(root) is not None
        self._times = self._read_times()[0]
        self._read_s = self._stopped_at_s = clock()
        self._sectors = self._read_disks({path.name for path in _devices(root)})
        self.cores = tuple(sorted(int(name[3:]) for name in self._times if len(name) > 3))
        self._columns = {name: f"{name}_share" for name in self._times}
        self.disks = tuple(sorted(self._sectors))
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

    def busy_s(self) -> float | None:
        """Processor seconds used by anyone, as of the last reading."""
        times = self._times.get("cpu")
        return None if times is None else times.busy_s

    def _add_processors(self, found: Reading) -> None:
        before, (self._times, found["runnable_threads"]) = self._times, self._read_times()
        for name, now in self._times.items():
            was = before.get(name, now)
            used_s, stolen_s, idle_s, waited_s = (one - other for one, other in zip(now, was, strict=True))
            if (whole_s := used_s + stolen_s + idle_s) <= 0 or name not in self._columns:  # it sleeps, or has just come
                continue
            # The counters of idle time and of waiting may fall by a tick.
            found[self._columns[name]] = min(max(used_s, 0.0) / whole_s, 1.0)
            if name == "cpu":
                found["cpu_steal_share"] = max(stolen_s, 0.0) / whole_s
                found["cpu_iowait_share"] = max(waited_s, 0.0) / whole_s

    def _read_times(self) -> tuple[dict[str, MachineTimes], int | None]:
        """Times of ``cpu`` (all of them) and of each processor, and how many threads run or wait for one."""
        try:
            text = read_text(self._stat)
            times = processor_times(text)
        except (OSError, ValueError):
            return {}, None
        _, found, rest = text.partition("\nprocs_running ")
        return times, int(rest.split(None, 1)[0]) if found else None

    def _add_storage(self, found: Reading, seconds: float) -> None:
        before, self._sectors = self._sectors, self._read_disks(set(self.disks))
        read = written = busiest = 0.0
        for name, now in self._sectors.items():
            rates = [max(one - was, 0) / seconds for one, was in zip(now, before.get(name, now), strict=True)]
            disk = rates[0] * _SECTOR_BYTES, rates[1] * _SECTOR_BYTES, min(rates[2] / 1e3, 1.0)
            names = ("read_bytes_per_s", "write_bytes_per_s", "busy_share")
            found |= {f"disk_{name}_{what}": value for what, value in zip(names, disk, strict=True)}
            read, written, busiest = read + disk[0], written + disk[1], max(busiest, disk[2])
        if self._sectors:
            found["storage_read_bytes_per_s"], found["storage_write_bytes_per_s"] = read, written
            found["storage_busy_share"] = busiest

    def _read_disks(self, names: set[str]) -> dict[str, tuple[int, int, int]]:
        """Sectors read and written, and milliseconds at work, of each device."""
        try:
            lines = read_text(self._diskstats).splitlines()
        except OSError:
            return {}
        found = {}
        for line in lines:
            fields = line.split()
            if len(fields) > 12 and fields[2] in names:
                found[fields[2]] = int(fields[5]), int(fields[9]), int(fields[12])
        return found

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


def _devices(root: Path) -> list[Path]:
    """Whole devices of storage: not partitions, loops, memory, or what is made of other devices."""
    return [path.parent for path in root.glob("sys/block/*/device")]


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
        """Result of the call within so many seconds; raises the call's error, and ``Empty`` while it lasts."""
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
        self._driver.ask(lambda: _named(*opened()))
        try:
            self._probe, reason, self.names = self._driver.answer(_OPENED_S)
        except Empty:
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
