"""Which fixes are proposed: those that help the step that waits, in order, with a reason for each that is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.evidence.made import make_evidence
from tests.unit.fixes.pipelines import BATCH, DECODE, ENVIRONMENT, PYTHON, RANGE, pipeline, python
from xttsbench.analysis.attribution import StepFacts
from xttsbench.evidence import Compared
from xttsbench.fixes.predictions import COSTS_NOTHING
from xttsbench.fixes.proposals import proposals
from xttsbench.fixes.registry import SPECS
from xttsbench.fixes.results import results
from xttsbench.fixes.verified import Verified
from xttsbench.records.base import Estimate, Location
from xttsbench.records.code import ScriptData, ScriptRun
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Prediction
from xttsbench.records.trial import Devices, Trace

WAITING = pipeline(RANGE, PYTHON | {"location": Location(file="data.py", line=7)}, BATCH,
                   python_functions=(python("blocks", location=Location(file="data.py", line=3)),))  # fmt: skip
HOLDING = pipeline(RANGE, PYTHON, BATCH, python_functions=(python("holds", cpu_s=0.01),))


def alone(seconds=0.02):
    measured = Estimate(estimate=1 / seconds, low=0.99 / seconds, high=1.01 / seconds)
    return (Prediction(name=COSTS_NOTHING, batches_per_s=1 / seconds, measured_per_s=measured),)


def told(given, bottleneck="input", **fields):
    """A step of 20 ms, and 100 ms from one to the next."""
    fields = {"predictions": alone(), "environment": ENVIRONMENT} | fields
    return proposals(make_evidence(bottleneck, pipeline=given, **fields))


def by_name(found):
    return {one.name: one for one in found}


def test_the_best_comes_first_and_what_helps_only_together_says_so():
    found = told(WAITING, parts={"input": 0.09, "compute": 0.01})
    assert found[0].name == "parallel-map:32 + thread-pool:32"
    assert found[0].predicted_speedup == pytest.approx(5)
    capped = told(WAITING)  # whose input costs half of the step: the order stays, the gain is no larger
    assert (capped[0].name, capped[0].predicted_speedup) == (found[0].name, 2.0)
    assert found[0].fixes == ("parallel-map:32", "thread-pool:32")
    assert "32 calls" in found[0].what
    assert [(place.line, place.op) for place in found[0].places] == [(7, "1"), (3, "1")]
    pool = by_name(found)["thread-pool:32"]
    assert not pool.worth
    assert "combination" in pool.why_not


def test_each_that_is_not_worth_it_has_a_reason_and_those_that_are_come_first():
    for one in (WAITING, HOLDING, pipeline(RANGE, DECODE, BATCH)):
        found = told(one)
        assert [one.worth for one in found] == sorted((one.worth for one in found), reverse=True)
        assert all((one.why_not is None) == one.worth for one in found)
        assert sum(one.worth for one in found) <= 6


def test_where_the_step_does_not_wait_for_data_no_fix_of_the_input_is_worth_it():
    found = [one for one in told(WAITING, "compute") if not one.name.startswith("step:")]
    assert found
    assert not any(one.worth for one in found)
    assert "compute" in found[0].why_not


def test_a_bare_dataset_is_always_waited_for():
    found = told(WAITING, has_step=False, facts=StepFacts(has_step=False), predictions=())
    assert found[0].worth
    assert found[0].predicted_speedup == pytest.approx(32)


def test_processes_come_with_the_calls_that_wait_for_them():
    found = by_name(told(HOLDING))
    assert found["parallel-map:2 + processes:2"].worth
    assert not found["processes:2"].worth
    assert not found["parallel-map:2"].worth
    assert "less than 5 %" in found["parallel-map:2"].why_not


def test_a_cache_behind_python_is_tried_since_running_both_shows_whether_it_holds():
    kept = PYTHON | {"cardinality": 1000, "element_bytes": 100.0, "elements_per_batch": 8.0}
    given = pipeline(RANGE, kept, BATCH, python_functions=(python("blocks"),))
    cache = by_name(told(given))["cache@1"]
    assert cache.worth
    assert cache.first_pass_s == pytest.approx(1000 / 8 * 0.1)
    endless = pipeline(RANGE, kept | {"cardinality": 1_000_000}, BATCH, python_functions=(python("blocks"),))
    late = by_name(told(endless))["cache@1"]
    assert late.worth  # on a part of the data
    assert late.first_pass_s == pytest.approx(1_000_000 / 8 * 0.1)
    of_script = by_name(told(endless, script=ScriptRun()))["cache@1"]
    assert not of_script.worth
    assert "first pass" in of_script.why_not


def test_a_cache_of_what_draws_at_random_is_priced_and_not_tried():
    kept = PYTHON | {"cardinality": 1000, "element_bytes": 100.0, "elements_per_batch": 8.0}
    draws = python("blocks", random="f() draws random numbers")
    found = told(pipeline(RANGE, kept, BATCH, python_functions=(draws,)))
    cache = by_name(found)["cache@1"]
    assert (cache.worth, cache.why_not) == (False, None)
    assert cache.hazard == "a cache would repeat the first pass: f() draws random numbers; put that behind the cache"
    assert not any(one.worth for one in found if "cache@1" in one.fixes)
    (said,) = results((cache,), Verified(), None)
    assert (said.outcome, said.semantics.equivalent) == ("rejected", None)
    assert said.why == f"not proved to leave the data as they are: A{cache.hazard[1:]}."


@pytest.mark.parametrize(
    ("ended", "steps", "worth"),
    [("returned", 100, False), ("exited", 100, False), ("stopped", 100, True), ("returned", 225, True)],
)
def test_a_script_that_ends_before_its_data_come_again_gets_no_cache(ended, steps, worth):
    """An epoch is 125 steps, some of which are not seen in its sampling windows."""
    kept = PYTHON | {"cardinality": 1000, "element_bytes": 100.0, "elements_per_batch": 8.0}
    given = pipeline(RANGE, kept, BATCH, python_functions=(python("blocks"),))
    script = ScriptRun(ended=ended, steps_seen=steps, iterations=("next()",))
    cache = by_name(told(given, script=script))["cache@1"]
    assert cache.worth is worth
    assert worth or "before it reads the same data a second time" in cache.why_not


def test_how_long_an_epoch_of_a_generator_is_is_seen_from_where_it_begins_again(build):
    """TensorFlow does not know how many elements a generator yields; the steps began anew every 25 of them."""
    yields = PYTHON | {"op": "FlatMapDataset", "cardinality": -2, "element_bytes": 1e3, "elements_per_batch": 8.0}
    given = pipeline(RANGE | {"cardinality": 1, "elements_per_batch": 0.04}, yields, BATCH | {"cardinality": -2},
                     python_functions=(python("holds", cpu_s=0.01, kind="generator"),))  # fmt: skip
    (unknown,) = [one for one in told(given) if one.name.startswith("cache@")]
    assert "was not worked out" in unknown.why_not
    steps = build.steps(wait_s=0.08, step_s=[0.02] * 100, epoch=[step // 25 for step in range(100)])
    (cache,) = [one for one in told(given, steps=steps) if one.name.startswith("cache@")]
    assert cache.worth
    assert cache.first_pass_s == pytest.approx(25 * 0.1)


def test_a_cache_goes_where_it_spares_most_if_the_model_s_rates_are_not_believed():
    """Windows of a series: what the costly last op reads would hold less, and handing over takes the most time."""
    small = DECODE | {"cost_s": 0.0001, "element_bytes": 100.0}
    costly = DECODE | {"cost_s": 0.0003, "cpu_s": 0.0003}
    (cache,) = [one for one in told(pipeline(RANGE, small, costly)) if "cache" in one.name]
    assert (cache.name, cache.worth) == ("cache@2", True)


def test_a_cache_that_would_not_fit_is_there_with_the_bytes_of_both_sides():
    large = by_name(told(pipeline(RANGE, DECODE | {"element_bytes": 5e6, "stateful": True}, BATCH)))["cache@1"]
    assert not large.worth
    assert "4.66 GiB" in large.why_not
    assert "7.45 GiB" in large.why_not


def test_where_the_model_is_far_off_structure_decides_and_nothing_is_predicted():
    found = told(WAITING, wall_s=5.0)
    assert found[0].name == "parallel-map:32 + thread-pool:32"
    assert found[0].worth
    assert all(one.predicted_speedup is None for one in found)


def test_without_costs_the_fixes_that_the_ops_call_for_are_tried():
    unpriced = pipeline(
        {"op": "RangeDataset"},
        PYTHON | {"cost_s": None},
        {"op": "BatchDatasetV2"},
        python_functions=(python("blocks"),),
    )
    found = told(unpriced)
    assert found[0].name == "parallel-map:32 + thread-pool:32"
    assert found[0].worth
    assert found[0].predicted_speedup is None


def test_a_graph_that_cannot_be_rewritten_says_so():
    found = told(WAITING.model_copy(update={"unserialisable": "it holds a resource"}))
    assert "cannot be rewritten" in by_name(found)["parallel-map:32 + thread-pool:32"].why_not


XLA = Compared("xla", "ok", speedup=Estimate(estimate=4.0, low=3.9, high=4.1))


def test_xla_is_tried_unmeasured_only_where_the_step_computes():
    unmeasured = by_name(told(WAITING, "compute"))["step:xla"]
    assert unmeasured.worth
    assert unmeasured.predicted_speedup is None
    dispatch = by_name(told(WAITING, "input", parts={"input": 0.09, "compute": 0.01}))["step:xla"]
    assert "compute takes 10% of the step" in dispatch.why_not


def test_a_faster_step_is_worth_what_it_leaves_of_the_whole():
    quick = pipeline(RANGE, DECODE | {"cost_s": 0.001, "cpu_s": 0.001}, BATCH)
    found = by_name(told(quick, "compute", modes={"xla": XLA}, predictions=alone(0.1), wall_s=0.1))
    assert found["step:xla"].worth
    assert found["step:xla"].predicted_speedup == pytest.approx(4, rel=0.02)
    none = Compared("xla", "ok", speedup=Estimate(estimate=1.01, low=1.0, high=1.02))
    assert "less than 5 %" in by_name(told(quick, "compute", modes={"xla": none}))["step:xla"].why_not
    refused = Compared("xla", "raised", cause="XLA has no kernel for it")
    assert by_name(told(quick, "compute", modes={"xla": refused}))["step:xla"].why_not == "XLA has no kernel for it"


def test_an_input_that_the_step_hides_is_fixed_together_with_a_step_that_no_longer_does():
    # 80 ms of input beside a step of 100 ms: 4 times as fast a step would wait for it.
    fields = {"modes": {"xla": XLA}, "predictions": alone(0.1), "wall_s": 0.1}
    found = told(WAITING, "compute", **fields)
    assert found[0].name == "parallel-map:32 + thread-pool:32 + step:xla"
    assert found[0].predicted_speedup == pytest.approx(4, rel=0.02)
    only = by_name(found)["step:xla"]
    assert only.predicted_speedup == pytest.approx(0.1 / 0.08, rel=0.02)


def test_a_step_that_the_input_hides_is_mended_together_with_the_input():
    # 80 ms of input beside 60 ms of step: neither 4 times the step alone, nor the input alone, gives what both do.
    graph = Compared("graph", "ok", speedup=Estimate(estimate=4.0, low=3.9, high=4.1))
    fields = {"modes": {"graph": graph}, "predictions": alone(0.06), "wall_s": 0.082, "given_mode": "eager"}
    found = told(WAITING, "input", parts={"input": 0.02, "dispatch": 0.045, "compute": 0.015}, **fields)
    named = by_name(found)
    assert not named["step:graph"].worth
    assert found[0].name == "parallel-map:32 + thread-pool:32 + step:graph"
    alone_best = max(one.predicted_speedup or 0.0 for one in found if "step:" not in one.name)
    assert found[0].predicted_speedup > 1.5 * alone_best


@pytest.mark.parametrize("elements", [400, 10**6])
def test_a_step_is_mended_with_the_best_of_the_input_and_where_that_is_a_cache_with_the_best_without_one(elements):
    graph = Compared("graph", "ok", speedup=Estimate(estimate=60.0, low=59.0, high=61.0))
    fields = {"modes": {"graph": graph}, "predictions": alone(0.06), "wall_s": 0.082, "given_mode": "eager"}
    rows = pipeline(
        RANGE,
        PYTHON | {"cardinality": elements, "element_bytes": 100.0, "elements_per_batch": 8.0},
        BATCH,
        python_functions=WAITING.python_functions,
    )
    found = told(rows, "input", parts={"input": 0.02, "dispatch": 0.045, "compute": 0.015}, **fields)
    both = [one.name for one in found if "step:graph" in one.fixes and len(one.fixes) > 1]
    expected = ["cache@1 + step:graph", "parallel-map:32 + thread-pool:32 + step:graph"]
    # 4 s are nothing to wait for; the first pass of a million takes hours, and counts as one of ten.
    assert both == (expected if elements == 400 else expected[::-1])
    cache = by_name(found)["cache@1 + step:graph"]
    assert cache.predicted_speedup > by_name(found)[expected[1]].predicted_speedup - 1e-6  # from the second epoch on


def test_an_eager_step_is_compiled_where_launching_takes_its_time():
    eager = StepFacts(has_step=True, eager=True)
    found = by_name(told(WAITING, "dispatch", given_mode="eager", facts=eager))
    assert found["step:graph"].worth
    assert found["step:graph"].predicted_speedup is None
    assert not by_name(told(WAITING, "input", given_mode="eager", facts=eager))["step:graph"].worth


def test_shapes_that_are_compiled_again_and_again_call_for_no_xla(build):
    steps = build.steps(wait_s=0.001, step_s=[0.05] * 60, xla_s=0.02, xla_compiles=1, shape_id=[*range(60)])
    found = by_name(told(WAITING, "compile", steps=steps))
    assert (found["step:no-xla"].worth, found["step:no-xla"].predicted_speedup) == (True, pytest.approx(2))
    calm = build.steps(wait_s=0.001, step_s=[0.05] * 60)
    assert "step:no-xla" not in by_name(told(WAITING, "compile", steps=calm))
    traced = build.steps(wait_s=0.001, step_s=[0.05] * 60, trace_s=0.02, traces=1, shape_id=[*range(60)])
    assert "step:no-xla" not in by_name(told(WAITING, "compile", steps=traced))
    script = ScriptRun(data=ScriptData(kind=0), trains=True, iterations=("for",), step_function="train (/t.py:3)")
    assert by_name(told(WAITING, "compile", steps=steps, script=script))["step:no-xla"].worth


def test_a_model_in_fit_takes_several_steps_a_call_where_what_comes_once_for_a_call_takes_its_time():
    script = ScriptRun(data=ScriptData(kind=0), trains=True, iterations=("fit",))
    parts = {"dispatch": 0.003, "host": 0.002, "compute": 0.005}
    found = by_name(told(WAITING, "dispatch", parts=parts, script=script, wall_s=0.01))["step:several:16"]
    assert found.worth
    assert found.predicted_speedup == pytest.approx(1 / (0.5 + 0.5 / 16))
    calm = by_name(told(WAITING, "compute", parts={"dispatch": 0.0005, "compute": 0.0095}, script=script, wall_s=0.01))
    assert calm["step:several:16"].why_not == "what comes once for a call takes 5% of the step"
    for update in ({"steps_per_call": 4}, {"iterations": ("for",)}):
        other = told(WAITING, "dispatch", parts=parts, script=script.model_copy(update=update))
        assert "step:several:16" not in by_name(other)
    unsized = pipeline(RANGE, PYTHON | {"cardinality": -2}, BATCH | {"cardinality": -2})
    keras_2 = {"devices": Devices(versions={"keras": "2.21.0"}), "script": script, "parts": parts, "wall_s": 0.01}
    refused = by_name(told(unsized, "dispatch", **keras_2))["step:several:16"]
    assert (refused.worth, refused.predicted_speedup) == (False, None)
    assert refused.why_not.startswith("Keras 2 refuses steps_per_execution for data of unknown size")
    assert by_name(told(WAITING, "dispatch", **keras_2))["step:several:16"].worth
    eager = {"given_mode": "eager", "facts": StepFacts(has_step=True, eager=True)}
    assert "step:several:16" not in by_name(told(WAITING, "dispatch", parts=parts, script=script, **eager))


def test_a_script_whose_step_is_traced_for_each_number_gets_it_traced_once(build):
    steps = build.steps(wait_s=0.001, step_s=[0.05] * 60, trace_s=0.02, traces=1)
    traces = tuple(
        Trace(step=n, function="train", reason="python value", signature=f"(n: Literal[{n}])", time_s=0.02)
        for n in range(4)
    )
    script = ScriptRun(data=ScriptData(kind=0), trains=True, iterations=("for",), step_function="train (/t.py:3)")
    found = by_name(told(WAITING, "compile", steps=steps, traces=traces, script=script))
    assert found["step:traced-once"].worth
    assert "step:traced-once" not in by_name(told(WAITING, "compile", steps=steps, traces=traces))


def test_without_a_pipeline_the_step_is_still_looked_at():
    evidence = replace(make_evidence("compute", modes={"xla": XLA}), pipeline=None)
    assert [one.name for one in proposals(evidence)] == ["step:xla"]


def test_python_as_ops_is_tried_unpriced_alone_and_with_parallel_calls_unless_it_waits():
    rows = by_name(told(pipeline(RANGE, PYTHON, BATCH, python_functions=(python("holds", cpu_s=0.01),))))
    assert rows["native"].worth
    assert rows["native"].predicted_speedup is None
    assert any(name.startswith("native + parallel-map") for name in rows)
    waiting = by_name(told(pipeline(RANGE, PYTHON, BATCH, python_functions=(python("blocks"),))))
    assert not [name for name in waiting if "native" in name]


NUMBERS = st.none() | st.sampled_from([0.0, 1e-6, 1e-3, 0.05, 2.0])
OPS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(
            ["RangeDataset", "MapDataset", "ParallelMapDatasetV2", "InterleaveDataset", "ParallelInterleaveDatasetV4",
             "FlatMapDataset", "FilterDataset", "ShuffleDatasetV3", "RepeatDataset", "BatchDatasetV2", "TakeDataset",
             "PaddedBatchDatasetV2", "UnbatchDataset", "CacheDatasetV2", "PrefetchDataset", "OptionsDataset"]
        ),
        "parallelism": st.none() | st.sampled_from([-1, 1, 4, 64]),
        "chosen_parallelism": st.none() | st.sampled_from([1, 2]),
        "buffer_size": st.none() | st.sampled_from([-1, 0, 1, 8]),
        "batch_size": st.none() | st.sampled_from([1, 8]),
        "cycle_length": st.none() | st.sampled_from([-1, 1, 4]),
        "cardinality": st.none() | st.sampled_from([-2, -1, 0, 1, 1000]),
        "elements_per_batch": NUMBERS,
        "element_bytes": st.none() | st.sampled_from([0.0, 8.0, 1e8]),
        "cost_s": NUMBERS,
        "cpu_s": NUMBERS,
        "random": st.booleans(),
        "side_effects": st.booleans(),
        "cached": st.booleans(),
        "python_functions": st.sampled_from([(), ("t",)]),
        "reads": st.none() | st.just((0,)),
        "passes": st.sampled_from([{}, {0: 0}]),
    }
)  # fmt: skip
RATIO = Estimate(estimate=2.0, low=1.9, high=2.1)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    ops=st.lists(OPS, min_size=1, max_size=6),
    gil=st.sampled_from(["holds", "blocks", "releases", "unknown"]),
    bottleneck=st.sampled_from(["input", "compute", "dispatch", "contention", "compile", "inconclusive"]),
    has_step=st.booleans(),
    modes=st.sampled_from([{}, {"xla": Compared("xla", "ok", speedup=RATIO)}, {"xla": Compared("xla", "raised")}]),
    environment=st.sampled_from([{}, ENVIRONMENT, ENVIRONMENT | {"storage": {"free_bytes": 1e12}}]),
)
def test_whatever_the_pipeline(ops, gil, bottleneck, has_step, modes, environment):
    evidence = make_evidence(
        bottleneck,
        pipeline=pipeline(*ops, python_functions=(python(gil, cpu_s=0.005),)),
        environment=environment,
        has_step=has_step,
        facts=StepFacts(has_step=has_step),
        modes=modes,
    )
    found = proposals(evidence)
    names = [one.name for one in found]
    assert len(names) == len(set(names))
    assert all(one.name == " + ".join(one.fixes) and one.what for one in found)
    assert {fix.kind for one in found for fix in FixSet.of(one.fixes)} <= set(SPECS)
    assert all((one.why_not is None) == one.worth for one in found)
    worth = [one.worth for one in found]
    assert worth == sorted(worth, reverse=True)
    assert sum(worth) <= 6
    assert has_step or not [name for name in names if "step:" in name]


def test_a_fix_of_the_step_beside_one_of_the_input_gives_no_more_than_both_losses_removed():
    xla = Compared("xla", "ok", speedup=Estimate(estimate=1.2, low=1.1, high=1.3))
    fields = {"modes": {"xla": xla}, "predictions": alone(0.01), "wall_s": 0.1, "given_mode": "graph"}
    found = told(WAITING, "input", parts={"input": 0.06, "compute": 0.04}, **fields)
    both = [one.predicted_speedup or 0.0 for one in found if "step:xla" in one.fixes and len(one.fixes) > 1]
    assert both
    assert max(both) <= 1.2 * 0.1 / 0.04 + 1e-6
