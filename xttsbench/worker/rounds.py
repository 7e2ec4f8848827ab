"""Rounds of the main trial: the target as it is, its step alone and its input alone, in turn within one process.

A step is alone only when its input stands still, children of the process included. It does so once its buffers are
full, so the step alone comes right after the target as it is, which is far from full buffers only where the input is
what limits. Taking batches as fast as they come empties the buffers, so the input alone comes last.

The target as it is begins with its buffers as they are in the middle of a long training: full where the input keeps up
with the step, empty where it does not. Filling them beside the step would take longer than a round, and the input would
work harder meanwhile than it ever does later.
"""

from __future__ import annotations

import time
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.source import walk
from xttsbench.probes.clock import canary_ns
from xttsbench.probes.procfs import children_cpu_ns
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import CachedBatches, LiveBatches
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.failure import ExhaustedError

_ALONE: Final = 0.5  # Length of the other conditions' stretches, as a share of the stretch as it is
_KEEPS_UP: Final = 0.10  # Share of a step that is spent waiting, below which the input keeps up with it
_START: Final = 0.1
"""Share of the window for the steps before the first round, by which it is seen whether the input keeps up."""
_SKIP_S: Final = 4.0  # Twice what passing over batches is expected to take
_KEPT: Final = 256
_KEPT_BYTES: Final = 512 * 1024**2
_USED_UP: Final = 0.1
"""Share of a stretch for which what stood ready is taken: handing it over takes next to no time, however much it is."""
_LATE: Final = 0.2  # Share of a step: a batch that takes as long was not ready
BETWEEN: Final = "between"
"""Segment of the batches that stood ready before the input alone; no figure is made of them."""


class Keeping(LiveBatches):
    """A live source that keeps batches for the step alone, ``most`` at most, and knows its last wait."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)
        self.most = 0
        self.batches: list[Any] = []
        self.indices: list[int] = []
        self.wait_s = 0.0

    def next(self) -> Any:
        """The next batch, kept where there is room."""
        began = time.perf_counter()
        batch = super().next()
        self.wait_s = time.perf_counter() - began
        if len(self.batches) < self.most:
            self.batches.append(batch)
            self.indices.append(self.batch)
        return batch

    def forget(self) -> None:
        """Keep from here on."""
        self.batches, self.indices = [], []


class Rounds:
    """Measures rounds on one iterator; the trial's window is for the target as it is, the others take as much again.

    Args:
        spec: the trial's.
        loaded: the target.
        step: its step; ``None`` where it has none.
        bench: records the steps.
        source: an iterator of its dataset, which may have handed out batches.
        bytes_per_batch: of the batches that are kept for the step alone.
    """

    def __init__(
        self, spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench, source: Keeping, bytes_per_batch: float
    ) -> None:
        self._spec, self._step, self._bench, self._source = spec, step, bench, source
        source.most = max(min(_KEPT, int(_KEPT_BYTES / max(bytes_per_batch, 1.0))), 1)
        # Else the input alone is the target as it is.
        self._alternating = step is not None or bench.accelerator is not None
        self._held = batches_held(loaded.dataset)
        self._step_s = 0.0
        self._keeps_up = False
        self._stood_still = True

    def measure_round(self, number: int) -> None:
        """Measure each condition once.

        Raises:
            ExhaustedError: the dataset yields nothing when it is iterated a second time.
        """
        spec, bench = self._spec, self._bench
        stretch_s = spec.window_s / spec.rounds
        with bench.round(number) as mark:
            bench.channel.phase("as_is")
            if not number:
                self._start(stretch_s)
            self._as_in_training(number, stretch_s)
            self._source.forget()
            self._original(number, Limit(max(spec.steps // spec.rounds, 1), stretch_s, 1 if number else spec.min_steps))
            if self._step is not None:
                # Copies, since the source goes on to keep the batches of the input alone.
                batches, indices = [*self._source.batches], [*self._source.indices]
                mark.update(self._step_alone(number, _ALONE * stretch_s, batches, indices))
            if self._alternating:
                self._input_alone(number, _ALONE * stretch_s)

    def measure_stretch(self, number: int) -> None:
        """Let the target go on as it is, for as long as the trial allows, as a round that has no other condition."""
        stretch_s = self._spec.stretch_s
        if not stretch_s:
            return
        with self._bench.round(number):
            self._bench.channel.phase("as_is")
            self._as_in_training(number, stretch_s)
            self._source.forget()
            self._original(number, Limit(self._spec.steps, stretch_s, 1))

    def end(self) -> None:
        """Have the input stand still for what comes next; one that does not is closed, which may take many seconds."""
        self._source.most = 0
        self._source.forget()
        if not self._wait_until_idle():
            self._source.close()

    def _start(self, stretch_s: float) -> None:
        """Warm up: use up what was made ready during compilation, and see whether the input keeps up with the step.

        A repeat passes over what other processes measured, so that it adds to what is known of the data.
        """
        with self._bench.without_accelerator():
            if (ahead := self._spec.skip - self._source.batch - 1) > 0:
                self._bench.run(BETWEEN, self._source, None, Limit(ahead, _SKIP_S, 1, fair_s=0.0, most=ahead))
        self._use_up(0, stretch_s)
        self._original(0, Limit.exactly(1), warmup=1)
        if self._alternating:
            self._original(0, Limit(4, _START * self._spec.window_s, 1, fair_s=0.25))
        self._bench.segments["as_is"].warmup(self._bench.segments["as_is"].count)

    def _as_in_training(self, number: int, stretch_s: float) -> None:
        """Have the buffers as they are in the middle of a training: a look at what was measured has filled them."""
        if self._keeps_up:
            self._wait_until_idle()
        elif number and self._alternating:
            self._use_up(number, stretch_s)

    def _original(self, number: int, limit: Limit, warmup: int = 0) -> None:
        """Run the target as it is, and see how long a step takes and whether its batches were ready."""
        steps = self._bench.run("as_is", self._source, self._step, limit, round=number, warmup=warmup)
        if not steps:
            raise ExhaustedError("the dataset yields nothing when it is iterated a second time")
        rows = self._bench.segments["as_is"]
        walls, waits = (
            sum(rows.values(name, rows.count - steps, rows.count).values()) for name in ("wall_ns", "wait_ns")
        )
        self._step_s = walls / 1e9 / steps
        self._keeps_up = self._alternating and waits < _KEEPS_UP * walls

    def _step_alone(self, number: int, stretch_s: float, batches: list[Any], indices: list[int]) -> dict[str, Any]:
        """Run the step on the batches that it had beside its input; what the round's mark says of that.

        The canary runs here and not at the ends of the round, where the input is at work beside it.
        """
        bench = self._bench
        bench.channel.phase("step_only")
        idle = self._wait_until_idle()
        before_ns = canary_ns() if idle else None
        alone = Limit(len(batches), stretch_s, min(2, len(batches)), fair_s=0.0)
        bench.run("step_only", CachedBatches(batches, indices), self._step, alone, round=number)
        after_ns = canary_ns() if idle else None
        return {"input_idle": idle, "canary_before_ns": before_ns, "canary_after_ns": after_ns}

    def _input_alone(self, number: int, stretch_s: float) -> None:
        bench = self._bench
        bench.channel.phase("input_only")
        self._use_up(number, stretch_s)
        with bench.without_accelerator():
            limit = Limit(self._spec.steps, stretch_s, 2, fair_s=0.0)
            bench.run("input_only", self._source, None, limit, round=number)

    def _use_up(self, number: int, stretch_s: float) -> None:
        """Take the batches that stand ready.

        For a tenth of the stretch, and until one was late or four times that; never many more than can have been ready.
        """
        began, least_s, taken = time.perf_counter(), _USED_UP * stretch_s, 0
        with self._bench.without_accelerator():
            while taken < 2 * self._held:
                if not self._bench.run(BETWEEN, self._source, None, Limit.exactly(1), round=number):
                    return
                taken, took_s = taken + 1, time.perf_counter() - began
                if took_s > 4 * least_s or (took_s > least_s and self._source.wait_s >= _LATE * self._step_s):
                    return

    def _wait_until_idle(self) -> bool:
        """Wait until the buffers are full, as long as that may take; whether the input was seen to stand still."""
        most_s = min(max(self._held * self._step_s, _IDLE_S[0]), _IDLE_S[1]) if self._stood_still else _IDLE_S[0]
        self._stood_still = stands_still(most_s, element_s=self._step_s)
        return self._stood_still


_IDLE_S: Final = (1.0, 10.0)
"""Seconds to wait at least and at most for an input to stand still."""
_LOOK_S: Final = 0.03
_LOOK_AT_CHILDREN_S: Final = 0.1  # The kernel tells their time in hundredths of a second
_LONGEST_LOOK_S: Final = 0.5
_IDLE_SHARE: Final = 0.10  # Of one processor: a family of processes that uses less has filled its buffers


def stands_still(most_s: float, element_s: float) -> bool:
    """Wait until this process and its children use next to no processor, so many seconds at most; whether they do.

    A look takes as long as an element, ``element_s``, in the midst of which a pipeline may sleep.
    """
    until = time.perf_counter() + most_s
    while True:
        used_ns, in_children_ns = time.process_time_ns(), children_cpu_ns()
        look_s = min(max(element_s, _LOOK_AT_CHILDREN_S if in_children_ns else _LOOK_S), _LONGEST_LOOK_S)
        time.sleep(look_s)
        used_ns = time.process_time_ns() - used_ns + children_cpu_ns() - in_children_ns
        if used_ns < _IDLE_SHARE * look_s * 1e9:
            return True
        if time.perf_counter() > until:
            return False


_UNSEEN: Final = 16
"""Batches that AUTOTUNE, or a loader in processes of its own, is taken to keep ready."""


def batches_held(dataset: Any) -> int:
    """Number of batches that a pipeline may keep ready, roughly: it says how long to wait for full buffers."""
    sizes = (int(one._buffer_size) for one in walk(dataset) if type(one).__name__ == "_PrefetchDataset")
    return _UNSEEN + sum(_UNSEEN if size == tf.data.AUTOTUNE else size for size in sizes)
