"""Memory by hand: a leak goes on to the end, what fills up stops."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.findings.memory import cold_storage, memory_leak
from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.trial import Batches, StackLine, StepProfile, Trace

MB = 1_000_000
STEPS, STEP_S, SAMPLES = 240, 0.03, 34
MEMORY = {"memory": {"total_bytes": 8_000 * MB, "limit_bytes": None}}


def trial(build, resident: np.ndarray, *, epochs: int = 1, number: int = 0):
    """A trial of 240 steps in 7.2 s beside these samples of its memory."""
    epoch = np.arange(STEPS) * epochs // STEPS
    record = build.ladder(
        steps=STEPS, number=number, step_columns={"epoch": epoch, "step_s": STEP_S, "calls_s": STEP_S}
    )
    columns = record.segment("as_is").columns
    start, end = columns["start_ns"][0], columns["start_ns"][-1] + columns["wall_ns"][-1]
    at = np.linspace(start + 1, end - 1, len(resident)).astype(int)
    host = HostReadings(t_ns=tuple(int(t) for t in at), rss_bytes=tuple(int(value) for value in resident))
    return record.model_copy(update={"readings": Readings(host=host)})


def line(megabytes: float, *, noise: float = 0.2, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (500 + np.linspace(0, megabytes, SAMPLES) + noise * rng.standard_normal(SAMPLES)) * MB


def find(evidence, build, *shapes: np.ndarray, epochs: int = 1, **fields):
    ladder = [trial(build, shape, epochs=epochs, number=n) for n, shape in enumerate(shapes)]
    return list(memory_leak(evidence("compute", ladder=ladder, **({"environment": MEMORY} | fields))))


def test_a_megabyte_a_step(evidence, build) -> None:
    (found,) = find(evidence, build, line(240))
    assert (found.rule, found.severity, found.limiting) == ("memory-leak", "critical", False)
    assert found.evidence["bytes_per_step"] == pytest.approx(MB, rel=0.05)
    # 8,000 MB less the 740 MB of the end, at a megabyte a step
    assert found.evidence["steps_left"] == pytest.approx(7260, rel=0.05)
    assert "after 7," in found.title


def test_without_a_known_limit_no_end_is_told(evidence, build) -> None:
    (found,) = find(evidence, build, line(240), environment={})
    assert found.severity == "warning"
    assert found.evidence.get("steps_left") is None


def test_the_control_groups_limit_comes_first(evidence, build) -> None:
    memory = {"memory": {"total_bytes": 8_000 * MB, "limit_bytes": 1_000 * MB}}
    (found,) = find(evidence, build, line(240), environment=memory)
    assert "control group" in found.title
    assert found.evidence["steps_left"] == pytest.approx(260, rel=0.1)


def test_traces_without_end_are_named(evidence, build) -> None:
    traces = [Trace(step=n, function="f", reason="python value", signature="", time_s=0.1) for n in range(100)]
    (found,) = find(evidence, build, line(240), traces=traces)
    assert "Each trace" in found.remedy


def test_py_function_called_op_by_op_is_named_with_its_line(evidence, build) -> None:
    where = StackLine(file="a.py", line=7, function="step", kind="tensorflow", share=0.4, steps_share=1.0)
    anatomy = StepProfile(
        steps=9, samples=9, eager_ops_per_step=3.0, eager_op_time_s=0.01, op_floor_s=1e-5, function_calls_per_step=1.0,
        ops={"EagerPyFunc": 1.0}, lines=(where,),
    )  # fmt: skip
    (found,) = find(evidence, build, line(240), anatomy=anatomy)
    assert "which tf.py_function keeps, and does not stop" in found.title
    assert "tf.numpy_function(" in found.remedy
    assert (found.location.line, found.evidence["py_functions_per_step"]) == (7, 1.0)


@pytest.mark.parametrize(
    "shape",
    [
        line(0, noise=3.0),
        line(4),  # an allocator's pools
        line(80),  # those of TensorFlow's threads, which a plain loop over the same data fills within seconds
        np.concatenate([line(240)[: SAMPLES // 2], np.full(SAMPLES - SAMPLES // 2, 620 * MB)]),  # filled up half way
        np.where(np.arange(SAMPLES) < 20, 500, 700) * MB,  # one jump
        (500 + 200 * (1 - np.exp(-np.arange(SAMPLES) / 5))) * MB,  # levels off
        (600 + 50 * np.sin(np.arange(SAMPLES) / 2)) * MB,  # comes and goes
        line(-240),
        line(240)[::5],  # too few samples
    ],
)
def test_what_is_no_leak(evidence, build, shape) -> None:
    assert find(evidence, build, shape) == []


def test_every_process_must_show_it(evidence, build) -> None:
    assert len(find(evidence, build, line(240), line(200, seed=1))) == 1
    assert find(evidence, build, line(240), line(0)) == []
    assert len(find(evidence, build, line(240), line(240)[:5])) == 1, "one that was hardly sampled tells nothing"


def cache(**fields) -> Pipeline:
    return Pipeline(ops=(PipelineOp(name="c", op="CacheDatasetV2", **fields),), injects_prefetch=False)


def test_a_cache_in_its_first_pass_is_no_leak(evidence, build) -> None:
    assert find(evidence, build, line(240), pipeline=cache()) == []
    stored = cache(element_bytes=float(MB), elements_per_batch=1.0)
    assert find(evidence, build, line(240), pipeline=stored) == []
    assert len(find(evidence, build, line(240), pipeline=cache(element_bytes=1e4, elements_per_batch=1.0))) == 1
    assert len(find(evidence, build, line(240), pipeline=cache(), epochs=2)) == 1, "it was full after the first pass"
    assert len(find(evidence, build, line(240), pipeline=cache(filename="/data/cache"))) == 1


def test_buffers_that_can_hold_it_are_no_leak(evidence, build) -> None:
    batches = Batches(cached=2, bytes=2 * MB, shapes=("a",))
    op = PipelineOp(name="p", op="PrefetchDataset", buffer_size=300)
    assert find(evidence, build, line(240), pipeline=Pipeline(ops=(op,)), batches=batches) == []
    small = op.model_copy(update={"buffer_size": 2})
    assert len(find(evidence, build, line(240), pipeline=Pipeline(ops=(small,)), batches=batches)) == 1


IDLE = Estimate(estimate=0.01, low=0.01, high=0.01)
BUSY = Estimate(estimate=0.09, low=0.09, high=0.09)
BATCHES = Batches(cached=1, bytes=MB, shapes=("a",))


def read(build, *, stored: float, calls: float | None, epochs: int = 1, over_by: float = 1.0):
    """A trial in which each step read so many bytes; from storage all of them in the first so many of the steps."""
    steps = 100
    epoch = np.arange(steps) * epochs // steps
    record = build.ladder(steps=steps, step=0.1, step_columns={"epoch": epoch})
    columns = record.segment("as_is").columns
    start, end = columns["start_ns"][0], columns["start_ns"][-1] + columns["wall_ns"][-1]
    share = np.linspace(0, 1, 20)
    host = HostReadings(
        t_ns=tuple(int(start + part * (end - start)) for part in share),
        read_bytes=tuple(int(7 * MB + min(part / over_by, 1.0) * stored * steps) for part in share),
        read_call_bytes=() if calls is None else tuple(int(9 * MB + part * calls * steps) for part in share),
        major_faults=tuple(int(100 * part) for part in share),
    )
    return record.model_copy(update={"readings": Readings(host=host)})


def slow(evidence, trial, bottleneck="input", **fields):
    return list(
        cold_storage(evidence(bottleneck, ladder=[trial], **({"input_cpu_s": IDLE, "batches": BATCHES} | fields)))
    )


def test_an_input_that_waits_for_the_disk(evidence, build) -> None:
    (found,) = slow(evidence, read(build, stored=MB, calls=MB))
    assert (found.rule, found.severity, found.limiting) == ("cold-storage", "warning", True)
    assert found.evidence["storage_share"] == pytest.approx(1.0, rel=0.01)
    assert found.evidence["storage_bytes_per_step"] == pytest.approx(MB, rel=0.01)
    assert found.evidence["major_faults_per_step"] == pytest.approx(1.0, rel=0.01)
    assert "100% of what the steps read came from storage" in found.title


@pytest.mark.parametrize(
    ("bottleneck", "input_cpu_s", "stored"),
    [
        ("compute", IDLE, 1.0),  # the step does not wait for it
        ("input", BUSY, 1.0),  # the input computes
        ("input", None, 1.0),  # nobody knows whether it computes
        ("input", IDLE, 0.3),  # most came from the page cache
    ],
)
def test_reads_from_storage_that_do_not_limit(evidence, build, bottleneck, input_cpu_s, stored) -> None:
    (found,) = slow(evidence, read(build, stored=stored * MB, calls=MB), bottleneck, input_cpu_s=input_cpu_s)
    assert (found.severity, found.limiting) == ("info", False)


@pytest.mark.parametrize(("over_by", "limiting"), [(0.3, False), (0.5, False), (0.8, True), (1.0, True)])
def test_what_is_read_at_the_start_alone_is_not_waited_for(evidence, build, over_by: float, limiting: bool) -> None:
    (found,) = slow(evidence, read(build, stored=MB, calls=MB, over_by=over_by))
    assert found.limiting is limiting


@pytest.mark.parametrize(("cpu_s", "limiting"), [(0.02, True), (0.2, False), (0.0, False)])
def test_a_process_that_hardly_computes_waits(evidence, build, cpu_s: float, limiting: bool) -> None:
    given = {"input_cpu_s": None, "steps": build.steps(wait_s=0.1, cpu_s=cpu_s, steps=100)}
    (found,) = slow(evidence, read(build, stored=MB, calls=MB), **given)
    assert found.limiting is limiting
    assert (found.predicted_speedup is not None) is limiting


def test_mapped_files_are_read_without_a_call(evidence, build) -> None:
    (found,) = slow(evidence, read(build, stored=MB, calls=1000))
    assert found.limiting
    assert found.evidence["storage_share"] == pytest.approx(1.0)


def test_a_first_pass_from_the_page_cache_says_what_was_not_measured(evidence, build) -> None:
    (found,) = slow(evidence, read(build, stored=0, calls=MB))
    assert (found.severity, found.limiting) == ("info", False)
    assert "not measured" in found.title
    assert slow(evidence, read(build, stored=0, calls=MB, epochs=3)) == [], "training reads them again and again too"


def test_a_data_set_larger_than_memory_does_not_stay_in_the_page_cache(evidence, build) -> None:
    ops = (
        PipelineOp(name="a", op="TensorSliceDataset", cardinality=80_000, elements_per_batch=8.0),
        PipelineOp(name="b", op="RepeatDataset", cardinality=-1, elements_per_batch=8.0),
    )
    memory = {"memory": {"total_bytes": 64_000 * MB, "limit_bytes": 4_000 * MB}}
    trial = read(build, stored=0, calls=MB, epochs=2)
    (found,) = slow(evidence, trial, pipeline=Pipeline(ops=ops), environment=memory)
    # 10,000 batches of a megabyte
    assert found.evidence["pass_bytes"] == pytest.approx(10_000 * MB, rel=0.01)
    assert "later passes may read from storage" in found.title
    short = (ops[0].model_copy(update={"cardinality": 160}), ops[1])
    repeated = read(build, stored=0, calls=MB)
    assert slow(evidence, repeated, pipeline=Pipeline(ops=short)) == [], "20 batches a pass, read five times"
    large = {"memory": {"total_bytes": 64_000 * MB, "limit_bytes": None}}
    assert slow(evidence, trial, pipeline=Pipeline(ops=ops), environment=large) == []


@pytest.mark.parametrize(("stored", "calls"), [(0, 1000), (1000, 1000), (0.05 * MB, 0.1 * MB), (0, None)])
def test_little_that_is_read_tells_nothing(evidence, build, stored, calls) -> None:
    assert slow(evidence, read(build, stored=stored, calls=calls)) == []


def test_without_readings_nothing_is_said(evidence, build) -> None:
    assert slow(evidence, build.ladder()) == []
    assert list(cold_storage(evidence("input"))) == []
