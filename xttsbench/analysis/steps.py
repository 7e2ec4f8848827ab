"""The steps of a segment as arrays in seconds, its warm-up cut off: what every other analysis starts from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.steady_state import SteadyState, steady_state
from xttsbench.records.trial import ABSENT, Segment, TrialRecord

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """Columns of a segment, one entry per step, times in seconds.

    ``compile_s`` is the part of a step that goes to tracing and compilation. TensorFlow's own clocks leave out graph
    optimisation and kernel set-up, so a step that traced or compiled is charged with all of its excess over the median
    step that did not, or with those clocks where every step compiles.
    """

    start_s: FloatArray
    wall_s: FloatArray
    wait_s: FloatArray
    step_s: FloatArray
    emulated_s: FloatArray
    device_s: FloatArray
    calls_s: FloatArray
    sync_s: FloatArray
    gc_s: FloatArray
    cpu_s: FloatArray
    main_cpu_s: FloatArray
    clocked_compile_s: FloatArray
    traces: npt.NDArray[np.int64]
    compiles: npt.NDArray[np.int64]
    syncs: npt.NDArray[np.int64]
    calls: npt.NDArray[np.int64]
    batch_size: npt.NDArray[np.int64]
    batch_elements: npt.NDArray[np.int64]
    shape_id: npt.NDArray[np.int64]
    epoch: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int64]
    valid_frames: npt.NDArray[np.int64]
    pause_s: FloatArray
    batch: npt.NDArray[np.int64]
    round: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.wall_s)

    @property
    def rate_per_s(self) -> float:
        """Samples per second of wall time; steps per second where the elements have no batch dimension."""
        return float(self.batch_size.sum() or len(self)) / float(self.wall_s.sum())

    @cached_property
    def compiling(self) -> npt.NDArray[np.bool_]:
        """Steps in which something was traced or compiled."""
        return (self.traces > 0) | (self.compiles > 0)

    @cached_property
    def compile_s(self) -> FloatArray:
        """Seconds of each step that went to tracing and compilation."""
        clean = self.step_s[~self.compiling]
        excess = self.step_s - np.median(clean) if len(clean) >= 3 else self.clocked_compile_s
        spent = np.where(self.compiling, np.maximum(excess, self.clocked_compile_s), 0.0)
        return np.clip(spent, 0.0, self.step_s)

    @cached_property
    def working_s(self) -> FloatArray:
        """``step_s`` without tracing and compilation."""
        return self.step_s - self.compile_s

    @cached_property
    def outside_s(self) -> FloatArray:
        """Seconds inside the step but outside of tf.functions, of waiting for the device, and of compilation."""
        calls = np.minimum(self.calls_s, self.step_s)
        compile_outside_s = np.maximum(self.compile_s - calls, 0.0)
        return np.clip(self.step_s - calls - self.emulated_s - self.device_s - compile_outside_s, 0.0, None)

    def __getitem__(self, rows: slice | npt.NDArray[np.bool_]) -> Steps:
        return Steps(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


def steps_of(segment: Segment) -> Steps:
    """All rows of a segment but its known warm-up; times in seconds, ``start_s`` from the first row."""

    def column(name: str) -> npt.NDArray[np.int64]:
        # A journal from before the column was kept has none.
        values = segment.columns.get(name, (ABSENT.get(name, 0),) * segment.steps)
        return np.asarray(values, dtype=np.int64)[segment.warmup_steps :]

    def seconds(name: str) -> FloatArray:
        return column(name) / 1e9

    start_ns = column("start_ns")
    return Steps(
        start_s=(start_ns - start_ns[0]) / 1e9 if len(start_ns) else np.zeros(0),
        wall_s=seconds("wall_ns"),
        wait_s=seconds("wait_ns"),
        step_s=seconds("step_ns"),
        emulated_s=seconds("emulated_ns"),
        device_s=seconds("device_ns"),
        calls_s=seconds("calls_ns"),
        sync_s=seconds("sync_ns"),
        gc_s=seconds("gc_ns"),
        cpu_s=seconds("cpu_ns"),
        main_cpu_s=seconds("main_cpu_ns"),
        clocked_compile_s=seconds("trace_ns") + seconds("xla_ns"),
        traces=column("traces"),
        compiles=column("xla_compiles"),
        syncs=column("syncs"),
        calls=column("calls"),
        batch_size=column("batch_size"),
        batch_elements=column("batch_elements"),
        shape_id=column("shape_id"),
        epoch=column("epoch"),
        frames=column("frames"),
        valid_frames=column("valid_frames"),
        pause_s=seconds("pause_ns"),
        batch=column("batch"),
        round=column("round"),
    )


def measured(trial: TrialRecord, name: str) -> Steps | None:
    """The steps of a trial's segment after its known warm-up, or ``None`` where there is none."""
    segment = trial.segment(name)
    return steps_of(segment) if segment is not None and segment.steps > segment.warmup_steps else None


def steady(steps: Steps) -> tuple[Steps, SteadyState]:
    """The steps of the steady state, and how it was found.

    Compilation that recurs is part of what is measured, so the cut is made on the step time without it.
    """
    found = steady_state(np.maximum(steps.wall_s - steps.compile_s, 1e-9))
    return steps[slice(found.cut, None)], found
