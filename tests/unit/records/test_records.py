from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from xttsbench import records
from xttsbench.records import machine
from xttsbench.records.base import SCHEMA_VERSION, Estimate, Location, Record
from xttsbench.records.comparison_result import (
    ComparedPair,
    ComparedRun,
    ComparisonReport,
    Difference,
    Figures,
    Gate,
)
from xttsbench.records.elements import Element, Elements, Epoch, GraphIdentity, Row
from xttsbench.records.fix import Edit, FixResult, Optimized, Patch, Semantics
from xttsbench.records.gpu_activity import Gap, GpuActivity, GpuDevice, GpuSlices, Kernel, XProfVerdict
from xttsbench.records.live import LiveRun, RecentSteps, RunningRun
from xttsbench.records.monitoring import ColumnOscillation, Event, Monitored, Signal
from xttsbench.records.pipeline import Pipeline, PipelineOp, Prediction, PythonFunction
from xttsbench.records.plan import Accelerator, Comparison, PlannedArm, Procedure, RunPlan
from xttsbench.records.readings import GpuReadings, HostReadings, Readings
from xttsbench.records.report import (
    AA,
    Arm,
    Attribution,
    Best,
    Disturbance,
    Finding,
    Fingerprint,
    Oscillation,
    Report,
    Rung,
    Verdict,
    WarmUp,
)
from xttsbench.records.rows import COLUMNS
from xttsbench.records.source_fact import SourceFact
from xttsbench.records.step_ops import OpLine, Placement, StepOps
from xttsbench.records.training import (
    Begun,
    CheckpointEntry,
    Ended,
    Evaluated,
    Fitted,
    HistoryLine,
    Interval,
    Manifest,
    Spoken,
    Synthesised,
    SynthesisJob,
    TakenOver,
    TimedEvaluation,
    Training,
    TrainJob,
    TrainSetup,
    Watched,
    WatchedInterval,
)
from xttsbench.records.trial import (
    Batches,
    Devices,
    MeasurementOverhead,
    Parity,
    ProfileSummary,
    RoundMark,
    ScriptRun,
    Segment,
    StackLine,
    StepProfile,
    Trace,
    TrialError,
    TrialRecord,
    TrialSpec,
    Turn,
)
from xttsbench.records.watch import Drift, FailOn, Memory, StallCause, Stalls, Stretch, WatchedRun, WatchSummary

ONE = Estimate(estimate=1 / 3, low=0.1, high=1e300)
PLACE = Location(file="träin.py", line=3, op="Map/_1")
SPEC = TrialSpec(trial_id="000-ladder", rung="ladder", target="m:f", kwargs={"a": [1, {"b": None}]}, emulated_ms=(0.1,))
IDENTITY = GraphIdentity(graph="0f" * 16, data="1e" * 16)
ROW = Row(hashes=("0123456789abcdef",), sketches=((0.5, 1e-300),))
ELEMENT = Element(shapes=("float32[2]",), rows=(ROW,))
EPOCH = Epoch(elements=(ELEMENT,), ended=True)
SEMANTICS = Semantics(equivalent=None, how="unknown", sentence="größe", elements=3, epochs=2)
EDIT = Edit(fix="parallel-map", file="größe.py", line=3, before="d.map(f)", after="d.map(f, num_parallel_calls=4)")
PATCH = Patch(edits=(EDIT,), diff="--- a\n+++ b\n", files={"größe.py": "x = 1\n"}, verified_speedup=ONE)
PIPELINE = Pipeline(
    ops=(
        PipelineOp(name="Map/_1", op="MapDataset", inputs=("a",), python_functions=("t",), location=PLACE, cost_s=0.1),
    ),
    python_functions=(PythonFunction(token="t", kind="py_function", name="f", gil="blocks", calls=3),),
)
JOB = TrainJob(directory="d", recipe={"name": "tiny"}, config={"loader": "packed"}, data="s", accelerator_ms=(0.1,))
SUMS = {name: "0" * 64 for name in ("weights_sha256", "optimizer_sha256", "samples_sha256")}
CHECKPOINT = CheckpointEntry(step=3, epoch=0, batch=3, files=("a/b",), state_sha256="0" * 64, **SUMS)
ENDED = Ended(reason="terminated", step=3, **SUMS)
EVALUATED = Evaluated(
    step=3, loss=1 / 3, mel=0.1, stop=0.1, guided=0.1, clips=4, best=True, metrics={"a": None, "b": 0.1}
)
INTERVAL = Interval(
    first_step=1,
    steps=3,
    loss=1 / 3,
    mel=None,
    stop=0.1,
    guided=0.1,
    gradient_norm=0.1,
    skipped=1,
    learning_rate=1e-3,
    epoch=0,
    samples=12,
    valid_frames=900,
    frames=1000,
    wall_s=0.1,
)
BEGUN = Begun(
    step=0,
    steps=3,
    replicas=1,
    accumulation=2,
    clips_per_update=4.5,
    updates_per_epoch=2,
    clips=9,
    parameters=10,
    shapes=2,
    setup_s=0.1,
    warm_up_s=0.2,
)
WATCHED = Watched(wall_s=1.0, wait_s=0.1, step_s=0.8, outside_s=0.1, valid_frames=900, samples=12, steps=3)
SPOKEN = Spoken(step=3, metrics={"a": None, "b": 0.1})
FITTED = Fitted(tokens_per_batch=900, peak_bytes=3, limit_bytes=4)
TAKEN_OVER = TakenOver(path="best.yaml", proven=False, why="text", config={"loader": "packed"}, overridden={"a": "b"})
TRAINING = Training(recipe="tiny", sessions=(BEGUN,), ended=ENDED, spoken=SPOKEN, taken_over=TAKEN_OVER)
VERDICT = Verdict(
    bottleneck="input",
    summary="text",
    confidence=0.5,
    step_time_s=ONE,
    step_time_median_s=ONE,
    step_time_p95_s=None,
    input_wait_fraction=None,
    accelerator_utilization=None,
    attribution_s=Attribution(
        input=0.1, dispatch=0, compute=0.2, compile=0, host=0, transfer=0, contention=0, residual=-1e-9
    ),
)
ANATOMY = StepProfile(
    steps=1,
    samples=2,
    eager_ops_per_step=3,
    eager_op_time_s=0.1,
    op_floor_s=1e-5,
    function_calls_per_step=1,
    ops={"MatMul": 2.0},
    kinds={"python": 0.5},
    lines=(StackLine(file="a.py", line=1, function="f", kind="io", share=0.5, steps_share=0.1),),
)
ARMS = (
    PlannedArm(id="a", role="baseline", kwargs={"x": 1e-4}),
    PlannedArm(id="b", role="candidate", config={"y": [1, None]}, kwargs={"x": 1e-4, "y": [1, None]}),
)
COMPARISON = Comparison(
    name="loaders", target="m:f", arms=ARMS, blocks=6, steps=9, window_s=1.5, trial_s=60.0, stall_s=20.0
)
PARITY = Parity(batches=8, tolerance=1e-4, same=("b",), differences={"c": "batch 0"}, failed={"d": "no file"})
HOST = HostReadings(t_ns=(1, 2), cpu_s=(0.5, 1 / 3), rss_bytes=(2**62, 1), unmeasured={"read_bytes": "why"})
TURN = RoundMark(round=3, start_ns=1, end_ns=2**62, canary_before_ns=400_000)
GPU = GpuReadings(index=0, name="GPU", uuid="u", t_ns=(1,), memory_used_bytes=(None,), power_w=(1.5,))
SIDE = ComparedRun(given="x:a", path="x", kind="run", command="c", created_utc="t", target="m:f", processes_known=True)
FIGURES = Figures(arm="a", status="ok", processes=8, rate_per_s=ONE, cv=0.1, memory_bytes=2.0**62)
PAIR = ComparedPair(name="a", a=FIGURES, b=FIGURES, method="paired blocks", effect=ONE, evidence=30.0)
GATE = Gate(limit="max-regression", pair="a", threshold=0.05, value=ONE, outcome="failed", why="w")
DIFFERENCE = Difference(field="code", a="1", b="2", comparable=True)
FINGERPRINT = Fingerprint(environment="e", cpus=2.5, gpus=("H200",), code="c")
BEST = Best(
    run="r",
    workload="xtts",
    arm="b",
    config={"y": [1, None]},
    proven=True,
    decided=True,
    why="w",
    effect=ONE,
    baseline={"arm": "a", "config": {}},
    blocks=8,
    accelerator={"kind": "real", "label": "real device", "source": None},
    steps_per_trial=9,
    tied_with=("c",),
    fingerprint=FINGERPRINT,
    xttsbench_version="0.1.0",
)
OP_LINE = OpLine(file="größe.py", line=7, function="loss", phase="loss", ops=2, share=0.1)
PLACEMENT = Placement(op="MatMul", device="CPU:0", count=3, share=0.5, why="no GPU")
SLICES = GpuSlices(lanes=("Stream #14",), start_ns=(2**62,), duration_ns=(5,), lane=(0,), work=(1,), events=(3,))
ACTIVITY = GpuActivity(
    steps=1,
    step_s=0.1,
    host_s={"input": 0.1},
    devices=(
        GpuDevice(
            index=1,
            kernel_s=0.05,
            collective_s=0.0,
            copy_s=0.0,
            collective_alone_s=0.0,
            copy_alone_s=0.0,
            idle_s=0.05,
            work_s={"kernel": 0.05},
            longest_gaps=(Gap(start_ns=2**62, duration_s=0.05, step=0, cause="input"),),
            slices=SLICES,
        ),
    ),
    kernels=(Kernel(name="gemm", work="kernel", time_s=0.05, calls=2),),
    unmeasured={"start_ns": "why"},
)
XPROF = XProfVerdict(says="nothing", statement="No step time measured.")

LIVE = LiveRun(pid=7, script="train.py", started_utc="t", updated_utc="t", over=False, steps=12)
STRETCH = Stretch(
    start_s=0.0,
    end_s=1.0,
    steps=100,
    samples=400,
    wall_s=1.0,
    wait_s=0.2,
    step_s=0.8,
    compile_s=0.0,
    outside_s=0.1,
    cpu_s=1.5,
    gc_s=0.0,
    sync_s=0.0,
    traces=0,
    xla_compiles=0,
    compiling_steps=0,
    slowest_s=0.1,
)
STALLS = Stalls(count=3, lost_s=0.9, share_of_time=0.1, threshold_s=0.02)
WATCH_SUMMARY = WatchSummary(
    script="train.py --epochs 1",
    pid=7,
    started_utc="t",
    updated_utc="t",
    duration_s=3.0,
    over=True,
    ended="killed",
    exit_code=None,
    signal="SIGKILL",
    error=None,
    iterations=("fit",),
    steps=100,
    warm_up_steps=2,
    epochs=1,
    bottleneck="input",
    probability=0.99,
    sentence="It waits.",
    attribution_s=None,
    step_time_s=None,
    quantiles_s={"p99": 0.1},
    input_wait_fraction=None,
    stalls=STALLS,
    drift=None,
    memory=None,
    traces=0,
    xla_compiles=0,
    garbage_collection_share=None,
    period_steps=None,
    next_command="xttsbench diagnose train.py",
    unmeasured={"drift": "too few steps"},
)
MONITORED = Monitored(
    started_utc="t",
    duration_s=1.5,
    interval_s=0.5,
    readings=3,
    signals={"cpu_share": Signal(readings=3, mean=0.5, lowest=0.0, highest=1.0)},
    oscillations=(ColumnOscillation(column="cpu_share", t_s=1.0, period_s=0.5, variance_share=0.9, p_value=0.005),),
    events=(Event(t_s=1.0, text="GPU 0 is lost"),),
)
LISTED = machine.Gpu(index=0, name="H200", memory_total_bytes=2**62)
COMPUTED = machine.Computed(device="/GPU:0", value=2.0, expected=2.0)
COLD = machine.Pass(seconds=0.5, stored_share=1.0)
MACHINE = machine.Machine(
    software=machine.Software(python="3.11", packages={"keras": None}),
    processors=machine.Processors(machine_cpus=4, affinity_cpus=2, quota_cpus=1.5),
    memory=machine.Memory(total_bytes=2**40, available_bytes=2**39),
)
CHECK = machine.Check(id="quota", about="processors", status="ok", seen="4 of 4", figures={"cpus": 4})

EXAMPLES: list[Record] = [
    FINGERPRINT,
    BEST,
    Procedure(cost=("prefetch",)),
    ONE,
    PLACE,
    *PIPELINE.ops,
    *PIPELINE.python_functions,
    PIPELINE,
    Accelerator(kind="emulated", label="x", step_times_ms=(1.0, 0.1), source="f"),
    ARMS[1],
    COMPARISON,
    RunPlan(kind="run", command="c", created_utc="t", target="m:f", steps=1, budget_s=1.5, comparison=COMPARISON),
    RunPlan(kind="diagnose", command="c", created_utc="t", target="m:f", kwargs={"a": 1e-4}, steps=1, budget_s=1.5),
    HOST,
    GPU,
    Readings(host=HOST, gpus=(GPU,), unmeasured={"a": "b"}),
    VERDICT,
    VERDICT.attribution_s,  # type: ignore[list-item]
    Finding(rule="r", severity="info", limiting=False, title="t", evidence={"f": 0.1, "i": 1, "s": "x", "b": True}),
    Oscillation(cv=0.1),
    Arm(id="a", role="candidate", blocks=1, status="ok", effect=ONE, decision="faster", utilization=ONE, group="g"),
    AA(effect=ONE, noisy=False),
    Rung(name="as_is", what="w", step_time_s=ONE, steps=1, processes=1),
    WarmUp(first_step_s=0.5, reason="why"),
    Report(
        kind="diagnose",
        command="c",
        created_utc="t",
        target={"name": "m:f"},
        environment={"cpu": {"allowed_cpus": 2.0}},
        verdict=VERDICT,
        unmeasured={"profile": "not asked for"},
    ),
    SPEC,
    Segment(name="as_is", columns={"wall_ns": (1, 2**62), "wait_ns": (0, 1)}, warmup_steps=1),
    Trace(step=1, function="f", reason="shape", signature="s", time_s=0.1),
    *ANATOMY.lines,
    ANATOMY,
    Batches(cached=1, bytes=2, shapes=("(8,)",), static_signature="s", nonfinite=("x",)),
    MeasurementOverhead(overhead_s=1e-6, pairs=3, method="m"),
    Devices(gpus=("GPU:0",), versions={"cuda": "12"}),
    ProfileSummary(directory="profile", steps=3, wait_s=0.1, gpu=ACTIVITY, xprof=XPROF),
    *(ACTIVITY, *ACTIVITY.devices, *ACTIVITY.kernels, *ACTIVITY.devices[0].longest_gaps, SLICES, XPROF),
    PARITY,
    TrialError(type="E", message="line\nbreak", line=3),
    TrialRecord(spec=SPEC, status="ok", started_utc="t", duration_s=0.1, anatomy=ANATOMY, pipeline=PIPELINE),
    TrialRecord(spec=SPEC, status="ok", started_utc="t", duration_s=0.1, parity=PARITY, rounds=(TURN,)),
    TURN,
    Turn(round=1, batches=8),
    Disturbance(
        steal_share=0.1,
        foreign_share=0.2,
        throttled_share=None,
        rounds=4,
        invalid_rounds=1,
        sentence="others used 20 % of the processor",
    ),
    *(SIDE, FIGURES, PAIR, GATE, DIFFERENCE),
    *(MACHINE, MACHINE.software, MACHINE.processors, MACHINE.memory, CHECK),
    machine.Driver(gpus=(LISTED,), version="550.54"),
    LISTED,
    machine.Sight(computed=(COMPUTED,), gpus=("/GPU:0",)),
    COMPUTED,
    machine.Place(what="the runs", path="reports", refused="read-only"),
    machine.Storage(path="wavs", files=2, cold=COLD, unmeasured={"warm": "why"}),
    COLD,
    machine.Examination(command="c", created_utc="t", checks=(CHECK,), machine=MACHINE),
    ComparisonReport(
        command="c",
        created_utc="t",
        target={},
        environment={},
        verdict=VERDICT,
        a=SIDE,
        b=SIDE,
        pairs=(PAIR,),
        gates=(GATE,),
        differences=(DIFFERENCE,),
        session_noise=0.02,
    ),
    *(JOB, CHECKPOINT, Manifest(checkpoints=(CHECKPOINT,)), INTERVAL, EVALUATED, ENDED),
    *(BEGUN, WATCHED, SPOKEN, FITTED, TAKEN_OVER, TRAINING),
    WatchedInterval(**INTERVAL.model_dump(), session=1, wait_fraction=0.1),
    TimedEvaluation(**EVALUATED.model_dump(), took_s=0.5),
    HistoryLine(session=1, begun=BEGUN, interval=INTERVAL, watched=WATCHED, saved=CHECKPOINT, warned="größe"),
    SynthesisJob(checkpoint="run", text="größe", out="speech.wav"),
    Synthesised(
        out="speech.wav",
        text="größe",
        left_out="ß",
        speaker=None,
        step=3,
        averaged=False,
        seconds=1.5,
        stopped=True,
        synthesis_s=0.1,
        sound_s=0.2,
    ),
    TrainSetup(job=JOB, taken_over=TAKEN_OVER, said=("text",)),
    Prediction(name="parallel-map", fixes=("parallel-map",), batches_per_s=90.5, speedup=1.9, limited_by="processors"),
    SourceFact(kind="late-environment", file="größe.py", line=3, text='os.environ["TF_NUM_INTEROP_THREADS"] = "2"'),
    OP_LINE,
    PLACEMENT,
    StepOps(phases={"forward": 0.4, "backward": 0.6}, lines=(OP_LINE,), placements=(PLACEMENT,), ops=17),
    *(IDENTITY, ROW, ELEMENT, EPOCH, SEMANTICS, EDIT, PATCH),
    Elements(
        spec="TensorSpec(...)", epochs=(EPOCH,), source_limit=8, losses=(0.1,), state=((1.0,),), identity=IDENTITY
    ),
    FixResult(
        name="parallel-map",
        fixes=("parallel-map",),
        what="calls the function of map in parallel",
        outcome="accepted",
        why="1.9 times as fast",
        verified_speedup=ONE,
        semantics=SEMANTICS,
        places=(PLACE,),
        patch=PATCH,
    ),
    Optimized(
        run="reports/x",
        target="m:f",
        fixes=("parallel-map:4",),
        identity=IDENTITY,
        speedup=ONE,
        equivalent=True,
        data="the same",
        proven=True,
    ),
    ScriptRun(ended="exited", exit_code=3, iterations=("fit",), steps_per_call=4, steps_seen=12),
    LIVE,
    RecentSteps(steps=12, step_time_s=0.04, input_wait_fraction=0.5),
    RunningRun(run="/runs/one"),
    STRETCH,
    StallCause(
        what="saving (train.py:3)", count=3, lost_s=0.9, every_steps=100, first_step=9, last_step=9, slowest_s=0.4
    ),
    STALLS,
    WatchedRun(steps=100, warm_up_steps=2, epochs=1, stretches=(STRETCH,), quantiles_s={"p99": 0.1}, stalls=STALLS),
    Drift(change=0.2, p_value=0.001, side="input"),
    Memory(first_bytes=10, last_bytes=20, bytes_per_step=None),
    FailOn(expression="input>20%", value=None, limit=0.2, outcome="not measured", why="no step was seen"),
    WATCH_SUMMARY,
    *MONITORED.signals.values(),
    *MONITORED.oscillations,
    *MONITORED.events,
    MONITORED,
]
by_type = pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)


def test_every_record_has_an_example_here() -> None:
    found = set()
    for module in pkgutil.iter_modules(records.__path__):
        members = vars(importlib.import_module(f"xttsbench.records.{module.name}")).values()
        found |= {m for m in members if inspect.isclass(m) and issubclass(m, Record) and m is not Record}
    assert found == {type(record) for record in EXAMPLES}


@by_type
def test_a_record_survives_json(record: Record) -> None:
    assert type(record).model_validate_json(record.model_dump_json()) == record


@by_type
def test_a_record_is_frozen(record: Record) -> None:
    name = next(iter(type(record).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(record, name, getattr(record, name))


@by_type
def test_a_record_refuses_fields_it_does_not_know(record: Record) -> None:
    with pytest.raises(ValidationError, match="surprise"):
        type(record)(**dict(record), surprise=1)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_no_number_is_nan_or_infinite(number: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Estimate(estimate=number, low=0, high=1)
    with pytest.raises(ValidationError, match="finite"):
        TrialSpec(trial_id="0", rung="ladder", target="m:f", emulated_ms=(number,))


def test_mutable_defaults_are_not_shared() -> None:
    first, second = SPEC.model_copy(), TrialSpec(trial_id="1", rung="input", target="m:f")
    TrialSpec(trial_id="2", rung="input", target="m:f").kwargs["leak"] = 1
    assert second.kwargs == {}
    assert first == SPEC


@given(st.dictionaries(st.sampled_from(sorted(COLUMNS)), st.integers(0, 4), min_size=2, max_size=5))
def test_columns_of_unequal_length_are_refused(lengths: dict[str, int]) -> None:
    columns = {name: (0,) * length for name, length in lengths.items()}
    if len(set(lengths.values())) == 1:
        assert Segment(name="as_is", columns=columns).steps == next(iter(lengths.values()))
        return
    with pytest.raises(ValidationError, match=r"segment 'as_is': columns of unequal length"):
        Segment(name="as_is", columns=columns)


@pytest.mark.parametrize("changes", [{"steps": 0}, {"window_s": 0}, {"min_steps": 0}, {"rung": "other"}])
def test_a_specification_is_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(changes))):
        TrialSpec(**({"trial_id": "0", "rung": "ladder", "target": "m:f"} | changes))


def test_a_trial_finds_its_segments_by_name() -> None:
    parts = (Segment(name="as_is", columns={"wall_ns": (1,)}), Segment(name="step_only"))
    record = TrialRecord(spec=SPEC, status="ok", started_utc="t", duration_s=1, segments=parts)
    assert record.segment("as_is") is record.segments[0]
    assert record.segment("step_only").steps == 0  # type: ignore[union-attr]
    assert record.segment("graph") is None


def test_readings_of_version_1_are_read_without_their_share_of_the_machine() -> None:
    """In it stolen time was busy, so that it cannot be taken apart any more."""
    old = {"t_ns": (1, 2), "cpu_s": (0.1, 0.2), "machine_busy": (0.5, 0.75), "unmeasured": {"read_bytes": "why"}}
    found = HostReadings.model_validate(old)
    assert (found.cpu_s, found.machine_busy_s) == ((0.1, 0.2), ())
    assert set(found.unmeasured) == {"read_bytes", "machine_busy_s", "machine_steal_s", "machine_idle_s"}
    frozen = HostReadings.model_validate({"t_ns": (1,), "unmeasured": {"machine_busy": "do not advance"}})
    assert set(frozen.unmeasured) == {"machine_busy_s", "machine_steal_s", "machine_idle_s"}
    assert HostReadings.model_validate(HOST.model_dump()) == HOST


def test_every_file_carries_the_version() -> None:
    versioned = [type(record) for record in EXAMPLES if "schema_version" in type(record).model_fields]
    assert set(versioned) == {
        *(Report, ComparisonReport, TrialRecord, RunPlan, Best, Manifest, TrainSetup, Optimized),
        *(LiveRun, WatchSummary, Monitored, machine.Examination),
    }
    assert SCHEMA_VERSION == 2
    assert all(
        record.schema_version == SCHEMA_VERSION for record in EXAMPLES if "schema_version" in type(record).model_fields
    )


numbers = st.integers(-(2**63), 2**63 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(
    values=st.lists(numbers, max_size=5),
    kwargs=st.dictionaries(st.text(max_size=5), json_values, max_size=3),
    seconds=st.floats(0, 1e300),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)
def test_any_trial_survives_json_exactly(values: list[int], kwargs: dict[str, Any], seconds: float, text: str) -> None:
    record = TrialRecord(
        spec=SPEC.model_copy(update={"kwargs": kwargs}),
        status="raised",
        cause=text,
        started_utc="t",
        duration_s=seconds,
        segments=(Segment(name=text, columns={"wall_ns": tuple(values)}),),
    )
    line = record.model_dump_json()
    assert "\n" not in line
    assert TrialRecord.model_validate_json(line) == record


def test_files_from_before_there_were_arms_are_read() -> None:
    """What was added has a default, so that a report can be built again from an older run's files."""
    plan = RunPlan(kind="diagnose", command="c", created_utc="t", target="m:f", steps=1, budget_s=1.5)
    trial = TrialRecord(spec=SPEC, status="ok", started_utc="t", duration_s=1)
    report = next(record for record in EXAMPLES if isinstance(record, Report))
    added: list[tuple[Record, tuple[str, ...]]] = [
        (plan, ("comparison",)),
        (trial, ("parity",)),
        (report, ("parity", "comparison")),
    ]
    for record, names in added:
        old = json.loads(record.model_dump_json())
        for name in names:
            del old[name]
        assert type(record).model_validate(old) == record
    spec = json.loads(SPEC.model_dump_json())
    assert TrialSpec.model_validate({key: spec[key] for key in spec if key not in ("arm", "group", "others")}) == SPEC


def test_what_measuring_cost_is_read_from_version_1_too() -> None:
    cost = {"overhead_s": 1e-6, "pairs": 3, "method": "m"}
    trial = {"spec": SPEC.model_dump(), "status": "ok", "started_utc": "t", "duration_s": 1.0}
    old, new = (TrialRecord.model_validate(trial | {name: cost}) for name in ("looking", "overhead"))
    assert old == new
    assert new.overhead == MeasurementOverhead(overhead_s=1e-6, pairs=3, method="m")
    assert "looking" not in new.model_dump()
