"""Hand-built models whose costs are known."""

from __future__ import annotations

import pytest

from xttsbench.pipeline.cost.model import ModelNode, costs, match, merge
from xttsbench.records.pipeline import PipelineOp

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
    ops = (
        PipelineOp(name="range", op="RangeDataset"),
        PipelineOp(name="flat", op="FlatMapDataset", inputs=("range",)),
    )
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
