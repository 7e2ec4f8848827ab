"""Whole runs by hand: a plan, an environment and simulated trials, one run for each way that a diagnosis can end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.unit.conftest import run_plan
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.records.plan import Accelerator, RunPlan
from xttsbench.records.readings import GpuReadings, HostReadings, Readings
from xttsbench.records.trial import Batches, Devices, MeasurementOverhead, StackLine, Trace, TrialError, TrialRecord

ENVIRONMENT: dict[str, Any] = {
    "cpu": {"allowed_cpus": 2.0, "affinity_cpus": 8, "quota_cpus": 2.0},
    "gpus": [],
    "unmeasured": {"gpus": "no NVIDIA driver"},
    "versions": {"tensorflow": "2.21.0"},
    "größe": 1 / 3,
}
EMULATED = Accelerator(kind="emulated", label="emulated accelerator, 20 ms a step", step_times_ms=(20.0,))


class Run(NamedTuple):
    plan: RunPlan
    environment: dict[str, Any]
    trials: tuple[TrialRecord, ...]


def plan(**changes: Any) -> RunPlan:
    command, kwargs = "xttsbench diagnose data.py:make", {"lr": 1e-4, "sizes": [1, 2], "name": "ä"}
    return run_plan(**{"command": command, "kwargs": kwargs, "steps": 400, "seed": 7} | changes)


def pipeline() -> Pipeline:
    place = Location(file="data.py", line=9, op="Map/_2")
    return Pipeline(
        ops=(
            PipelineOp(name="Range/_1", op="RangeDataset"),
            PipelineOp(name="Map/_2", op="MapDataset", cost_s=0.02, python_functions=("t",), location=place),
            PipelineOp(name="Prefetch/_3", op="PrefetchDataset", inputs=("Map/_2",)),
        ),
        python_functions=(PythonFunction(token="t", kind="numpy_function", name="load", gil="blocks", location=place),),
        costs_from="the model of tf.data",
    )


def readings(trial: TrialRecord) -> Readings:
    """Ten samples over the steps as they are."""
    columns = trial.segment("as_is").columns  # type: ignore[union-attr]
    times = tuple(int(t) for t in np.linspace(columns["start_ns"][0], columns["start_ns"][-1], 10))
    used = tuple(np.linspace(0, 1, 10))
    host = HostReadings(t_ns=times, cpu_s=used, machine_busy_s=used, machine_steal_s=(0.0,) * 10, machine_idle_s=used)
    gpu = GpuReadings(index=0, name="GPU", uuid="u", t_ns=times, unmeasured={"power_w": "not supported"})
    return Readings(host=host, gpus=(gpu,))


def starving(build) -> Run:
    """Waits for its input; two processes agree."""
    batches = Batches(cached=8, bytes=9, shapes=("(8, 9)",), padding_share=0.6, padding_component="x")
    first = build.ladder(wait=0.02, step=0.01, steps=260, devices=Devices(cpus=2), batches=batches)
    first = first.model_copy(
        update={"readings": readings(first), "overhead": MeasurementOverhead(overhead_s=1e-5, pairs=9, method="paired")}
    )
    return Run(
        plan(),
        ENVIRONMENT,
        (
            first,
            build.trial("pipeline", build.segment("input_only", wait_s=[0.02] * 90, cpu_s=0.001), number=1),
            build.trial("pipeline", number=2, pipeline=pipeline()),
            build.ladder(wait=0.021, step=0.01, number=3, block=1),
            build.trial("xla", number=4, block=1, status="raised", cause="no kernel", notes=("XLA has no kernel",)),
        ),
    )


def eager(build) -> Run:
    """Runs op by op; the graph is five times as fast."""
    lines = (StackLine(file="train.py", line=8, function="step", kind="tensorflow", share=0.9, steps_share=1.0),)
    ladder = build.ladder(step=0.05, anatomy=build.eager(lines=lines), step_columns={"calls_s": 0.0})
    given, graph = build.segment("step_only", step_s=[0.05] * 40), build.segment("graph", step_s=[0.01] * 40)
    return Run(plan(), ENVIRONMENT, (ladder, build.trial("graph", given, graph, number=1)))


def retracing(build) -> Run:
    traces = (np.arange(120) % 6 == 5).astype(int)
    step = 0.02 + 0.2 * traces
    ladder = build.ladder(
        step_columns={"step_s": step, "calls_s": step, "traces": traces},
        traces=(Trace(step=5, function="step", reason="python value", signature="s", time_s=0.2),),
    )
    return Run(plan(), ENVIRONMENT, (ladder,))


def computing(build) -> Run:
    return Run(plan(), ENVIRONMENT, (build.ladder(step=0.03, devices=Devices(gpus=("GPU:0",)), transfer_s=1e-3),))


def emulated(build) -> Run:
    ladder = build.ladder(wait=0.001, step=0.0205, emulated_ms=(20.0,), step_columns={"calls_s": 2e-4})
    return Run(plan(accelerator=EMULATED), ENVIRONMENT, (ladder,))


def bare(build) -> Run:
    segment = build.segment(wait_s=build.noisy(0.004, 100, np.random.default_rng(0)), epoch=np.arange(100) // 10)
    return Run(plan(), ENVIRONMENT, (build.trial("ladder", segment, target_kind="dataset"),))


def few(build) -> Run:
    return Run(plan(steps=1), ENVIRONMENT, (build.ladder(steps=1),))


def raised(build) -> Run:
    error = TrialError(type="ValueError", message="bad batch", file="data.py", line=3)
    cause = "ValueError: bad batch (data.py:3)"
    return Run(plan(), {}, (build.trial("ladder", status="raised", cause=cause, error=error, target_kind=None),))


def empty(build) -> Run:
    return Run(plan(), ENVIRONMENT, (build.trial("ladder", status="empty", cause="the dataset yields no batch"),))


def slow(build) -> Run:
    cause = "still in phase 'as_is' after its time limit of 150 s"
    warm_up = build.segment("warm_up", wait_s=[1.0, 1.0], step_s=[27.0, 39.0])
    return Run(plan(), ENVIRONMENT, (build.trial("ladder", warm_up, status="time_limit", cause=cause),))


def nothing(build) -> Run:
    return Run(plan(), ENVIRONMENT, ())


def interrupted(build) -> Run:
    broken = build.trial("pipeline", number=1, status="interrupted", cause="interrupted in phase 'as_is'")
    return Run(plan(), ENVIRONMENT, (build.ladder(wait=0.02, step=0.01), broken))


def killed(build) -> Run:
    return Run(plan(), ENVIRONMENT, (build.ladder(wait=0.02, step=0.01, status="killed", cause="killed by SIGKILL"),))


def not_a_number(build) -> Run:
    batches = Batches(cached=8, bytes=9, shapes=("(8, 9)",), nonfinite=("mel",))
    return Run(plan(), ENVIRONMENT, (build.ladder(wait=0.02, step=0.01, batches=batches),))


RUNS: tuple[Callable[[Any], Run], ...] = (
    starving,
    eager,
    retracing,
    computing,
    emulated,
    bare,
    few,
    raised,
    empty,
    slow,
    nothing,
    interrupted,
    killed,
    not_a_number,
)


@pytest.fixture(scope="session")
def runs(build) -> dict[str, Run]:
    return {made.__name__: made(build) for made in RUNS}
