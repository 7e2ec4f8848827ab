"""What is proposed for a generator, by whether its loop can be cut in two and what its body does."""

from __future__ import annotations

import pytest

from xttsbench.evidence import Evidence
from xttsbench.fixes.cache import cache_places
from xttsbench.fixes.model import infer_cardinality
from xttsbench.fixes.open_generator import opened
from xttsbench.fixes.patch import propose
from xttsbench.fixes.proposals import _generators_elsewhere
from xttsbench.fixes.registry import candidates
from xttsbench.fixes.spec import Setting
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import GeneratorParts, Pipeline, PipelineOp, PythonFunction

OPENS = {"parts": GeneratorParts(line=3)}
WHOLE = {"whole_because": "line 3: 'mean' is carried from element to element"}


def proposed(call_s=2e-3, **told):
    generator = PythonFunction(
        token="t", kind="generator", name="rows", call_time_s=call_s, call_cpu_s=call_s, calls_per_batch=4.0, **told
    )
    op = PipelineOp(name="F", op="FlatMapDataset", python_functions=("t",), cost_s=4 * call_s, elements_per_batch=4.0)
    found = candidates(Setting(Pipeline(ops=(op,), python_functions=(generator,)), cpus=2))
    return {one.kind: one for one in found if one.kind in ("open-generator", "processes")}


@pytest.mark.parametrize("gil", ["holds", "releases"])
def test_a_body_that_computes_is_also_tried_in_processes(gil) -> None:
    found = proposed(gil=gil, **OPENS)
    assert set(found) == {"open-generator", "processes"}
    assert found["open-generator"].edit is not None
    (both,) = _generators_elsewhere(list(found.values()))
    assert [one.kind for one in both] == ["open-generator", "processes"]


@pytest.mark.parametrize("adapter", ["py_dataset_adapter.py", "data_adapter.py"])
def test_workers_are_named_only_where_nothing_is_changed_between_epochs(adapter: str) -> None:
    def by_hand(reads: str | None) -> str:
        parts = GeneratorParts(line=3, file=f"/lib/keras/{adapter}", reads=reads)
        generator = PythonFunction(token="t", kind="generator", name="rows", parts=parts)
        op = PipelineOp(name="F", op="FlatMapDataset", python_functions=("t",), location=Location(file="/a.py", line=9))
        given = Pipeline(ops=(op,), python_functions=(generator,))
        patch = propose(FixSet.of(["open-generator:4"]), given, lambda _: "", own=lambda _: False)
        return patch.unpatched["open-generator:4"]

    assert "workers=4, " in by_hand(None)
    changed = by_hand("__getitem__() at data.py:20 reads 'order', which on_epoch_end() at data.py:24 sets")
    assert "workers=4 would not do, since Keras starts them before on_epoch_begin(), and __getitem__()" in changed
    assert "which on_epoch_end() at data.py:24 sets" in changed
    assert "give" not in changed


def test_a_short_body_that_frees_the_lock_stays_in_this_process() -> None:
    assert set(proposed(call_s=3e-4, gil="releases", **OPENS)) == {"open-generator"}


def test_one_that_cannot_be_opened_is_refused_with_the_line() -> None:
    found = proposed(gil="holds", **WHOLE)
    assert found["open-generator"].refused == f"rows() stays whole: {WHOLE['whole_because']}"
    assert not _generators_elsewhere(list(found.values()))


@pytest.mark.parametrize(("begin_s", "share"), [(0.0, 0.88), (0.05, 0.13)])
def test_what_a_generator_takes_to_begin_is_not_made_in_parallel(begin_s, share) -> None:
    parts = GeneratorParts(line=3, head_s=1e-4)
    function = PythonFunction(
        token="t", kind="generator", name="rows", call_time_s=2e-3, calls_per_batch=4.0, parts=parts
    )
    told = {"name": "F", "op": "FlatMapDataset", "python_functions": ("t",), "elements_per_batch": 4.0}
    given = Pipeline(ops=(PipelineOp(cost_s=8e-3 + begin_s, **told),), python_functions=(function,))
    items, made = opened(given, 8).ops
    assert made.cost_s == pytest.approx(4 * 1.9e-3)
    assert items.cost_s == pytest.approx(begin_s + 4 * (1e-4 + 150e-6), abs=1e-4)
    assert made.cost_s / (made.cost_s + items.cost_s) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(("counted", "read_by"), [(400, 1), (400, 12), (None, 1)])
def test_what_was_counted_of_a_generator_is_its_length_and_gives_a_cache_its_size(counted, read_by) -> None:
    generator = PythonFunction(token="t", kind="generator", name="names", elements=counted)
    taken = {"cardinality": -2, "cost_s": 0.1, "elements_per_batch": 8.0}
    ops = (
        PipelineOp(name="S", op="TensorDataset", cardinality=read_by),
        PipelineOp(name="F", op="FlatMapDataset", inputs=("S",), python_functions=("t",), **taken),
        PipelineOp(name="M", op="MapDataset", inputs=("F",), element_bytes=1e5, **taken),
    )
    pipeline = Pipeline(ops=ops, python_functions=(generator,))
    told = infer_cardinality(Evidence(kind="dataset", has_step=False, emulated=True, pipeline=pipeline))
    known = counted is not None and read_by == 1
    assert told.ops[1].cardinality == (400 if known else -2)
    spot = cache_places(told, {"memory": {"total_bytes": 8e9}})[0]
    assert (spot.op.name, spot.held_bytes, spot.fits) == ("M", 4e7 if known else None, known)
