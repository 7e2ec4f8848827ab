"""The conditions of a diagnosis in rounds within one process: the target as it is, its input alone, its step alone.

A burst of the neighbours hits all conditions of a round alike, and the step alone runs on the very batches that the
step beside its input has had, so that what the two differ by is not what batches or processes differ by.
"""

from __future__ import annotations

import time
from typing import Any, Final

from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.source import CachedBatches, ExhaustedError, LiveBatches

_FIRST: Final = 0.5
"""Share of the window that the first round's stretch gets: one long stretch shows a period, several show the spread."""
_ALONE: Final = 0.5
"""Length of the other conditions' stretches, as a share of the stretch as it is."""
_KEPT: Final = 256
_KEPT_BYTES: Final = 512 * 1024**2
_IDLE_S: Final = 0.5
_LOOK_S: Final = 0.03
_IDLE_SHARE: Final = 0.10
"""Of one processor: a process that uses less has filled its buffers."""
_MOST_FROM_BUFFERS: Final = 20
_LATE: Final = 5.0
"""Times the hand-over of a ready batch: a batch that takes longer was not ready."""
BETWEEN: Final = "between"
"""Segment of the steps at the start of a stretch that use up what buffers held before it; no figure is made of them."""


class Keeping(LiveBatches):
    """A live source whose batches are kept for the step alone, and whose last wait is known.

    Args:
        dataset: where batches come from.
        bytes_per_batch: of a typical one, so that not more is held than memory allows.
    """

    def __init__(self, dataset: Any, bytes_per_batch: float) -> None:
        super().__init__(dataset)
        self._most = max(min(_KEPT, int(_KEPT_BYTES / max(bytes_per_batch, 1.0))), 1)
        self.batches: list[Any] = []
        self.indices: list[int] = []
        self.wait_ns = 0

    def next(self) -> Any:
        """The next batch, kept where there is room."""
        began_ns = time.perf_counter_ns()
        batch = super().next()
        self.wait_ns = time.perf_counter_ns() - began_ns
        if len(self.batches) < self._most:
            self.batches.append(batch)
            self.indices.append(self.batch)
        return batch

    def forget(self) -> None:
        """Keep from here on."""
        self.batches, self.indices = [], []


def run_rounds(
    spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench, *, bytes_per_batch: float, handoff_s: float
) -> None:
    """Measure the segments ``as_is``, ``input_only`` and, where there is a step, ``step_only``, round after round.

    Args:
        spec: of the trial; its window is for the target as it is, the other conditions take as much again.
        loaded: the target.
        step: its step, or ``None``.
        bench: the loop.
        bytes_per_batch: of a typical batch.
        handoff_s: what ``next()`` takes on a ready batch.

    Raises:
        ExhaustedError: the dataset yields nothing when it is iterated a second time.
        StepRaisedError: the dataset or the step raised.
    """
    source = Keeping(loaded.dataset, bytes_per_batch)
    alternating = step is not None or bench.accelerator is not None  # else the input alone is the target as it is
    try:
        for number in range(spec.rounds):
            share = 1.0 if spec.rounds == 1 else _FIRST if not number else (1 - _FIRST) / (spec.rounds - 1)
            stretch_s = spec.window_s * share
            with bench.round(number):
                bench.channel.phase("as_is")
                if number and alternating:
                    _use_up_buffers(source, step, bench, number, stretch_s, handoff_s)
                source.forget()
                limit = Limit(max(int(spec.steps * share), 1), stretch_s, 1 if number else spec.min_steps)
                if not bench.run("as_is", source, step, limit, round=number, warmup=0 if number else 1):
                    raise ExhaustedError("the dataset yields nothing when it is iterated a second time")
                kept, indices = source.batches, source.indices
                if alternating:
                    _input_only(spec, source, bench, number, _ALONE * stretch_s, handoff_s)
                if step is not None:
                    bench.channel.phase("step_only")
                    _settle()
                    alone = Limit(len(kept), _ALONE * stretch_s, min(2, len(kept)), fair_s=0.0)
                    bench.run("step_only", CachedBatches(kept, indices), step, alone, round=number)
    finally:
        source.forget()
        source.close()


def _input_only(
    spec: TrialSpec, source: Keeping, bench: Bench, number: int, stretch_s: float, handoff_s: float
) -> None:
    bench.channel.phase("input_only")
    accelerator, bench.accelerator = bench.accelerator, None
    try:
        _use_up_buffers(source, None, bench, number, stretch_s, handoff_s)
        bench.run("input_only", source, None, Limit(spec.steps, stretch_s, 2, fair_s=0.0), round=number)
    finally:
        bench.accelerator = accelerator


def _use_up_buffers(
    source: Keeping, step: Step | None, bench: Bench, number: int, stretch_s: float, handoff_s: float
) -> None:
    """Take what was made under other conditions: until a batch was not ready, but a fifth of the stretch at most."""
    until = time.perf_counter() + 0.2 * stretch_s
    for _ in range(_MOST_FROM_BUFFERS):
        bench.run(BETWEEN, source, step, Limit(1, 60.0, 1, fair_s=0.0), round=number)
        if source.wait_ns > _LATE * handoff_s * 1e9 or time.perf_counter() > until:
            return


def _settle() -> None:
    """Wait until the pipeline has filled its buffers and stands still, half a second at most."""
    until = time.perf_counter() + _IDLE_S
    while time.perf_counter() < until:
        used_s = time.process_time()
        time.sleep(_LOOK_S)
        if time.process_time() - used_s < _IDLE_SHARE * _LOOK_S:
            return
