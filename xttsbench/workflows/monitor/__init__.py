"""The loop of a monitor: reads at an even rhythm, keeps what it comes to, writes the log, shows it to whoever looks.

One thread does it all. What is dear (all processes, the GPUs, the search for oscillations, drawing) has a pace of its
own each (:class:`~xttsbench.probes.live.Pace`), so that all of it takes at most a hundredth of a processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Final, Protocol

from xttsbench.analysis.stream import Stream
from xttsbench.errors import UsageError
from xttsbench.execution.child import now_utc
from xttsbench.probes.live import Gpus, MachineProbe, Pace
from xttsbench.probes.processes import Processes, ProcessProbe, Walk, running
from xttsbench.records import machine as records
from xttsbench.reporting.units import duration
from xttsbench.reporting.words import plain
from xttsbench.workflows.monitor.log import Log

_WALK: Final = (0.0005, 1.0)
_SEARCH: Final = (0.0007, 2.0, 100.0)
"""Share of a processor, and seconds from one time to the next at least; an oscillation is wanted soon."""
_KEPT: Final = 100  # oscillations that the record lists at most, the newest


@dataclass(frozen=True)
class Request:
    """Options of a monitor; ``duration_s`` of ``None`` lasts until someone ends it."""

    interval_s: float = 0.5
    duration_s: float | None = None
    pid: int | None = None
    log: str | None = None
    command: str = ""


class View(Protocol):
    """Display of the readings."""

    def show(self, stream: Stream, own_cpu_share: float) -> None:
        """Show the newest reading, if it is time to."""

    def wait(self, seconds: float) -> bool:
        """Wait that long; True where whoever looks has ended it."""


def monitor(
    request: Request,
    view: View,
    *,
    gpus: Gpus | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[records.Monitored, bool]:
    """Read until the duration is over, the process has ended, or someone ends it.

    Returns:
        What was seen, and whether it was interrupted from outside (Ctrl-C).

    Raises:
        UsageError: there is no such process, or the log cannot be written.
    """
    process = None
    if request.pid is not None:
        try:
            process = ProcessProbe(request.pid, clock=clock)
        except ProcessLookupError:
            raise UsageError(f"--pid {request.pid}: there is no such process, or it has ended; see ps.") from None
    session = _Session(request, process, gpus or Gpus(), clock)
    interrupted = False
    try:
        session.run(view)
    except KeyboardInterrupt:
        interrupted = True
    except BrokenPipeError:  # whoever read the log from standard output has enough
        pass
    finally:
        session.close()
    return session.record(), interrupted


class _Session:
    def __init__(self, request: Request, process: ProcessProbe | None, gpus: Gpus, clock: Callable[[], float]) -> None:
        self._request, self._process, self._gpus, self._clock = request, process, gpus, clock
        self._machine = MachineProbe(clock=clock)
        names = records.columns(
            cores=self._machine.cores, disks=self._machine.disks, gpus=gpus.names, process=process is not None
        )
        self._signals = records.oscillating(names)
        self._stream = Stream(names, self._signals, request.interval_s)
        self._processes = Processes(clock=clock)
        self._walk, self._walk_pace = Walk(), Pace(*_WALK, clock=clock)
        self._search_pace = Pace(*_SEARCH, clock=clock)
        self._turn: Iterator[str] = cycle(self._signals)
        self._errors: dict[int, str] = {}
        self._seen: list[records.ColumnOscillation] = []
        self._live = False
        self._waiting = self._known_at_start()
        self._began_s, self._own_s = clock(), time.process_time()
        self._first_s: float | None = None
        self._started_utc = now_utc()
        self._log = None if request.log is None else Log(request.log, names)

    def run(self, view: View) -> None:
        """Read and show, until it is over."""
        request, next_s = self._request, self._began_s
        while self._process is None or not self._process.ended:
            now_s = self._clock()
            # A reading that comes late leaves the missed ones out and keeps the rhythm.
            next_s += (max(now_s - next_s, 0.0) // request.interval_s + 1) * request.interval_s
            if request.duration_s is not None:
                end_s = self._began_s + request.duration_s
                if now_s >= end_s or (self._first_s is not None and next_s > end_s + request.interval_s / 2):
                    return
            if view.wait(next_s - now_s):
                return
            self._read()
            view.show(self._stream, self._own_share())

    def close(self) -> None:
        """Close what is open."""
        self._gpus.close()
        if self._log is not None:
            self._log.close()

    def record(self) -> records.Monitored:
        """Record of the readings so far."""
        stream, process = self._stream, self._process
        unmeasured = self._machine.unmeasured | self._gpus.unmeasured | (process.unmeasured if process else {})
        return records.Monitored(
            command=self._request.command,
            started_utc=self._started_utc,
            duration_s=round(self._clock() - self._began_s, 3),
            interval_s=self._request.interval_s,
            readings=stream.readings,
            log=self._request.log,
            machine={"processors": len(self._machine.cores)}
            | {f"gpu{number}": name for number, name in self._gpus.names.items()},
            own_cpu_share=self._own_share(),
            signals=stream.signals(),
            oscillations=tuple(self._seen),
            events=tuple(stream.events),
            unmeasured={name: why for name, why in unmeasured.items() if name not in stream.signals()},
        )

    def _read(self) -> None:
        now_s = self._clock()
        if self._first_s is None:
            self._first_s = now_s
        reading: records.Reading = {"time_utc": now_utc(), "t_s": round(now_s - self._first_s, 3)}
        reading |= self._machine.read()
        said, self._waiting = self._waiting, []
        if self._walk_pace.due():
            with self._walk_pace:
                self._walk = self._processes.walk()
            reading |= _users(self._walk)
        family: tuple[int, ...] = ()
        if (process := self._process) is not None:
            process.family = self._walk.family(process.pid)
            family = process.pid, *process.family
            reading |= process.read() | {"process_pid": process.pid, "process_name": process.name}
            if process.ended:
                said.append(f"process {process.pid} ({process.name}) has ended")
            elif process.live is not None and not self._live:
                self._live = True
                said.append(f"process {process.pid} is a watched run: {process.live.script}")
        reading |= self._gpus.read(family)
        said += self._gpu_events()
        for column, samples in self._gpus.samples.items():
            times = ((t_ns / 1e9 - self._first_s, share) for t_ns, share in samples)
            self._stream.take_samples(column, times)
        self._stream.take(reading)
        said += self._searched()
        self._stream.events.extend(records.Event(t_s=self._stream.t_s, text=plain(one)) for one in said)
        if self._log is not None:
            self._log.write(reading | {"event": "; ".join(said) or None})

    def _searched(self) -> list[str]:
        """Look for an oscillation in one of the signals, if it is time to."""
        if not self._search_pace.due():
            return []
        with self._search_pace:
            turns = (next(self._turn) for _ in self._signals)
            column = next(filter(self._stream.swings, turns), None)
            changed = column is not None and self._stream.search(column)
        if column is None or not changed:
            return []
        found = self._stream.oscillations.get(column)
        if found is None:
            return [f"{records.spoken(column)} oscillates no more"]
        self._seen = [*self._seen, found][-_KEPT:]
        return [
            f"{records.spoken(column)} oscillates: it repeats every {duration(found.period_s)} "
            f"({found.variance_share:.0%} of its variance)"
        ]

    def _gpu_events(self) -> list[str]:
        before, self._errors = self._errors, dict(self._gpus.errors)
        said = []
        for number in sorted({*before, *self._errors}):
            if (error := self._errors.get(number)) == before.get(number):
                continue
            name = f"GPU {number} ({self._gpus.names[number]})"
            said.append(f"{name} is read again" if error is None else f"{name} cannot be read: {error}")
        return said

    def _known_at_start(self) -> list[str]:
        said = [f"no GPU is read: {why}" for name, why in self._gpus.unmeasured.items() if name == "gpus"]
        if self._process is None:
            said += [
                f"process {pid} is a watched run; xttsbench monitor --pid {pid} shows its steps"
                for pid in list(running())[: records.LISTED]
            ]
        return said

    def _own_share(self) -> float:
        elapsed_s = self._clock() - self._began_s
        return (time.process_time() - self._own_s) / elapsed_s if elapsed_s > 0 else 0.0


def _users(walk: Walk) -> records.Reading:
    found: records.Reading = {}
    for place, user in enumerate(walk.users, start=1):
        found |= {f"top{place}_name": user.name, f"top{place}_pid": user.pid, f"top{place}_cpus": user.cpus}
    if walk.unseen_cpus is not None:
        found["unseen_cpus"] = walk.unseen_cpus
    return found
