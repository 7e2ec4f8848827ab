"""Watches the loop from outside: a row of the clocks for each step, sent in blocks, and what else there is to tell.

On a processor the call of a step returns when it is done. On a GPU it returns at once, and the device's time shows
where the loop waits for it: when the losses of an interval are fetched, which the last row of the interval has.
Evaluations are told apart and are in no step's time; writing checkpoints is, between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from xttsbench.records.train_history import Begun, HistoryLine, Watched
from xttsbench.records.training import CheckpointEntry, Ended, Evaluated, Interval
from xttsbench.training.actions import Action
from xttsbench.worker.channel import Channel

if TYPE_CHECKING:
    from xttsbench.training.step import StepResult
    from xttsbench.training.stream import Fetched

SEGMENT: Final = "as_is"
WARM_UP: Final = "warm_up"
NAMES: Final = (
    "start_ns",
    "wall_ns",
    "wait_ns",
    "step_ns",
    "device_ns",
    "emulated_ns",
    "cpu_ns",
    "main_cpu_ns",
    "batch_size",
    "shape_id",
    "epoch",
    "frames",
    "valid_frames",
)
"""Columns of :data:`xttsbench.records.step_row.COLUMNS` that a trainer can know."""
_FLUSH_NS: Final = 500_000_000
_OF_BATCH: Final = 5
"""Columns at the end of a row that tell of its batch."""


class Watch(Action):
    """Sends rows and events over a channel.

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
        self._rows: list[tuple[int, ...]] = []
        self._shapes: dict[tuple[int, ...], int] = {}
        self._of_batch: tuple[int, ...] = (0,) * _OF_BATCH
        self._open = False
        self._start_ns = self._got_ns = self._end_ns = self._device_ns = 0
        self._last_ns = self._mark_ns = self._flushed_ns = 0
        self._cpu_ns = self._main_ns = 0
        self._interval = [0, 0, 0, 0, 0, 0]

    def begun(self, step: int) -> None:
        """Tell what is ready, and how long that took, as a segment of one row."""
        told = self._begun(step)
        now = self._clock()
        warm_ns = round(told.warm_up_s * 1e9)
        row = {"start_ns": now - warm_ns, "wall_ns": warm_ns, "step_ns": warm_ns}
        # The first batch waits for a pipeline that has just been made.
        self._channel.send({"warmup": 1, "segment": SEGMENT})
        self._channel.send({"rows": WARM_UP, "columns": {name: [value] for name, value in row.items()}})
        self._channel.phase(SEGMENT)
        self._tell(HistoryLine(session=0, begun=told))
        self._last_ns = self._mark_ns = self._flushed_ns = self._clock()
        self._cpu_ns, self._main_ns = time.process_time_ns(), time.thread_time_ns()

    def fetching(self) -> None:
        """The step before has ended, with whatever came after it."""
        if self._open:
            self._close()
        now = self._clock()
        if now - self._flushed_ns > _FLUSH_NS:
            self._flush(now)
            now = self._clock()
        self._start_ns = now

    def fetched(self, batch: Fetched) -> None:
        """Note when, and what."""
        self._got_ns = self._clock()
        shape = (batch.frames, batch.samples)
        known = self._shapes.get(shape)
        if known is None:
            known = self._shapes[shape] = len(self._shapes)
            self._channel.send({"shape": f"{batch.samples} clips, {batch.frames} frames with padding"})
        self._of_batch = (batch.samples, known, batch.position.epoch, batch.frames, batch.valid_frames)

    def stepped(self, result: StepResult) -> None:
        """The row is open until the next batch is asked for: its losses may be fetched yet."""
        self._end_ns = self._clock()
        self._device_ns = 0
        self._mark_ns = self._end_ns
        self._open = True

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
        self._flush(now)
        self._tell(HistoryLine(session=0, interval=interval, watched=watched))

    def evaluated(self, evaluated: Evaluated) -> None:
        """What it took is no step's."""
        if self._open:
            self._close()
        took_ns = self._clock() - self._mark_ns
        self._tell(HistoryLine(session=0, evaluated=evaluated, took_s=took_ns / 1e9))
        self._last_ns += took_ns
        self._cpu_ns, self._main_ns = time.process_time_ns(), time.thread_time_ns()

    def saved(self, entry: CheckpointEntry) -> None:
        """Pass it on."""
        self._tell(HistoryLine(session=0, saved=entry))

    def warned(self, sentence: str) -> None:
        """Pass it on."""
        self._tell(HistoryLine(session=0, warned=sentence))

    def ended(self, ended: Ended) -> None:
        """Send what is left."""
        if self._open:
            self._close()
        self._flush(self._clock())
        self._tell(HistoryLine(session=0, ended=ended))

    def flush(self) -> None:
        """Send the rows of all steps that ended, where an error ends the loop."""
        if self._open:
            self._close()
        self._flush(self._clock())

    def _close(self) -> None:
        """Add the row of the step that ended."""
        cpu_ns, main_ns = time.process_time_ns(), time.thread_time_ns()
        wall_ns, wait_ns = self._end_ns - self._last_ns, self._got_ns - self._start_ns
        step_ns = self._end_ns - self._got_ns
        clocks = (self._emulated_ns(), cpu_ns - self._cpu_ns, main_ns - self._main_ns)
        self._rows.append((self._start_ns, wall_ns, wait_ns, step_ns, self._device_ns, *clocks, *self._of_batch))
        self._last_ns, self._cpu_ns, self._main_ns, self._open = self._end_ns, cpu_ns, main_ns, False
        samples, valid_frames = self._of_batch[0], self._of_batch[-1]
        for index, value in enumerate((wall_ns, wait_ns, step_ns, valid_frames, samples, 1)):
            self._interval[index] += value

    def _flush(self, now_ns: int) -> None:
        if self._rows:
            columns = dict(zip(NAMES, zip(*self._rows, strict=True), strict=True))
            self._channel.send({"rows": SEGMENT, "columns": columns})
            self._rows.clear()
        self._flushed_ns = now_ns

    def _tell(self, line: HistoryLine) -> None:
        told: dict[str, Any] = line.model_dump(mode="json", exclude_none=True)
        self._channel.send({"told": told})
        self._mark_ns = self._clock()
