"""``python -m xttsbench.worker.training FD ROWS``: trains as the parent at the other end of the socket FD says.

ROWS is the descriptor of the memory for rows. The loop is watched from outside: each step's clocks are a row there, and
events are told. On a processor the call of a step returns when it is done. On a GPU it returns at once, and the
device's time shows where the loop waits for it: when the losses of an interval are fetched, which the last row of the
interval has. Evaluations are told apart and are in no step's time; writing checkpoints is, between two steps.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from xttsbench.probes.procfs import ChildrenCpu
from xttsbench.records.rows import StepRow
from xttsbench.records.training import Begun, CheckpointEntry, Ended, Evaluated, HistoryLine, Interval, Watched
from xttsbench.training.loop import Action
from xttsbench.worker.channel import Channel, answer, quiet_unless_it_fails

if TYPE_CHECKING:
    from xttsbench.training.step import StepResult
    from xttsbench.training.stream import Fetched

SEGMENT: Final = "as_is"
WARM_UP: Final = "warm_up"
_CHILDREN_NS: Final = 2_000_000_000
"""The processor time of the processes that prepare batches is read this often: reading takes as long as a quick step.
"""


class Watch(Action):
    """Writes rows and sends events over a channel.

    Args:
        channel: to the parent.
        begun: makes what is told when the loop begins, from the steps of earlier sessions.
        emulated_ns: what an emulated accelerator waited in the last step.
        clock: nanoseconds; the processors' clocks are those of the process and of this thread.
    """

    def __init__(
        self,
        channel: Channel,
        begun: Callable[[int], Begun],
        *,
        emulated_ns: Callable[[], int] = lambda: 0,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._channel = channel
        self._begun = begun
        self._emulated_ns = emulated_ns
        self._clock = clock
        self._shapes: dict[tuple[int, ...], int] = {}
        self._row: StepRow | None = None
        self._is_open = False
        self._interval = [0, 0, 0, 0, 0, 0]
        self._warm_up, self._segment = (channel.rows.segment(name) for name in (WARM_UP, SEGMENT))
        self._start_ns = self._got_ns = self._end_ns = self._device_ns = 0
        self._last_ns = self._mark_ns = self._own_ns = 0
        self._cpu_ns = self._main_ns = 0
        self._children, self._spread, self._spread_ns = ChildrenCpu(), 0, 0

    def begun(self, step: int) -> None:
        """Tell what is ready, and how long that took, as a segment of one row."""
        told = self._begun(step)
        now = self._clock()
        warm_ns = round(told.warm_up_s * 1e9)
        # The first batch waits for a pipeline that has just been made.
        self._segment.warmup(1)
        self._warm_up.append(StepRow(now - warm_ns, warm_ns, step_ns=warm_ns))
        self._channel.phase(SEGMENT)
        self._tell(begun=told)
        self._last_ns = self._mark_ns = self._spread_ns = self._clock()
        self._cpu_ns, self._main_ns = time.process_time_ns(), time.thread_time_ns()

    def fetching(self) -> None:
        """The step before has ended, with whatever came after it."""
        began = self._clock()
        self._close()
        self._start_ns = self._clock()
        self._own_ns += self._start_ns - began

    def fetched(self, batch: Fetched) -> None:
        """Note when, and what."""
        self._got_ns = self._clock()
        shape = (batch.frames, batch.samples)
        known = self._shapes.get(shape)
        if known is None:
            known = self._shapes[shape] = len(self._shapes)
            self._channel.send({"shape": f"{batch.samples} clips, {batch.frames} frames with padding"})
        self._row = StepRow(
            start_ns=self._start_ns,
            wall_ns=0,
            wait_ns=self._got_ns - self._start_ns,
            batch_size=batch.samples,
            shape_id=known,
            epoch=batch.position.epoch,
            frames=batch.frames,
            pause_ns=self._own_ns,
            valid_frames=batch.valid_frames,
        )
        self._own_ns = 0

    def stepped(self, result: StepResult) -> None:
        """The row is open until the next batch is asked for: its losses may be fetched yet."""
        self._end_ns = self._mark_ns = self._clock()
        self._device_ns = 0
        self._is_open = True

    def interval(self, interval: Interval) -> None:
        """The device is done: the wait for it is part of the step."""
        now = self._clock()
        self._device_ns, self._end_ns = now - self._end_ns, now
        self._close()
        wall, wait, step, valid_frames, samples, steps = self._interval
        watched = Watched(
            wall_s=wall / 1e9,
            wait_s=wait / 1e9,
            step_s=step / 1e9,
            outside_s=max(wall - wait - step, 0) / 1e9,
            valid_frames=valid_frames,
            samples=samples,
            steps=steps,
        )
        self._interval = [0, 0, 0, 0, 0, 0]
        if now - self._spread_ns > _CHILDREN_NS:
            self._spread_children(now)
        self._tell(interval=interval, watched=watched)
        self._own_ns += self._clock() - now

    def evaluated(self, evaluated: Evaluated) -> None:
        """Reports an evaluation, whose time belongs to no step."""
        self._close()
        took_ns = self._clock() - self._mark_ns
        self._tell(evaluated=evaluated, took_s=took_ns / 1e9)
        self._last_ns += took_ns
        self._cpu_ns, self._main_ns = time.process_time_ns(), time.thread_time_ns()

    def saved(self, entry: CheckpointEntry) -> None:
        """Pass it on."""
        self._tell(saved=entry)

    def warned(self, sentence: str) -> None:
        """Pass it on."""
        self._tell(warned=sentence)

    def ended(self, ended: Ended) -> None:
        """Pass it on."""
        self.flush()
        self._tell(ended=ended)

    def flush(self) -> None:
        """Close the last row, also where an error ends the loop."""
        self._close()
        self._spread_children(self._clock())

    def _close(self) -> None:
        """Write the row of the step that ended, if one has and is not written yet."""
        row = self._row
        if not self._is_open or row is None:
            return
        self._is_open = False
        cpu_ns, main_ns = time.process_time_ns(), time.thread_time_ns()
        wall_ns, step_ns = self._end_ns - self._last_ns, self._end_ns - self._got_ns
        self._segment.append(
            row._replace(
                wall_ns=wall_ns,
                step_ns=step_ns,
                device_ns=self._device_ns,
                emulated_ns=self._emulated_ns(),
                cpu_ns=cpu_ns - self._cpu_ns,
                main_cpu_ns=main_ns - self._main_ns,
            )
        )
        self._last_ns, self._cpu_ns, self._main_ns = self._end_ns, cpu_ns, main_ns
        for index, value in enumerate((wall_ns, row.wait_ns, step_ns, row.valid_frames, row.batch_size, 1)):
            self._interval[index] += value

    def _spread_children(self, now_ns: int) -> None:
        self._children.spread(self._segment, self._spread)
        self._spread, self._spread_ns = self._segment.count, now_ns

    def _tell(self, **told: Any) -> None:
        tell(self._channel, **told)
        self._mark_ns = self._clock()


def tell(channel: Channel, **told: Any) -> None:
    """Tell the parent what belongs into the history: the fields of a :class:`HistoryLine`."""
    channel.send({"told": HistoryLine(session=0, **told).model_dump(mode="json", exclude_none=True)})


def main(connection: socket.socket, rows: int) -> int:
    """Train until the run is over, a signal comes, or the parent goes away; returns the exit code of this process."""
    began, asked = time.monotonic(), list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))
    # Here and not above: it takes seconds, in which a signal must not end this process half-way.
    with quiet_unless_it_fails():
        from xttsbench.worker.session import serve

    return serve(connection, rows, lambda: bool(asked), began)


if __name__ == "__main__":
    answer(main, "xttsbench.worker.training", 1)
