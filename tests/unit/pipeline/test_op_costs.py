"""Hand-built models whose costs are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.pipeline.op_costs import (
    ModelNode,
    OpCost,
    StageCost,
    choose,
    costs,
    elements_per_batch,
    match,
    merge,
    with_python_costs,
)
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction

MS = 1_000_000


def node(number, name, elements, total_ms, inputs=(), ratio=None, **parameters):
    return ModelNode(number, name, elements, int(total_ms * MS), ratio, tuple(inputs), parameters)


def nodes(*items):
    return {item.id: item for item in items}


def chain(*kinds):
    """Ops that read one another, the source first; each is named after its kind."""
    return tuple(PipelineOp(name=kind, op=kind, inputs=(kinds[i - 1],) if i else ()) for i, kind in enumerate(kinds))


def costs_of(model, ops):
    matched, ignored = match(model, 1, ops)
    return {name: cost.cost_s for name, cost in costs(model, matched, ops).items()}, ignored


def test_known_ratios_scale_a_cost_per_element_to_a_batch_whatever_the_counts():
    model = nodes(
        node(1, "Root", 10, 0, [2], 1.0),
        node(2, "Prefetch", 10, 1, [3], 1.0),
        node(3, "BatchV2", 12, 24, [4], 4.0),
        node(4, "ParallelMapV2", 70, 350, [5], 1.0, parallelism=2.0),  # 70: it ran ahead
        node(5, "Range", 71, 0.71),
    )
    found, ignored = costs_of(model, chain("RangeDataset", "ParallelMapDatasetV2", "BatchDatasetV2", "PrefetchDataset"))
    assert found["ParallelMapDatasetV2"] == pytest.approx(4 * 0.005)
    assert found["BatchDatasetV2"] == pytest.approx(0.002)
    assert found["RangeDataset"] == pytest.approx(4 * 0.00001)
    assert ignored == 0


def test_a_filter_passes_on_what_was_counted():
    model = nodes(node(1, "Root", 10, 0, [2], 1.0), node(2, "Filter", 10, 1, [3]), node(3, "Map", 40, 80, [], 1.0))
    found, _ = costs_of(model, chain("MapDataset", "FilterDataset"))
    assert found["MapDataset"] == pytest.approx(4 * 0.002)


def test_injected_nodes_and_the_inside_of_a_cache_are_stepped_over_and_counted():
    model = nodes(
        node(1, "Root", 5, 0, [2], 1.0),
        node(2, "Prefetch", 5, 1, [3], 1.0),
        node(3, "MemoryCache", 5, 1, [4], 1.0),
        node(4, "MemoryCacheImpl", 5, 1, [5], 1.0),
        node(5, "Map", 5, 50, [], 1.0),
    )
    found, ignored = costs_of(model, chain("MapDataset", "CacheDatasetV2"))
    assert found["MapDataset"] == pytest.approx(0.010)
    assert ignored == 2


def test_an_op_without_a_node_is_stepped_over_and_has_no_cost():
    model = nodes(node(1, "Root", 5, 0, [2], 1.0), node(2, "Map", 5, 50, [], 1.0))
    found, _ = costs_of(model, chain("MapDataset", "ModelDataset"))
    assert found == {"MapDataset": pytest.approx(0.010)}


def test_inner_datasets_are_part_of_the_op_that_runs_them():
    ops = (PipelineOp(name="range", op="RangeDataset"), PipelineOp(name="flat", op="FlatMapDataset", inputs=("range",)))
    inner = (node(4, "Map", 3, 15, [5], 1.0), node(5, "Range", 3, 0), node(6, "Map", 1, 5, [], 1.0))
    model = nodes(
        node(1, "Root", 20, 0, [2], 1.0), node(2, "FlatMap", 20, 20, [3, 4, 6]), node(3, "Range", 10, 10), *inner
    )
    found, _ = costs_of(model, ops)
    assert found["flat"] == pytest.approx(0.001 + 0.005)
    assert found["range"] == pytest.approx(0.5 * 0.001)


def test_waits_inside_a_parallel_interleave_are_not_its_work():
    ops = (
        PipelineOp(name="range", op="RangeDataset"),
        PipelineOp(name="inter", op="ParallelInterleaveDatasetV4", inputs=("range",), parallelism=4),
    )
    model = nodes(
        node(1, "Root", 20, 0, [2], 1.0),
        node(2, "ParallelInterleaveV4", 20, 900, [3, 4], parallelism=4.0),
        node(3, "Range", 10, 10),
        node(4, "Map", 2, 10, [], 1.0),
    )
    assert costs_of(model, ops)[0]["inter"] == pytest.approx(0.005)


def test_every_epoch_under_repeat_counts():
    ops = chain("MapDataset", "RepeatDataset")
    model = nodes(
        node(1, "Root", 30, 0, [2], 1.0),
        node(2, "ForeverRepeat", 30, 0, [3, 4], 1.0),
        node(3, "Map", 20, 200, [], 1.0),
        node(4, "Map", 10, 40, [], 1.0),
    )
    assert costs_of(model, ops)[0]["MapDataset"] == pytest.approx(0.240 / 30)


def test_zip_takes_one_of_each_and_concatenate_what_it_took():
    two = (PipelineOp(name="a", op="MapDataset"), PipelineOp(name="b", op="MapDataset"))
    children = (node(3, "Map", 30, 30, [], 1.0), node(4, "Map", 10, 100, [], 1.0))
    for kind, share in (("Zip", (1.0, 1.0)), ("Concatenate", (0.75, 0.25))):
        ops = (*two, PipelineOp(name="end", op=f"{kind}Dataset", inputs=("a", "b")))
        model = nodes(node(1, "Root", 40, 0, [2], 1.0), node(2, kind, 40, 4, [3, 4], 1.0), *children)
        found, _ = costs_of(model, ops)
        assert (found["a"], found["b"]) == (pytest.approx(share[0] * 0.001), pytest.approx(share[1] * 0.010))


def test_merging_takes_off_the_start_and_keeps_what_vanished():
    first = nodes(node(1, "Root", 1, 10, [2]), node(2, "Map", 100, 1000, []), node(9, "Idle", 5, 50, []))
    second = nodes(node(1, "Root", 2, 12, [2, 3]), node(2, "Map", 150, 1100, []), node(3, "Map", 4, 8, []))
    third = nodes(node(1, "Root", 3, 14, [2]), node(2, "Map", 200, 1200, []))
    merged = merge([first, second, third])
    assert (merged[2].elements, merged[2].time_ns) == (100, 200 * MS)
    assert (merged[3].elements, merged[9].elements) == (4, 5)
    assert merged[1].inputs == (2, 3)


def test_no_elements_no_cost():
    model = nodes(node(1, "Root", 1, 0, [2], 1.0), node(2, "Map", 0, 7, [], 1.0))
    assert costs_of(model, chain("MapDataset"))[0] == {"MapDataset": None}


def test_the_elements_that_a_batch_takes_are_said():
    model = nodes(
        node(1, "Root", 10, 0, [2], 1.0), node(2, "BatchV2", 10, 1, [3], 4.0), node(3, "Map", 40, 80, [], 1.0)
    )
    ops = chain("MapDataset", "BatchDatasetV2")
    found = costs(model, match(model, 1, ops)[0], ops)
    assert [found[op.name].elements_per_batch for op in ops] == [4.0, 1.0]


def test_in_a_rewritten_run_ops_are_found_under_other_names():
    ops = chain("RangeDataset", "MapDataset", "BatchDatasetV2")
    parallel = nodes(
        node(1, "Root", 10, 0, [2], 1.0),
        node(2, "Prefetch", 10, 1, [3], 1.0, buffer_size=4.0),
        node(3, "ParallelBatch", 10, 1, [4], 8.0, parallelism=2.0),
        node(4, "ParallelMapV2", 80, 1, [5], 1.0, parallelism=3.0),
        node(5, "Range", 80, 1),
    )
    matched, ignored = match(parallel, 1, ops, rewritten=True)
    assert matched == {"BatchDatasetV2": [3], "MapDataset": [4], "RangeDataset": [5]}
    assert ignored == 1
    assert "MapDataset" not in match(parallel, 1, ops)[0]


def test_a_map_fused_with_its_batch_is_both():
    ops = chain("RangeDataset", "MapDataset", "BatchDatasetV2")
    fused = nodes(
        node(1, "Root", 10, 0, [2], 1.0),
        node(2, "MapAndBatch", 10, 1, [3], 8.0, parallelism=2.0),
        node(3, "Range", 80, 1),
    )
    matched, _ = match(fused, 1, ops, rewritten=True)
    assert matched == {"BatchDatasetV2": [2], "MapDataset": [2], "RangeDataset": [3]}


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


def test_a_sequential_op_has_no_more_processor_time_than_the_cost_that_is_believed():
    ops = (op("MapDataset"),)
    stages = {"MapDataset": alone(0.010, 0.009)}
    believed = choose(ops, {"MapDataset": modelled(0.0001)}, stages, sequential_s=0.0001)["MapDataset"]
    assert (believed.cost_s, believed.cpu_s) == (pytest.approx(0.0001), pytest.approx(0.0001))
    own = choose(ops, {"MapDataset": modelled(0.0001)}, stages)["MapDataset"]
    assert (own.cost_s, own.cpu_s) == (pytest.approx(0.010), pytest.approx(0.009))


def test_without_either_there_is_none():
    ops = (op("MapDataset"), op("CacheDatasetV2", "MapDataset"), op("RepeatDataset", "CacheDatasetV2"))
    found = choose(ops, {"CacheDatasetV2": modelled(5.0)}, {"MapDataset": alone(0.010)})
    assert found["RepeatDataset"].cost_s is None
    assert found["RepeatDataset"].cost_from is None


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
        ("ParallelMapDatasetV2", 6.5, 4.0),  # as many as ran ahead of what was drawn
        ("ParallelMapDatasetV2", 8.0, 8.0),
        ("MapDataset", 6.5, 6.5),
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
    ("each_s", "cost_s", "source"), [(2e-6, 16e-6, "prefix"), (50e-6, 300e-6, "model"), (None, 300e-6, "model")]
)
def test_what_only_hands_elements_on_costs_no_more_than_with_nothing_beside_it(each_s, cost_s, source):
    """The model saw it wait for a processor; by itself each of 8 elements of a batch takes so long."""
    ops = (op("MapDataset"), op("RepeatDataset", "MapDataset"), op("BatchDatasetV2", "RepeatDataset", batch_size=8))
    costs = {"MapDataset": modelled(0.07, 8.0), "RepeatDataset": modelled(300e-6, 8.0)}
    found = choose(ops, costs, {"RepeatDataset": handed_on(each_s)})["RepeatDataset"]
    assert (found.cost_s, found.cost_from) == (pytest.approx(cost_s), source)
