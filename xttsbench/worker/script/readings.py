"""The counters and clocks of a process at one moment, and a row of a segment made from two of them."""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import dataclass

from xttsbench.records.step_row import StepRow
from xttsbench.step.watch import Watch


@functools.cache
def _main_clock() -> int:
    """The processor clock of the main thread, which other threads can read too."""
    return time.pthread_getcpuclockid(threading.main_thread().ident or 0)


@dataclass(slots=True)
class Moment:
    """What was counted so far: the watch's counters, processor time of the process and of its main thread."""

    counters: tuple[int, ...]
    cpu_ns: int
    main_cpu_ns: int

    @classmethod
    def now(cls, watch: Watch) -> Moment:
        """Read everything."""
        return cls(watch.counters(), time.process_time_ns(), time.clock_gettime_ns(_main_clock()))

    def since(self, before: Moment, parts: int = 1) -> list[Moment]:
        """What was added since then, for each of so many steps: clocks spread evenly, events on the first."""
        added = [now - then for now, then in zip(self.counters, before.counters, strict=True)]
        cpu, main = self.cpu_ns - before.cpu_ns, self.main_cpu_ns - before.main_cpu_ns
        if parts == 1:  # nearly always, and in every step
            return [Moment(tuple(added), max(cpu, 0), max(main, 0))]
        calls, calls_ns = added[:2]
        nothing = [0] * (len(added) - 2)
        return [
            Moment(
                (
                    calls * (part + 1) // parts - calls * part // parts,
                    calls_ns // parts,
                    *(added[2:] if part == 0 else nothing),
                ),
                max(cpu, 0) // parts,
                max(main, 0) // parts,
            )
            for part in range(parts)
        ]


def row(
    start_ns: int,
    wall_ns: int,
    wait_ns: int,
    added: Moment,
    shape: tuple[int, int, int],
    *,
    epoch: int = 0,
    device_ns: int = 0,
    emulated_ns: int = 0,
    pause_ns: int = 0,
) -> StepRow:
    """One row of a step.

    ``added`` is what was counted in the step; ``shape`` the index of the batch's signature, its first dimension and its
    numbers in all.
    """
    calls, calls_ns, traces, trace_ns, syncs, sync_ns, gc_ns = added.counters
    shape_id, size, elements = shape
    pause_ns = min(pause_ns, wall_ns)
    wait_ns = min(wait_ns, wall_ns - pause_ns)
    step_ns = wall_ns - pause_ns - wait_ns
    # Of calls that are seen from a loop inside them only the part that is no wait belongs to the step.
    calls_ns = min(calls_ns, step_ns)
    return StepRow(
        start_ns=start_ns,
        wall_ns=wall_ns,
        wait_ns=wait_ns,
        step_ns=step_ns,
        device_ns=device_ns,
        emulated_ns=emulated_ns,
        trace_ns=trace_ns,
        traces=traces,
        sync_ns=sync_ns,
        syncs=syncs,
        gc_ns=gc_ns,
        calls=calls,
        calls_ns=calls_ns,
        cpu_ns=added.cpu_ns,
        main_cpu_ns=added.main_cpu_ns,
        batch_size=size,
        batch_elements=elements,
        shape_id=shape_id,
        epoch=epoch,
        pause_ns=pause_ns,
    )
