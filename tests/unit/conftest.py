"""Builders of hand-made records, shared by the tests of what is computed from them; and a disk that is full."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.evidence.made import make_evidence
from xttsbench.analysis.steps import Steps, steps_of
from xttsbench.evidence import Evidence
from xttsbench.execution.journal import TRIALS, append_trial
from xttsbench.execution.run_directory import ENVIRONMENT, PLAN, write_json
from xttsbench.records.base import Estimate
from xttsbench.records.machine import MeasuredOn
from xttsbench.records.plan import Accelerator, Comparison, PlannedVariant, RunPlan
from xttsbench.records.report import Verdict
from xttsbench.records.rows import COLUMNS
from xttsbench.records.trial import Parity, Segment, StepProfile, TrialRecord, TrialSpec


def estimate(value: float, spread: float = 0.02) -> Estimate:
    return Estimate(estimate=value, low=value * (1 - spread), high=value * (1 + spread))


def segment(name: str = "as_is", *, steps: int | None = None, warmup: int = 0, gap_s: float = 0.0, **columns: Any):
    """Back-to-back steps with every column of the journal.

    Times are given in seconds by the column's name with ``_s`` for ``_ns`` and counts by their own name; each is one
    value for all steps or an array. ``gap_s`` is wall time outside of ``next()`` and the step.
    """
    given = {key: np.asarray(value, dtype=np.float64) for key, value in columns.items()}
    count = steps if steps is not None else max((value.size for value in given.values()), default=0)
    made = {}
    for column in COLUMNS:
        key = column.replace("_ns", "_s") if column.endswith("_ns") else column
        default = 8.0 if column == "batch_size" else 800.0 if column == "batch_elements" else 0.0
        scale = 1e9 if column.endswith("_ns") else 1
        made[column] = np.rint(np.broadcast_to(given.pop(key, default), count) * scale).astype(np.int64)
    assert not given, f"unknown columns: {sorted(given)}"
    if "wall_s" not in columns:
        made["wall_ns"] = made["wait_ns"] + made["step_ns"] + round(gap_s * 1e9)
    made["start_ns"] = 1_000_000_000 + np.cumsum(made["wall_ns"]) - made["wall_ns"]
    return Segment(
        name=name,
        columns={column: tuple(values.tolist()) for column, values in made.items()},
        warmup_steps=warmup,
    )


def trial(kind: str = "ladder", *segments: Segment, number: int = 0, block: int = 0, **fields: Any) -> TrialRecord:
    told = ("fix", "emulated_ms", "kwargs", "target", "arm", "group", "others", "window_s")
    spec = {name: fields.pop(name) for name in told if name in fields}
    if kind in ("ladder", "input", "arm"):
        fields.setdefault("target_kind", "dataset+step")
    fields = {"status": "ok", "started_utc": "2026-01-02T03:04:05Z", "duration_s": 10.0, "setup_s": 0.5, **fields}
    return TrialRecord(
        spec=TrialSpec(trial_id=f"{number:03d}-{kind}", block=block, kind=kind, **{"target": "data.py:make", **spec}),
        segments=segments,
        **fields,
    )


def on(record: TrialRecord, node: str) -> TrialRecord:
    """The trial as that machine of a cluster measured it."""
    machine = MeasuredOn(node=node, host="h", device="CPU", fingerprint="f")
    return record.model_copy(update={"machine": machine})


def compiled(**changes: Any) -> StepProfile:
    """A step that is one tf.function, all of its time inside."""
    fields = {"steps": 20, "samples": 100, "eager_ops_per_step": 0.0, "eager_op_time_s": 0.0, "op_floor_s": 1e-5}
    return StepProfile(**(fields | {"function_calls_per_step": 1.0, "kinds": {"function": 1.0}} | changes))


def eager(**changes: Any) -> StepProfile:
    """A step of a hundred ops launched from Python."""
    fields = {"steps": 20, "samples": 100, "eager_ops_per_step": 100.0, "eager_op_time_s": 0.02, "op_floor_s": 2e-5}
    return StepProfile(**(fields | {"function_calls_per_step": 0.0, "kinds": {"tensorflow": 1.0}} | changes))


def opaque(**changes: Any) -> StepProfile:
    """A step that sleeps: no op, no function."""
    fields = {"steps": 20, "samples": 100, "eager_ops_per_step": 0.0, "eager_op_time_s": 0.0, "op_floor_s": 1e-5}
    return StepProfile(**(fields | {"function_calls_per_step": 0.0, "kinds": {"python": 1.0}} | changes))


def noisy(mean: float, steps: int, rng: np.random.Generator, cv: float = 0.02) -> np.ndarray:
    """Times around a mean, never negative."""
    return np.abs(mean * (1 + cv * rng.standard_normal(steps)))


def ladder(
    *,
    wait: float = 1e-4,
    step: float = 0.03,
    alone: float | None = None,
    steps: int = 120,
    seed: int = 0,
    anatomy: StepProfile | None = None,
    number: int = 0,
    block: int = 0,
    step_columns: dict[str, Any] | None = None,
    **fields: Any,
) -> TrialRecord:
    """The main kind of a target with a step, simulated; ``step_columns`` are further columns of ``as_is``."""
    rng = np.random.default_rng([seed, block])
    step_s, alone_s = noisy(step, steps, rng), noisy(step if alone is None else alone, steps // 2, rng)
    emulated = {"emulated_s": fields["emulated_ms"][0] / 1e3} if fields.get("emulated_ms") else {}
    columns = {"step_s": step_s, "calls_s": step_s, "cpu_s": step_s * 0.5, **emulated, **(step_columns or {})}
    return trial(
        "ladder",
        segment("warm_up", step_s=[0.4, 0.05, 0.04], wait_s=0.01, trace_s=[0.3, 0, 0], traces=[1, 0, 0]),
        segment("as_is", wait_s=noisy(wait, steps, rng), gap_s=2e-5, **columns),
        segment("step_only", step_s=alone_s, calls_s=alone_s),
        number=number,
        block=block,
        **{"anatomy": anatomy or compiled(), "handoff_s": 2e-5, **fields},
    )


def comparison(
    *names: str,
    accelerators: tuple[Accelerator, ...] = (Accelerator(),),
    blocks: int = 8,
    again: bool = True,
    configs: dict[str, dict[str, Any]] | None = None,
    **fields: Any,
) -> Comparison:
    """Arms by name, the first the baseline, and the baseline again."""
    roles = ["baseline", *["candidate"] * (len(names) - 1)]
    arms = [
        PlannedVariant(id=name, role=role, config=(configs or {}).get(name, {}), kwargs=(configs or {}).get(name, {}))
        for name, role in zip(names, roles, strict=True)
    ]
    if again:
        arms.append(arms[0].model_copy(update={"id": f"{names[0]}:again", "role": "aa"}))
    limits = {"steps": 240, "window_s": 5.0, "trial_s": 100.0, "stall_s": 20.0}
    return Comparison(
        **{"name": "loaders", "target": "data.py:make"} | limits | fields,
        arms=tuple(arms),
        accelerators=accelerators,
        blocks=blocks,
    )


def emulated(ms: float = 10.0) -> Accelerator:
    return Accelerator(kind="emulated", label=f"emulated accelerator, {ms:g} ms a step", step_times_ms=(ms,))


def arm_trial(
    arm: str,
    wall: float = 0.02,
    *,
    block: int = 0,
    steps: int = 60,
    cv: float = 0.01,
    process_sd: float = 0.0,
    drift: float = 0.0,
    emulated_ms: tuple[float, ...] = (),
    has_step: bool | None = None,
    seed: int = 0,
    number: int = 0,
    group: str = "loaders",
    columns: dict[str, Any] | None = None,
    **fields: Any,
) -> TrialRecord:
    """One trial of an arm with that mean step, simulated: noise of the steps, of the process, and of its block.

    Without an emulated accelerator half of a step is the step's, with one what is beyond its wait is waiting.
    """
    rng = np.random.default_rng([seed, block, *arm.encode()])
    shared = np.random.default_rng([seed, block]).normal() * drift
    wall_s = noisy(wall * np.exp(process_sd * rng.standard_normal() + shared), steps, rng, cv)
    has_step = not emulated_ms if has_step is None else has_step
    busy = np.full(steps, emulated_ms[0] / 1e3) if emulated_ms else wall_s / 2 if has_step else np.zeros(steps)
    told = {"emulated_s": busy} if emulated_ms else {}
    as_is = segment(
        "as_is", warmup=1, wait_s=np.maximum(wall_s - busy, 0), step_s=busy, wall_s=wall_s, **told, **(columns or {})
    )
    before = [segment("warm_up", step_s=[0.4, 0.05], traces=[1, 0], trace_s=[0.3, 0])] if has_step else []
    target_kind = "dataset+step" if has_step else "dataset"
    return trial(
        "arm",
        *before,
        as_is,
        number=number,
        block=block,
        arm=arm,
        group=group,
        emulated_ms=emulated_ms,
        **{"target_kind": target_kind} | fields,
    )


def dead(arm: str, status: str = "killed", *, block: int = 0, emulated_ms: tuple[float, ...] = (), **fields: Any):
    """A trial of an arm that did not end well."""
    return trial(
        "arm",
        **{"block": block, "arm": arm, "group": "loaders", "emulated_ms": emulated_ms, "status": status}
        | {"cause": "killed by SIGKILL in phase 'as_is'"}
        | fields,
    )


def parity(*others: str, baseline: str = "a", status: str = "ok", found: Parity | None = None, **fields: Any):
    """A trial of parity; ``found`` is what it says, by default that all are the same."""
    told = found or Parity(batches=8, tolerance=1e-4, same=others)
    return trial(
        "parity",
        arm=baseline,
        group="loaders",
        others={name: {} for name in others},
        status=status,
        **{"parity": told} | fields,
    )


def steps(**columns: Any) -> Steps:
    return steps_of(segment(**{"batch": -1} | columns))


def verdict(summary: str = "Nothing was measured.", **changes: Any) -> Verdict:
    """A verdict that names nothing, since nothing was measured."""
    measured = [name for name in Verdict.model_fields if name.endswith(("_s", "fraction", "utilization"))]
    fields = {"bottleneck": "inconclusive", "confidence": 0.0} | dict.fromkeys(measured)
    return Verdict(**{"summary": summary} | fields | changes)


def run_plan(**changes: Any) -> RunPlan:
    """The plan of a run, by default of a diagnosis."""
    fields = {"kind": "diagnose", "command": "xttsbench", "created_utc": "2026-01-02T03:04:05+00:00"}
    return RunPlan(**{"target": "data.py:make", "steps": 240, "budget_s": 300.0} | fields | changes)


def run_directory(
    directory: Path, plan: RunPlan, environment: Mapping[str, Any], trials: Sequence[TrialRecord]
) -> Path:
    """The files that a run leaves before its report is built."""
    directory.mkdir(exist_ok=True)
    write_json(directory / PLAN, plan.model_dump(mode="json"))
    write_json(directory / ENVIRONMENT, dict(environment))
    (directory / TRIALS).touch()
    for each in trials:
        append_trial(directory, each)
    return directory


@pytest.fixture(scope="session")
def build() -> SimpleNamespace:
    builders = (estimate, segment, trial, on, compiled, eager, opaque, noisy, ladder, steps)
    builders += (comparison, emulated, arm_trial, dead, parity, run_plan, run_directory)
    return SimpleNamespace(**{builder.__name__: builder for builder in builders})


@contextmanager
def limited_files(size_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size: writing more fails as it does on a full disk, with an ``OSError``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    return limited_files


@pytest.fixture(scope="session")
def evidence() -> Callable[..., Evidence]:
    return make_evidence
