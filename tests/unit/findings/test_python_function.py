from __future__ import annotations

import re

import pytest

from tests.unit.findings.made import fixed, only, op, predicted, silent
from xttsbench.findings.python_function import python_function
from xttsbench.records.base import Location
from xttsbench.records.pipeline import GeneratorParts, Pipeline, PythonFunction, SlowLine

TWO = {"cpu": {"allowed_cpus": 2.0}}


def python_pipeline(gil: str = "holds", share: float = 0.9, *, told=None, parallelism=None, **fields) -> Pipeline:
    """A source and a map of 1 s together; the function's calls are not known."""
    known = {"token": "t", "kind": "numpy_function", "name": "load", "gil": gil} | (told or {})
    function = PythonFunction(location=Location(file="data.py", line=9, op="Map/_2"), **known)
    kind = "MapDataset" if parallelism is None else "ParallelMapDatasetV2"
    own = {"cost_s": share, "python_functions": ("t",), "stateful": True, "side_effects": True} | fields
    ops = (
        op("Range/_1", "RangeDataset", cost_s=1 - share),
        op("Map/_2", kind, "Range/_1", parallelism=parallelism, **own),
    )
    return Pipeline(ops=ops, python_functions=(function,))


@pytest.mark.parametrize(
    ("gil", "title", "remedy"),
    [
        ("holds", "it computes under Python's interpreter lock", "more parallel calls cannot help"),
        ("blocks", "it waits without computing", "private thread pool"),
        ("releases", "it computes outside the interpreter lock", "parallel calls can use"),
        ("unknown", "whether it computes under the interpreter lock is not known", "Measure load() alone"),
    ],
)
def test_a_python_function_is_judged_by_its_class(evidence, gil: str, title: str, remedy: str) -> None:
    found = only(python_function, evidence("input", pipeline=python_pipeline(gil)))
    assert (found.rule, found.limiting, found.severity) == ("python-function", True, "warning")
    assert found.title.startswith(f"load() runs as numpy_function in Map/_2, one call after another: {title}")
    assert remedy in found.remedy
    assert (found.location.file, found.location.line) == ("data.py", 9)
    assert found.evidence["cost_share"] == pytest.approx(0.9)
    assert found.predicted_speedup is not None


@pytest.mark.parametrize(
    ("fields", "told", "at_once"),
    [
        ({"parallelism": 4}, {}, ", 4 calls at once: "),
        ({"parallelism": -1, "chosen_parallelism": 3}, {}, ", 3 calls at once, as AUTOTUNE chose: "),
        ({"parallelism": -1}, {}, ": "),
        ({}, {"kind": "generator"}, ", one element after another: "),
    ],
)
def test_its_title_says_how_many_calls_run_at_once_and_what_one_takes(evidence, fields, told, at_once) -> None:
    made = python_pipeline("holds", told={"call_time_s": 0.0107, **told}, **fields)
    title = only(python_function, evidence("input", pipeline=made)).title
    assert title.startswith(f"load() runs as {told.get('kind', 'numpy_function')} in Map/_2{at_once}it computes under")
    assert title.endswith(", 10.7 ms a call")


def test_it_is_left_alone_where_it_does_not_limit(evidence) -> None:
    for made in (
        evidence("compute", pipeline=python_pipeline()),
        evidence("input", pipeline=python_pipeline(share=0.29)),
    ):
        found = only(python_function, made)
        assert (found.limiting, found.severity, found.predicted_speedup) == (False, "info", None)
        assert found.remedy.startswith("Leave it alone")
    assert only(python_function, evidence("input", pipeline=python_pipeline(share=0.31))).limiting


def test_a_function_that_runs_in_parallel_is_not_blamed_for_a_sequential_op(evidence) -> None:
    parallel = python_pipeline("blocks", 0.8, parallelism=32)
    told = evidence("input", pipeline=parallel.model_copy(update={"threadpool_size": 32}))
    found = only(python_function, told)  # 0.8 s over 32 calls beside 0.2 s in one
    assert not found.limiting
    assert "other ops" in found.remedy


def test_its_calls_tell_where_its_op_has_no_cost(evidence) -> None:
    def told(call_time_s: float):
        calls = {"call_time_s": call_time_s, "calls_per_batch": 8.0}
        return evidence("input", pipeline=python_pipeline("blocks", cost_s=None, told=calls))  # waits 50 ms a step

    assert only(python_function, told(0.005)).limiting
    assert not only(python_function, told(0.001)).limiting


def test_what_no_other_op_explains_is_left_to_the_only_one_without_a_cost(evidence, build) -> None:
    alone = build.estimate(1.0)
    unknown = python_pipeline(cost_s=None, share=0.9)  # the source takes 0.1 s of 1 s
    assert only(python_function, evidence("input", pipeline=unknown, input_alone_s=alone)).limiting
    explained = python_pipeline(cost_s=None, share=0.4)
    assert not only(python_function, evidence("input", pipeline=explained, input_alone_s=alone)).limiting


def test_the_speed_up_is_that_of_the_remedy_where_it_was_measured_or_predicted(evidence, build) -> None:
    pipeline = python_pipeline("blocks")
    ceiling = only(python_function, evidence("input", pipeline=pipeline))
    assert ceiling.predicted_speedup.estimate == 2.0
    both = "parallel-map + thread-pool:32"
    modelled = only(python_function, evidence("input", pipeline=pipeline, predictions=predicted(both, 1.7)))
    assert (modelled.predicted_speedup.estimate, modelled.evidence["helps"]) == (1.7, both)
    measured = only(python_function, evidence("input", pipeline=pipeline, fixes=fixed(build, "thread-pool:32", 1.9)))
    assert (measured.predicted_speedup, measured.evidence["helps"]) == (None, "thread-pool:32")
    held = evidence("input", pipeline=python_pipeline("holds"), predictions=predicted("parallel-map", 1.7))
    assert only(python_function, held).evidence.get("helps") is None, "parallel calls are no remedy for the lock"


def test_the_remedy_speaks_of_the_call_as_it_is(evidence) -> None:
    parallel = python_pipeline("holds", parallelism=16, told={"calls_per_batch": 64.0})
    found = only(python_function, evidence("input", pipeline=parallel))
    assert "(now 16) cannot help" in found.remedy
    assert "64 calls make one" in found.remedy
    asked = only(python_function, evidence("input", pipeline=python_pipeline("blocks", parallelism=16)))
    assert "private_threadpool_size = 16" in asked.remedy
    assert "2 here" in asked.remedy
    more = python_pipeline("blocks", 0.99, parallelism=16).model_copy(update={"threadpool_size": 16})
    assert "num_parallel_calls=32" in only(python_function, evidence("input", pipeline=more)).remedy
    nested = python_pipeline("blocks", told={"name": "make.<locals>.load"})
    assert ".map(load, num_parallel_calls=32)" in only(python_function, evidence("input", pipeline=nested)).remedy
    already = only(python_function, evidence("input", pipeline=python_pipeline("releases", parallelism=-1)))
    assert "in parallel already" in already.remedy
    generator = python_pipeline("blocks", told={"kind": "generator"})
    assert "Split load() by shard" in only(python_function, evidence("input", pipeline=generator)).remedy


def test_the_remedy_of_a_generator_tells_its_two_parts_apart_or_why_it_has_none(evidence) -> None:
    parts = GeneratorParts(line=7)
    for gil, told in (("blocks", "num_parallel_calls"), ("holds", "run that function in processes")):
        generator = python_pipeline(gil, told={"kind": "generator", "parts": parts})
        remedy = only(python_function, evidence("input", pipeline=generator)).remedy
        assert "loop in line 7" in remedy
        assert told in remedy
    of_library = GeneratorParts(line=7, file="/lib/keras/adapter.py")
    generator = python_pipeline("blocks", told={"kind": "generator", "parts": of_library})
    remedy = only(python_function, evidence("input", pipeline=generator)).remedy
    assert "line 7" not in remedy, "it is no line that the reader can edit"
    assert "The loop that calls load() is a library's" in remedy
    whole = python_pipeline("blocks", told={"kind": "generator", "whole_because": "line 9: 'mean' is carried"})
    assert "cannot be taken apart (line 9: 'mean'" in only(python_function, evidence("input", pipeline=whole)).remedy


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"ops_share": 0.9}, "put @tf.function over the function that it calls"),
        ({"ops_share": 0.1}, "@functools.cache"),
        ({"ops_share": 0.1, "carried": ("boxes",)}, "each round of the loop there changes boxes"),
    ],
)
def test_the_line_that_takes_a_generator_s_time_comes_first_with_what_to_do_there(evidence, line, told) -> None:
    at = Location(file="/code/boxes.py", line=12)
    slow = SlowLine(location=at, text="target = match(boxes)", share=0.83, **line)
    generator = python_pipeline("holds", told={"kind": "generator", "whole_because": "line 9", "slow_line": slow})
    remedy = only(python_function, evidence("input", pipeline=generator)).remedy
    assert re.match(r"83% of the time of \w+\(\) is spent in boxes\.py:12 \(`target = match\(boxes\)`\)", remedy)
    assert told in remedy
    assert ("compute it once" in remedy) == ("cache" in told)


def test_a_function_inside_an_interleave_is_found_at_the_op_that_runs_it(evidence) -> None:
    inner = op("Map/_9", "MapDataset", python_functions=("t",))
    pipeline = python_pipeline(python_functions=(), inner=(inner,))
    assert only(python_function, evidence("input", pipeline=pipeline)).evidence["cost_share"] == pytest.approx(0.9)


def test_no_python_function_no_finding(evidence) -> None:
    assert silent(python_function, evidence("input", pipeline=Pipeline()))
    assert silent(python_function, evidence("input"))


def test_calls_in_parallel_are_not_advised_where_the_same_report_prices_them_at_nothing(evidence) -> None:
    nothing = predicted("parallel-map", 1.0)
    found = only(python_function, evidence("input", pipeline=python_pipeline("releases"), predictions=nothing))
    assert "estimated at 1.00 times as fast" in found.remedy
    assert "num_parallel_calls" not in found.remedy
    worth = evidence("input", pipeline=python_pipeline("releases"), predictions=predicted("parallel-map", 1.8))
    assert "num_parallel_calls" in only(python_function, worth).remedy


def test_a_call_that_computes_is_said_to_even_where_the_lock_is_not_known(evidence) -> None:
    def title(cpu_s: float) -> str:
        made = python_pipeline("unknown", told={"call_time_s": 0.01, "call_cpu_s": cpu_s})
        return only(python_function, evidence("input", pipeline=made)).title

    assert ": it computes, whether under the interpreter lock is not known, 10 ms a call" in title(0.009)
    assert ": whether it computes under the interpreter lock is not known, 10 ms a call" in title(0.003)


def test_an_interleave_that_reads_one_source_at_a_time_says_so(evidence) -> None:
    made = python_pipeline("blocks")
    own = made.ops[1].model_copy(update={"op": "InterleaveDataset"})
    title = only(python_function, evidence("input", pipeline=made.model_copy(update={"ops": (made.ops[0], own)}))).title
    assert ", one call after another: it waits" in title


def test_without_a_verdict_no_function_is_called_harmless(evidence) -> None:
    found = only(python_function, evidence("inconclusive", pipeline=python_pipeline("unknown")))
    assert (found.limiting, found.remedy) == (
        False,
        "Whether it limits the step is not known: no bottleneck could be named.",
    )


def test_twice_the_calls_are_asked_for_where_all_of_them_have_threads(evidence) -> None:
    made = python_pipeline("blocks", parallelism=2, told={"call_time_s": 0.01})
    found = only(python_function, evidence("input", pipeline=made, environment=TWO))
    assert "num_parallel_calls=4, options.threading.private_threadpool_size = 4)" in found.remedy


def test_one_number_of_calls_is_advised_in_a_report(evidence) -> None:
    rows = predicted("parallel-map:64 + thread-pool:64", 20.0)
    found = only(python_function, evidence("input", pipeline=python_pipeline("blocks"), predictions=rows))
    assert "num_parallel_calls=64), and" in found.remedy
    assert "private_threadpool_size = 64:" in found.remedy


def test_the_advice_is_what_the_gain_is_of(evidence, build) -> None:
    rows = (*predicted("cache@Map/_2", 3.0), *predicted("parallel-map", 1.2))
    found = only(python_function, evidence("input", pipeline=python_pipeline("releases"), predictions=rows))
    assert found.evidence["helps"] == "cache@Map/_2"
    assert found.remedy.startswith("Keep what it yields by .cache() behind it, if every epoch may have the same. Else:")
    given = {"pipeline": python_pipeline("releases"), "predictions": rows, "fixes": fixed(build, "cache@Map/_2", 3.0)}
    found = only(python_function, evidence("input", **given))
    assert not found.remedy.startswith("Keep"), "what came of it is told of the fix itself"


def test_the_map_is_advised_with_the_function_that_it_is_given(evidence) -> None:
    made = python_pipeline("releases", function="__inference_Dataset_map_tf_load_12")
    assert ".map(tf_load, num_parallel_calls" in only(python_function, evidence("input", pipeline=made)).remedy
