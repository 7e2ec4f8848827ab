"""What a rule is, and that each has its words and yields nothing but its own id."""

from __future__ import annotations

import pytest

from tests.unit.findings.made import fixed, op, predicted
from xttsbench.evidence.pipeline import bytes_of, downstream, function_of, input_of, memory_bytes, upstream
from xttsbench.findings import RULES, rules
from xttsbench.findings.rule import Rule, gain, is_main, pace_s, pace_share, rule
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, Prediction, PythonFunction, size
from xttsbench.records.trial import Batches


@rule("made-up", threshold="always", remedy="Mend it.", false_alarms="none known")
def made_up(evidence):
    """Something that
    is wrong.
    """
    yield made_up.finding("a title", {"number": 1})
    yield made_up.finding("another", {}, "Mend that.", severity="critical", limiting=True, at=Location(line=3))


def test_a_rule_is_its_words_and_its_function(evidence) -> None:
    assert (made_up.id, made_up.symptom, made_up.remedy) == ("made-up", "Something that is wrong.", "Mend it.")
    plain, other = made_up(evidence())
    assert (plain.rule, plain.severity, plain.limiting, plain.remedy) == ("made-up", "info", False, "Mend it.")
    assert (other.severity, other.limiting, other.remedy, other.location.line) == ("critical", True, "Mend that.", 3)


def test_the_table_holds_every_rule_once() -> None:
    found = [one.id for about in RULES.values() for one in about]
    assert len(found) == len(set(found)) == len(rules()) > 40


@pytest.mark.parametrize("one", rules().values(), ids=lambda one: one.id)
def test_every_rule_is_explained(one) -> None:
    assert all((one.symptom, one.threshold, one.remedy, one.false_alarms))
    assert one.symptom.endswith(".")


RULE = Rule("r", "symptom", "threshold", "remedy", "none known", lambda _: iter(()))


def test_a_measured_fix_that_helps_is_a_gain_and_one_that_does_not_overrules_the_model(evidence, build) -> None:
    model = predicted("prefetch", 3.0)
    measured = gain(evidence("input", fixes=fixed(build, "prefetch", 1.5), predictions=model), "prefetch")
    assert (measured.name, measured.speedup.estimate, measured.processes) == ("prefetch", 1.5, 1)
    assert gain(evidence("input", fixes=fixed(build, "prefetch", 1.0), predictions=model), "prefetch") is None
    assert gain(evidence("input", fixes=fixed(build, "prefetch", 1.2, 0.2), predictions=model), "prefetch") is None


def test_where_nothing_was_verified_the_model_counts_from_ten_percent(evidence) -> None:
    told = gain(evidence("input", predictions=predicted("prefetch", 1.1)), "prefetch")
    assert (told.speedup.low, told.speedup.estimate, told.speedup.high, told.processes) == (1.1, 1.1, 1.1, 0)
    assert gain(evidence("input", predictions=predicted("prefetch", 1.09)), "prefetch") is None
    assert gain(evidence("input", predictions=predicted("prefetch", None)), "prefetch") is None


@pytest.mark.parametrize("bottleneck", ["compute", "inconclusive", "host", "compile", "dispatch"])
def test_nothing_is_a_gain_where_the_step_does_not_wait_for_data(evidence, build, bottleneck: str) -> None:
    told = evidence(bottleneck, fixes=fixed(build, "prefetch", 9.0), predictions=predicted("prefetch", 9.0))
    assert gain(told, "prefetch") is None


def test_a_combination_counts_only_where_all_of_it_was_asked_for(evidence) -> None:
    told = evidence("input", predictions=predicted("parallel-map + thread-pool:32", 8.0))
    assert gain(told, "parallel-map") is None
    assert gain(told, "thread-pool") is None
    assert gain(told, "parallel-map", "thread-pool").name == "parallel-map + thread-pool:32"
    assert gain(told, "parallel", "thread") is None, "a kind is the whole name up to the colon"


def test_the_conditions_of_the_model_are_no_fixes(evidence) -> None:
    ceiling = Prediction(name="input costs nothing", batches_per_s=99.0, speedup=9.0)
    assert gain(evidence("input", predictions=(ceiling,)), "input costs nothing") is None


def test_the_pace_of_an_op_considers_calls_processors_and_the_lock(evidence) -> None:
    held = PythonFunction(
        token="t", kind="numpy_function", name="f", gil="holds", call_time_s=0.1, call_cpu_s=0.1, calls_per_batch=4.0
    )
    sequential = op("a", "RangeDataset", cost_s=0.4)
    waiting = op("b", "ParallelMapDatasetV2", "a", parallelism=8, cost_s=0.8, cpu_s=0.0)
    computing = op("c", "ParallelMapDatasetV2", "b", parallelism=8, cost_s=0.8, cpu_s=0.8)
    locked = op(
        "d", "ParallelMapDatasetV2", "c", parallelism=8, cost_s=0.4, python_functions=("t",), cost_from="prefix"
    )
    silent_op = op("e", "BatchDatasetV2", "d")
    pipeline = Pipeline(
        ops=(sequential, waiting, computing, locked, silent_op), threadpool_size=8, python_functions=(held,)
    )
    told = evidence("input", pipeline=pipeline)  # on 2 processors
    assert pace_s(told, sequential) == pytest.approx(0.4)
    assert pace_s(told, waiting) == pytest.approx(0.1)
    assert pace_s(told, computing) == pytest.approx(0.4)
    assert pace_s(told, locked) == pytest.approx(0.4)
    assert pace_s(told, silent_op) is None
    assert pace_share(told, waiting) == pytest.approx(0.1 / 1.3)
    assert pace_share(told, sequential, computing, silent_op) == pytest.approx(0.8 / 1.3)
    assert pace_share(told, silent_op) is None
    assert is_main(told, sequential)
    assert not is_main(told, waiting)
    assert not is_main(told, silent_op)
    assert pace_share(evidence("input"), sequential) is None


def test_up_and_down_the_pipeline() -> None:
    ops = (
        op("a", "RangeDataset"),
        op("b", "RangeDataset"),
        op("c", "ZipDataset", "a", "b"),
        op("d", "CacheDatasetV2", "c"),
    )
    pipeline = Pipeline(ops=ops)
    assert [one.name for one in upstream(pipeline, ops[3])] == ["a", "b", "c"]
    assert [one.name for one in downstream(pipeline, ops[0])] == ["c", "d"]
    assert input_of(pipeline, ops[3]) is ops[2]
    assert input_of(pipeline, ops[2]) is None
    assert input_of(pipeline, ops[0]) is None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("__inference_Dataset_map_load_12", "load"),
        ("__inference_Dataset_flat_map_read_one_file_602", "read_one_file"),
        ("__inference_Dataset_interleave_classabc.ABCMeta_636", "f"),
        ("__inference_Dataset_map_lambda_708", "f"),
        ("something else", "f"),
        (None, "f"),
    ],
)
def test_a_function_is_called_as_the_user_calls_it(function, name: str) -> None:
    assert function_of(op("a", "MapDataset", function=function)) == name


def test_the_memory_is_the_lesser_of_machine_and_limit(evidence) -> None:
    assert memory_bytes(evidence(environment={"memory": {"total_bytes": 8, "limit_bytes": None}})) == 8
    assert memory_bytes(evidence(environment={"memory": {"total_bytes": 8, "limit_bytes": 3}})) == 3
    assert memory_bytes(evidence(environment={"memory": {"total_bytes": None, "limit_bytes": None}})) is None
    assert memory_bytes(evidence(environment={})) is None


def test_the_size_of_an_element_at_the_end_is_that_of_the_batches(evidence) -> None:
    batches = Batches(cached=4, bytes=400, shapes=())
    ops = (op("a", "MapDataset"), op("b", "BatchDatasetV2", "a"), op("c", "PrefetchDataset", "b"))
    told = evidence(pipeline=Pipeline(ops=ops), batches=batches)
    assert [bytes_of(told, one) for one in ops] == [None, 100.0, 100.0]
    assert bytes_of(told, op("b", "BatchDatasetV2", element_bytes=7.0)) == 7.0
    assert bytes_of(evidence(pipeline=Pipeline(ops=ops)), ops[2]) is None


@pytest.mark.parametrize(
    ("number", "text"), [(12, "12 B"), (2_500, "2.44 KiB"), (3.21e6, "3.06 MiB"), (4e12, "3.64 TiB")]
)
def test_sizes(number: float, text: str) -> None:
    assert size(number) == text


def test_a_gain_makes_a_finding_limiting_and_says_what_would_change(evidence, build) -> None:
    plain = RULE.finding("t", {"a": 1}, "Do it.", severity="info")
    assert (plain.limiting, plain.severity, plain.predicted_speedup) == (False, "info", None)
    helps = gain(evidence("input", predictions=predicted("parallel-map", 1.5, "It changes the order.")), "parallel-map")
    found = RULE.finding("t", {"a": 1}, "Do it.", helps=helps)
    assert (found.limiting, found.severity, found.evidence["predicted_with"]) == (True, "warning", "parallel-map")
    assert found.remedy == "Do it. Mind that it changes the order."
    model = predicted("prefetch", 3.0)
    measured = gain(evidence("input", fixes=fixed(build, "prefetch", 2.5), predictions=model), "prefetch")
    found = RULE.finding("t", {}, "Do it.", helps=measured)
    assert (found.predicted_speedup.estimate, found.verified_speedup.estimate) == (3.0, 2.5)
    assert (found.severity, found.evidence) == ("critical", {"measured_with": "prefetch", "processes": 1})
