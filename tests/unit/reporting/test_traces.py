"""A run for other programs: what stands in the trace and in the table is what was recorded."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.conftest import changed, make_trial
from tests.unit.reporting.trace_format import problems
from xttsbench.execution.journal import TRIALS, read_trials
from xttsbench.records.code import OpLine, StepOps
from xttsbench.records.frames import steps_table
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.readings import Gap, GpuActivity, GpuDevice, GpuReadings, HostReadings, Readings
from xttsbench.records.rows import COLUMNS
from xttsbench.records.trial import ProfileSummary, Segment, TrialRecord
from xttsbench.reporting import traces
from xttsbench.workflows.tables import csv_of

REFERENCE = Path(__file__).parents[3] / "reports" / "reference"
MS = 1_000_000


def made(**fields: Any) -> TrialRecord:
    """Two steps of 10 ms after waits of 5, the second 3 ms after the first and compiled."""
    columns = {
        "start_ns": (100 * MS, 118 * MS),
        "wall_ns": (15 * MS, 18 * MS),
        "wait_ns": (5 * MS, 5 * MS),
        "step_ns": (10 * MS, 10 * MS),
        "xla_ns": (0, 4 * MS),
        "xla_compiles": (0, 1),
        "trace_ns": (0, 2 * MS),
        "traces": (0, 1),
    }
    return make_trial("000-ladder", Segment(name="as_is", columns=columns, warmup_steps=1), **fields)


def slices(trials: list[TrialRecord]) -> list[tuple[str, int, float, float]]:
    events = json.loads(traces.perfetto(trials))["traceEvents"]
    return [(one["name"], one["tid"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"]


def test_steps_waits_gaps_and_compilations_stand_where_they_were() -> None:
    assert slices([made()]) == [
        ("wait for input", 1, 0.0, 5_000.0),
        ("step", 1, 5_000.0, 10_000.0),
        ("between steps", 1, 15_000.0, 3_000.0),
        ("wait for input", 1, 18_000.0, 5_000.0),
        ("step", 1, 23_000.0, 10_000.0),
        ("trace", 2, 23_000.0, 2_000.0),
        ("XLA compile", 2, 25_000.0, 4_000.0),
    ]


def test_threads_that_compile_side_by_side_take_no_longer_than_their_step() -> None:
    columns = {"start_ns": (0, 10 * MS), "wall_ns": (10 * MS,) * 2, "step_ns": (10 * MS,) * 2, "xla_ns": (25 * MS,) * 2}
    trial = make_trial("000-ladder", Segment(name="as_is", columns=columns))
    text = traces.perfetto([trial])
    compilations = [one for one in json.loads(text)["traceEvents"] if one["name"] == "XLA compile"]
    assert [(one["ts"], one["dur"], one["args"]["xla_ns"]) for one in compilations] == [
        (0.0, 10_000.0, 25 * MS),
        (10_000.0, 10_000.0, 25 * MS),
    ]
    assert problems(text) == []


def test_waits_for_the_device_stand_at_the_end_of_their_step() -> None:
    columns = {"start_ns": (0,), "wall_ns": (10 * MS,), "step_ns": (10 * MS,)}
    columns |= {"device_ns": (3 * MS,), "emulated_ns": (2 * MS,)}
    trial = make_trial("000-ladder", Segment(name="as_is", columns=columns))
    assert [one for one in slices([trial]) if one[1] == 1] == [
        ("step", 1, 0.0, 10_000.0),
        ("wait for the device", 1, 5_000.0, 3_000.0),
        ("emulated accelerator", 1, 8_000.0, 2_000.0),
    ]


def test_operations_stand_below_one_another_with_their_shares() -> None:
    lines = tuple(
        OpLine(file="train.py", line=line, function="step", phase="forward", ops=3, share=share)
        for line, share in ((5, 0.2), (7, 0.4))
    )
    ops = StepOps(phases={"backward": 0.4, "forward": 0.6}, op_time_s=0.01, lines=lines)
    pipeline = Pipeline(ops=(PipelineOp(name="Map:1", op="MapDataset", cost_s=0.004), PipelineOp(name="B:2", op="B")))
    trial = made(step_ops=ops, pipeline=pipeline)
    assert [one for one in slices([trial]) if one[1] > 2] == [
        ("forward", 3, 18_000.0, 6_000.0),
        ("train.py:7", 3, 18_000.0, 4_000.0),
        ("train.py:5", 3, 22_000.0, 2_000.0),
        ("backward", 3, 24_000.0, 4_000.0),
        ("Map:1", 4, 18_000.0, 4_000.0),
    ]
    assert problems(traces.perfetto([trial])) == []


def test_gaps_of_a_profiled_gpu_stand_beside_the_steps() -> None:
    times = dict.fromkeys(("kernel_s", "collective_s", "copy_s", "collective_alone_s", "copy_alone_s", "idle_s"), 0.001)
    gap = Gap(start_ns=104 * MS, duration_s=0.003, step=0, cause="input")
    gpu = GpuActivity(
        steps=1,
        step_s=0.01,
        start_ns=100 * MS,
        step_starts_ns=(100 * MS,),
        step_ends_ns=(110 * MS,),
        devices=(GpuDevice(index=3, longest_gaps=(gap,), **times),),
    )
    trial = made(profile=ProfileSummary(directory="profile", steps=1, gpu=gpu))
    text = traces.perfetto([trial])
    found = [one for one in slices([trial]) if one[1] > 4]
    begun = next(one[2] for one in slices([trial]) if one[0] == "profiled step")
    assert {(name, thread, at - begun, lasts) for name, thread, at, lasts in found} == {
        ("profiled step", 5, 0.0, 10_000.0),
        ("idle", 6, 4_000.0, 3_000.0),
    }
    names = {one["tid"]: one["args"]["name"] for one in json.loads(text)["traceEvents"] if one["name"] == "thread_name"}
    assert names[6] == "GPU 3, longest gaps"
    assert problems(text) == []


def test_counters_of_host_and_gpu_have_their_units() -> None:
    seconds = (100 * MS, 1_100 * MS)
    host = HostReadings(t_ns=seconds, rss_bytes=(2_000_000_000,) * 2, read_bytes=(0, 30_000_000), cpu_s=(1.0, 2.5))
    gpu = GpuReadings(
        index=1,
        name="A",
        uuid="GPU-a",
        t_ns=seconds,
        memory_used_bytes=(None, 3_000_000_000),
        power_w=(250.0, None),
        throttle_reasons=(0x1, 0x64),
        utilization_t_ns=(200 * MS,),
        utilization=(0.5,),
    )
    text = traces.perfetto([made(readings=Readings(host=host, gpus=(gpu,)))])
    values = {(one["name"], one["args"]["value"]) for one in json.loads(text)["traceEvents"] if one["ph"] == "C"}
    assert values == {
        ("processors in use", 1.5),
        ("storage reads, MB/s", 30.0),
        ("memory, GB", 2.0),
        ("GPU 1 utilization", 0.5),
        ("GPU 1 memory used, GB", 3.0),
        ("GPU 1 power, W", 250.0),
        ("GPU 1 reasons that hold the clocks back", 0),
        ("GPU 1 reasons that hold the clocks back", 3),
    }
    assert problems(text) == []


def test_steps_and_processors_are_on_the_same_clock() -> None:
    host = HostReadings(t_ns=(100 * MS, 110 * MS, 120 * MS), cpu_s=(1.0, 1.02, 1.025))
    trial = made(readings=Readings(host=host))
    events = json.loads(traces.perfetto([trial]))["traceEvents"]
    used = [(one["ts"], one["args"]["value"]) for one in events if one["ph"] == "C"]
    assert used == [(0.0, 2.0), (10_000.0, 0.5)]


def test_a_row_of_the_table_is_a_step() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(steps_table([made()])))))
    assert [(row["trial"], row["kind"], row["segment"], row["step"], row["warm_up"]) for row in rows] == [
        ("000-ladder", "ladder", "as_is", "0", "1"),
        ("000-ladder", "ladder", "as_is", "1", "0"),
    ]
    assert (rows[1]["wait_ns"], rows[1]["xla_compiles"], rows[1]["batch"]) == (str(5 * MS), "1", "")
    assert {*COLUMNS} < {*rows[0]}
    assert rows[1]["batch"] == ""  # which this journal does not have


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "a\nb", "\x1b[31mred", "\u202eabc"])
def test_hostile_names_stay_text(name) -> None:
    trial = made()
    hostile = changed(trial, spec=changed(trial.spec, trial_id=name, arm=name))
    row = next(csv.DictReader(io.StringIO(csv_of(steps_table([hostile])))))
    for shown in (row["trial"], row["configuration"], traces.perfetto([hostile]).rstrip("\n")):
        assert shown[0] not in "=+-@"
        assert not set(shown) & set("\n\x1b\u202e")


@pytest.mark.parametrize("run", sorted(path.parent for path in REFERENCE.rglob(TRIALS)))
def test_stored_runs_are_whole_and_in_order(run) -> None:
    trials = read_trials(run)
    assert problems(traces.perfetto(trials)) == []
    steps = sum(segment.steps for trial in trials for segment in trial.segments)
    assert len(list(csv.reader(io.StringIO(csv_of(steps_table(trials)))))) == steps + 1
    events = json.loads(traces.perfetto(trials))["traceEvents"]
    assert min(one["ts"] for one in events if "ts" in one) == 0
    drawn = {"wait for input": "wait_ns", "step": "step_ns", "trace": "trace_ns", "XLA compile": "xla_ns"}
    for name, column in drawn.items():
        lasting = [one["dur"] for one in events if one["name"] == name and one["tid"] in (1, 2)]
        rows = [ns for trial in trials for segment in trial.segments for ns in segment.columns.get(column, ()) if ns]
        assert (len(lasting), sum(lasting)) == (len(rows), pytest.approx(sum(rows) / 1e3))
    # A process has one loop: what it does comes one after the other, but for the waits inside of a step.
    for process in {one["pid"] for one in events}:
        loop = sorted(
            (one["ts"], one["dur"])
            for one in events
            if one["pid"] == process and one["tid"] == 1 and one["ph"] == "X" and "segment" in one["args"]
        )
        assert all(start + took <= after + 1 for (start, took), (after, _) in pairwise(loop))
