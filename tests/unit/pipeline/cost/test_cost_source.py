"""Which reading of an op's cost is believed, and what the calls of Python functions add."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.pipeline.cost.cost_source import StageCost, choose, elements_per_batch, explained, with_python_costs
from xttsbench.pipeline.cost.model import OpCost
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction


def op(kind, *inputs, **fields):
    return PipelineOp(name=kind, op=kind, inputs=inputs, **fields)


def modelled(cost_s, per_batch=1.0, elements=100):
    return OpCost(cost_s=cost_s, elements=elements, elements_per_batch=per_batch)


def alone(wall_s, cpu_s=0.0, **fields):
    return StageCost(cardinality=-2, wall_s=wall_s, cpu_s=cpu_s, elements=10, **fields)


def test_a_batch_takes_the_batch_size_of_each_op_before_it():
    ops = (op("MapDataset"), op("BatchDatasetV2", "MapDataset", batch_size=8), op("PrefetchDataset", "BatchDatasetV2"))
    assert elements_per_batch(ops, {}, {}) == {"MapDataset": 8, "BatchDatasetV2": 1, "PrefetchDataset": 1}


def test_a_filters_ratio_is_that_of_its_own_run_unless_the_model_saw_many_more():
    ops = (op("MapDataset"), op("FilterDataset", "MapDataset"))
    own = {"FilterDataset": alone(0.001, consumed={"MapDataset": 2.0})}
    few = {"FilterDataset": modelled(None), "MapDataset": modelled(None, 3.0)}
    many = {"FilterDataset": modelled(None), "MapDataset": modelled(None, 3.0, elements=10_000)}
    assert elements_per_batch(ops, few, own)["MapDataset"] == 2
    assert elements_per_batch(ops, many, own)["MapDataset"] == 3
    assert elements_per_batch(ops, few, {})["MapDataset"] == 3
    assert "MapDataset" not in elements_per_batch(ops, {}, {})


def test_an_op_that_two_others_read_gives_to_both():
    ops = (op("RangeDataset"), op("MapDataset", "RangeDataset"), op("ZipDataset", "RangeDataset", "MapDataset"))
    assert elements_per_batch(ops, {}, {})["RangeDataset"] == 2


def test_a_parallel_op_has_the_uncontended_cost_of_its_own_run():
    ops = (op("ParallelMapDatasetV2", parallelism=8), op("BatchDatasetV2", "ParallelMapDatasetV2", batch_size=4))
    stages = {"ParallelMapDatasetV2": alone(0.010, 0.004), "BatchDatasetV2": alone(0.001, 0.001)}
    found = choose(ops, {"ParallelMapDatasetV2": modelled(0.3, 4.0)}, stages)["ParallelMapDatasetV2"]
    assert (found.cost_s, found.cpu_s, found.cost_from) == (pytest.approx(0.040), pytest.approx(0.016), "prefix")


def test_a_sequential_op_keeps_the_models_cost_where_the_two_agree():
    ops = (op("MapDataset"),)
    for model_s, expected in ((0.011, "model"), (0.030, "prefix"), (0.002, "prefix")):
        found = choose(ops, {"MapDataset": modelled(model_s)}, {"MapDataset": alone(0.010)})["MapDataset"]
        assert found.cost_from == expected


def test_where_the_model_explains_the_whole_better_it_is_believed():
    ops = (op("MapDataset"),)  # one element in a hundred takes long: few elements do not show it
    costs, stages = {"MapDataset": modelled(0.030)}, {"MapDataset": alone(0.010)}
    assert choose(ops, costs, stages, sequential_s=0.029)["MapDataset"].cost_from == "model"
    assert choose(ops, costs, stages, sequential_s=0.010)["MapDataset"].cost_from == "prefix"


def test_without_either_there_is_none_and_what_is_left_out_does_not_count():
    ops = (op("MapDataset"), op("CacheDatasetV2", "MapDataset"), op("RepeatDataset", "CacheDatasetV2"))
    found = choose(ops, {"CacheDatasetV2": modelled(5.0)}, {"MapDataset": alone(0.010)})
    assert found["RepeatDataset"].cost_s is None
    assert found["RepeatDataset"].cost_from is None
    assert explained(ops, found, 0.020) == pytest.approx(0.5)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6), st.integers(1, 64))
def test_costs_of_ops_run_alone_scale_with_what_a_batch_takes(walls, batch_size):
    ops = tuple(
        PipelineOp(name=str(number), op="MapDataset", inputs=(str(number - 1),) if number else ())
        for number in range(len(walls))
    )
    ops = (*ops, PipelineOp(name="end", op="BatchDatasetV2", inputs=(ops[-1].name,), batch_size=batch_size))
    found = choose(ops, {}, {str(number): alone(wall_s) for number, wall_s in enumerate(walls)})
    assert [found[str(n)].cost_s for n in range(len(walls))] == pytest.approx([w * batch_size for w in walls])


def filled(op="MapDataset", calls=4.0, **fields):
    function = PythonFunction(
        token="pyfunc_1", kind="numpy_function", name="f", call_time_s=0.010, call_cpu_s=0.002, calls_per_batch=calls
    )
    pipeline = Pipeline(
        ops=(PipelineOp(name="m", op=op, python_functions=("pyfunc_1",), **fields), PipelineOp(name="b", op="Batch")),
        python_functions=(function,),
    )
    return with_python_costs(pipeline).ops


def test_an_op_without_figures_gets_those_of_its_calls_and_others_stay():
    mapped, batch = filled()
    assert (mapped.cost_s, mapped.cpu_s) == (pytest.approx(0.040), pytest.approx(0.008))
    assert batch.cost_s is None
    assert batch.cpu_s is None


def test_a_measured_cost_stays_and_processor_time_is_at_least_that_of_the_calls():
    assert filled(cost_s=0.050, cpu_s=0.020)[0].cpu_s == 0.020
    assert filled(cost_s=0.050, cpu_s=0.001)[0].cpu_s == pytest.approx(0.008)
    assert filled(cost_s=0.050, cpu_s=0.001)[0].cost_s == 0.050


def test_a_map_calls_once_per_element_though_buffers_made_it_call_more():
    assert filled(calls=9.0, elements_per_batch=4.0)[0].cpu_s == pytest.approx(0.008)
    assert filled("FlatMapDataset", calls=9.0, elements_per_batch=4.0)[0].cpu_s == pytest.approx(0.018)


@pytest.mark.parametrize(
    ("kind", "counted", "calls"),
    [
        ("ParallelMapDatasetV2", 3.0, 4.0),  # what a buffer held when the count began
        ("MapDataset", 5.5, 4.0),
        ("MapDataset", 1.0, 1.0),  # for one element in four: a condition
        ("MapDataset", 8.0, 8.0),  # twice for each
        ("FlatMapDataset", 3.0, 3.0),
        ("MapDataset", None, None),
    ],
)
def test_a_map_that_calls_about_once_per_element_does_so(kind, counted, calls):
    function = PythonFunction(token="p", kind="numpy_function", name="f", calls_per_batch=counted, call_time_s=0.003)
    ops = (PipelineOp(name="m", op=kind, python_functions=("p",), elements_per_batch=4.0),)
    (found,) = with_python_costs(Pipeline(ops=ops, python_functions=(function,))).python_functions
    assert found.calls_per_batch == calls


def test_calls_that_were_not_counted_say_nothing():
    assert filled(calls=None)[0].cost_s is None


def handed_on(each_s):
    return StageCost(cardinality=-1, why_not="it only hands elements on", handed_on_s=each_s)


@pytest.mark.parametrize(
    ("each_s", "cost_s", "source"),
    [(2e-6, 16e-6, "prefix"), (50e-6, 300e-6, "model"), (None, 300e-6, "model")],
)
def test_what_only_hands_elements_on_costs_no_more_than_with_nothing_beside_it(each_s, cost_s, source):
    """The model saw it wait for a processor; by itself each of 8 elements of a batch takes so long."""
    ops = (op("MapDataset"), op("RepeatDataset", "MapDataset"), op("BatchDatasetV2", "RepeatDataset", batch_size=8))
    costs = {"MapDataset": modelled(0.07, 8.0), "RepeatDataset": modelled(300e-6, 8.0)}
    found = choose(ops, costs, {"RepeatDataset": handed_on(each_s)})["RepeatDataset"]
    assert (found.cost_s, found.cost_from) == (pytest.approx(cost_s), source)
