"""Memory by hand: a leak goes on to the end, what fills up stops."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.findings.machine.memory_leak import memory_leak
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.trial import Batches, Trace

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
    assert found.evidence["steps_left"] is None


def test_the_control_groups_limit_comes_first(evidence, build) -> None:
    memory = {"memory": {"total_bytes": 8_000 * MB, "limit_bytes": 1_000 * MB}}
    (found,) = find(evidence, build, line(240), environment=memory)
    assert "control group" in found.title
    assert found.evidence["steps_left"] == pytest.approx(260, rel=0.1)


def test_traces_without_end_are_named(evidence, build) -> None:
    traces = [Trace(step=n, function="f", reason="python value", signature="", time_s=0.1) for n in range(100)]
    (found,) = find(evidence, build, line(240), traces=traces)
    assert "Each trace" in found.remedy


@pytest.mark.parametrize(
    "shape",
    [
        line(0, noise=3.0),
        line(4),  # an allocator's pools
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
    batches = Batches(cached=2, bytes=2 * MB, shapes=("a",), static_signature="")
    op = PipelineOp(name="p", op="PrefetchDataset", buffer_size=300)
    assert find(evidence, build, line(240), pipeline=Pipeline(ops=(op,)), batches=batches) == []
    small = op.model_copy(update={"buffer_size": 2})
    assert len(find(evidence, build, line(240), pipeline=Pipeline(ops=(small,)), batches=batches)) == 1
