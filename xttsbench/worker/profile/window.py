"""A TensorFlow profile of a window of steady steps, kept for TensorBoard and XProf, and what it says."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, Final

import tensorflow as tf

from xttsbench.analysis.gpu import activity_of
from xttsbench.errors import first_line
from xttsbench.records.trial import ProfileSummary
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import LiveBatches, opened
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.profile.xplane import NEXT, STEP, SYNCHRONISE, ask, newest, read_window

_STEPS: Final = 20
_LONGEST_S: Final = 10.0
"""After which no further step is profiled: a profile of long steps is large, and XProf slow to read it."""
_SETTLE: Final = 5


class ProfiledSteps:
    """A window of steps under TensorFlow's profiler, each with its marker; ``reason`` says why there is none.

    Attributes:
        running: whether the profiler is on.
    """

    def __init__(self, directory: str) -> None:
        self.running = False
        self.reason: str | None = "it ended before enough of its steps were measured to profile some more"
        self._directory = directory
        self._starts_ns: dict[int, int] = {}
        self._began_s = 0.0
        self._marker: Any = None

    def begin(self) -> bool:
        """Turn the profiler on, unless another one is; the first step begins now."""
        try:
            tf.profiler.experimental.start(self._directory)
        except tf.errors.OpError as error:
            theirs = isinstance(error, tf.errors.AlreadyExistsError)
            why = f"TensorFlow's profiler did not start: {first_line(error.message)}"
            self.reason = "the target runs a profiler of its own" if theirs else why
            return False
        self.running, self._began_s = True, time.perf_counter()
        self._step_begins()
        return True

    def _step_begins(self) -> None:
        number = len(self._starts_ns)
        self._starts_ns[number] = time.perf_counter_ns()
        self._marker = tf.profiler.experimental.Trace(STEP, step_num=number, _r=1)
        self._marker.__enter__()

    def step_ended(self) -> None:
        """A step ends, and the next one begins, or the window ends: after so many steps, or after so long."""
        self._marker.__exit__(None, None, None)
        if len(self._starts_ns) >= _STEPS or time.perf_counter() - self._began_s > _LONGEST_S:
            self.close()
        else:
            self._step_begins()

    def close(self) -> None:
        """Turn the profiler off, which writes the profile; a step that has not ended is not in it."""
        if self.running:
            self.running, self.reason = False, None
            try:
                tf.profiler.experimental.stop()
            except tf.errors.OpError as error:  # a full disk, or a target that ended our profiler
                self.reason = f"TensorFlow's profile was not written: {first_line(error.message)}"

    def summary(self) -> ProfileSummary:
        """Summary of the profile, and XProf's verdict."""
        return summarise(self._directory, self._starts_ns) if self.reason is None else without(self.reason)


def profile_window(loaded: Loaded, step: Step | None, bench: Bench, directory: str) -> ProfileSummary:
    """Profile up to twenty steps after five unprofiled ones, with ``next()`` inside the step marker.

    A profile that another profiler prevents is reported as unmeasured; the trial goes on.
    """
    mark, profiled = tf.profiler.experimental.Trace, ProfiledSteps(directory)

    def one(source: LiveBatches) -> None:
        with mark(NEXT):
            batch = source.next()
        if step is not None:
            step(batch)
        if bench.synchronise is not None or bench.accelerator is not None:
            with mark(SYNCHRONISE):
                bench.finish_step()

    with opened(LiveBatches(loaded.dataset), bench.channel) as source, closing(profiled):
        for _ in range(_SETTLE):
            one(source)
        profiled.begin()
        while profiled.running:
            one(source)
            profiled.step_ended()
    return profiled.summary()


def summarise(directory: str, starts_ns: dict[int, int]) -> ProfileSummary:
    """Read the newest XPlane under ``directory``: host, kernels, copies and gaps; and what XProf says of it.

    ``starts_ns`` is when each step began, by its number, ``time.perf_counter_ns``.
    """
    path = newest(directory)
    if path is None:
        return without("TensorFlow wrote no XPlane")
    window = read_window(path, starts_ns)
    if isinstance(window, str):
        return without(window)
    gpu = activity_of(window)
    xprof = ask(path)
    unmeasured = {} if not isinstance(xprof, str) else {"xprof": xprof}
    return ProfileSummary(
        directory="profile",
        steps=gpu.steps,
        gpu=gpu,
        xprof=None if isinstance(xprof, str) else xprof,
        unmeasured=unmeasured,
    )


def without(why: str) -> ProfileSummary:
    """Summary without a profile, with the reason."""
    return ProfileSummary(directory="profile", steps=0, unmeasured={"profile": why})
