"""What is proposed for a generator, by whether its loop can be cut in two and what its body does."""

from __future__ import annotations

import pytest

from xttsbench.fixes.proposal import _generators_elsewhere
from xttsbench.fixes.registry import candidates
from xttsbench.fixes.spec import Setting
from xttsbench.records.pipeline import GeneratorParts, Pipeline, PipelineOp, PythonFunction

OPENS = {"parts": GeneratorParts(line=3)}
WHOLE = {"whole_because": "line 3: 'mean' is carried from element to element"}


def proposed(call_s=2e-3, **told):
    generator = PythonFunction(
        token="t", kind="generator", name="rows", call_time_s=call_s, call_cpu_s=call_s, calls_per_batch=4.0, **told
    )
    op = PipelineOp(name="F", op="FlatMapDataset", python_functions=("t",), cost_s=4 * call_s, elements_per_batch=4.0)
    found = candidates(Setting(Pipeline(ops=(op,), python_functions=(generator,)), cpus=2))
    return {one.kind: one for one in found if one.kind in ("open-generator", "processes", "run-ahead")}


@pytest.mark.parametrize("gil", ["holds", "releases"])
def test_a_body_that_computes_is_also_tried_in_processes(gil) -> None:
    found = proposed(gil=gil, **OPENS)
    assert set(found) == {"open-generator", "processes"}
    assert found["open-generator"].edit is not None
    (both,) = _generators_elsewhere(list(found.values()))
    assert [one.kind for one in both] == ["open-generator", "processes"]


def test_a_short_body_that_frees_the_lock_stays_in_this_process() -> None:
    assert set(proposed(call_s=3e-4, gil="releases", **OPENS)) == {"open-generator"}


@pytest.mark.parametrize("gil", ["holds", "releases", "blocks"])
def test_one_that_cannot_be_opened_is_refused_with_the_line_and_runs_ahead_where_it_computes(gil) -> None:
    found = proposed(gil=gil, **WHOLE)
    assert found["open-generator"].refused == f"rows() stays whole: {WHOLE['whole_because']}"
    assert ("run-ahead" in found) == (gil != "blocks")
    assert not _generators_elsewhere(list(found.values()))
