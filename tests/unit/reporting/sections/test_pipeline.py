"""The pipeline as a tree: what stands on each line, what is said of a missing number, and that no line is too long."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.reporting.conftest import changed, fix, words
from xttsbench.records.base import Location
from xttsbench.records.fix import Edit, Patch
from xttsbench.records.pipeline import Pipeline, PipelineOp, Prediction, PythonFunction
from xttsbench.records.report import Finding, Report
from xttsbench.reporting.console import tree_lines
from xttsbench.reporting.document import Lines
from xttsbench.reporting.page import page_document, render_page
from xttsbench.reporting.sections import pipeline as section
from xttsbench.reporting.sections.answer import with_calls
from xttsbench.reporting.sections.pipeline import Graph, as_graph, call, split


def at(line, file="/home/me/project/data.py"):
    return Location(file=file, line=line)


def tree(pipeline, width):
    """The ops on a terminal, and what is said below them."""
    return (*tree_lines(section.tree(pipeline), width), *section.remarks(pipeline))


def rows(pipeline):
    return words(section.tree(pipeline).table)


SOURCE = PipelineOp(name="s", op="TensorSliceDataset", location=at(3), cost_s=0.001)
LOAD = PipelineOp(
    name="m",
    op="ParallelMapDatasetV2",
    inputs=("s",),
    parallelism=-1,
    chosen_parallelism=3,
    cost_s=0.008,
    cpu_s=0.004,
    python_functions=("pyfunc_1",),
    captures=("variable",),
    stateful=True,
    side_effects=True,
    location=at(4),
)
BATCH = PipelineOp(name="b", op="BatchDatasetV2", inputs=("m",), batch_size=16, location=at(5), cost_s=0.001)
PIPELINE = Pipeline(
    ops=(SOURCE, LOAD, BATCH),
    python_functions=(PythonFunction(token="pyfunc_1", kind="numpy_function", name="load", gil="blocks"),),
    options={"threading.private_threadpool_size": "8"},
    costs_from="the model",
)


def test_a_chain_stands_flush_with_its_end_at_the_top():
    lines = tree(PIPELINE, 120)
    starts = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert starts[:3] == ["batch(16)", "map(calls", "from_tensor_slices"]
    (load,) = [line for line in lines if line.startswith("map")]
    assert "map(calls AUTOTUNE (chose 3))" in load
    assert "8.00 ms" in load
    assert "80.0 %" in load
    assert "project/data.py:4" in load
    assert "50.0 % processor, rest waits" in load
    assert "    Python load() waits; captures variable" in lines
    assert "Options: threading.private_threadpool_size = 8" in lines
    assert "Times: the model" in lines
    assert "TensorFlow adds a prefetch at the end by itself." in lines


def test_what_was_not_measured_or_is_not_known_says_so():
    (line,) = tree(Pipeline(ops=(PipelineOp(name="r", op="RangeDataset"),), injects_prefetch=False), 80)
    assert line.split("  ")[0] == "range"
    assert "not measured" in line
    assert "line not known" in line
    assert tree(Pipeline(), 80) == ("No op is known.",)
    gone = Pipeline(ops=(SOURCE,), unserialisable="no serialization")
    assert "Seen from its Python objects only: no serialization" in tree(gone, 80)


def test_datasets_that_meet_branch_and_inner_ones_stand_below_their_op():
    inner = (
        PipelineOp(name="r", op="TFRecordDatasetV2", location=at(8)),
        PipelineOp(name="p", op="MapDataset", inputs=("r",), location=at(9)),
    )
    read = PipelineOp(name="i", op="ParallelInterleaveDatasetV4", cycle_length=4, parallelism=2, inner=inner)
    other = PipelineOp(name="o", op="RangeDataset")
    taken = PipelineOp(name="t", op="TakeDataset", inputs=("o",))
    both = PipelineOp(name="z", op="ZipDataset", inputs=("i", "t"))
    lines = tree(Pipeline(ops=(read, other, taken, both), injects_prefetch=False), 120)
    heads = [line.split("  ")[0].rstrip() or line[:0] for line in (lines[0], lines[1], lines[4], lines[5])]
    assert heads == ["zip", "├─ interleave(cycle 4, calls 2)", "└─ take", ""]
    assert lines[2].startswith("│    in it: map ")
    assert lines[3].startswith("│           TFRecordDataset ")
    assert lines[5].startswith("   range ")
    assert [row[0] for row in rows(Pipeline(ops=(read, other, taken, both)))] == [
        "zip",
        "› interleave(cycle 4, calls 2)",
        "› › map",
        "› › TFRecordDataset",
        "› take",
        "› range",
    ]


def test_an_op_that_feeds_two_is_told_once():
    one = PipelineOp(name="a", op="RangeDataset")
    two = PipelineOp(name="m", op="MapDataset", inputs=("a",))
    both = PipelineOp(name="z", op="ZipDataset", inputs=("a", "m"))
    assert [row[0] for row in rows(Pipeline(ops=(one, two, both)))] == ["zip", "› range", "› map"]


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"op": "PrefetchDataset", "buffer_size": -1, "chosen_buffer_size": 3}, "prefetch(AUTOTUNE (chose 3))"),
        ({"op": "MapDataset"}, "map"),
        ({"op": "PaddedBatchDatasetV2", "batch_size": 4}, "padded_batch(4)"),
        ({"op": "ShuffleDatasetV3", "buffer_size": 10_000}, "shuffle(10,000)"),
        ({"op": "CacheDatasetV2", "filename": ""}, "cache"),
        ({"op": "CacheDatasetV2", "filename": "/data/c"}, "cache(/data/c)"),
        ({"op": "LegacyParallelInterleaveDatasetV2", "cycle_length": 2}, "interleave(cycle 2)"),
        ({"op": "FlatMapDataset", "inner": (PipelineOp(name="g", op="GeneratorDataset"),)}, "from_generator"),
    ],
)
def test_an_op_is_told_as_the_call_that_makes_it(op, words):
    assert call(PipelineOp(name="x", **op)) == words


def test_computing_and_waiting_are_told_apart():
    def told(cost_s, cpu_s):
        return split(PipelineOp(name="x", op="MapDataset", cost_s=cost_s, cpu_s=cpu_s))

    assert (told(1.0, 0.95), told(1.0, 0.02), told(1.0, None), told(None, 1.0)) == ("computes", "waits", "", "")
    assert told(1.0, 2.0) == "computes"


def test_names_from_outside_cannot_move_the_cursor():
    evil = "\x1b[2Ja\nb\u202e"
    op = PipelineOp(
        name="c",
        op="CacheDatasetV2",
        filename=evil,
        captures=(evil,),
        python_functions=(evil,),
        location=Location(file=f"/x/{evil}", line=1),
    )
    pipeline = Pipeline(ops=(op, PipelineOp(name="o", op=evil)), options={evil: evil}, costs_from=evil)
    remarks = Lines(tuple(section.remarks(pipeline))).lines
    texts = [*tree_lines(section.tree(pipeline), 100), *remarks, *(cell for row in rows(pipeline) for cell in row)]
    assert not [c for text in texts for c in text if unicodedata.category(c) in ("Cc", "Cf")]


@st.composite
def pipelines(draw, depth=0):
    count = draw(st.integers(0, 5))
    ops = []
    for number in range(count):
        sources = (
            tuple(draw(st.lists(st.sampled_from([op.name for op in ops]), max_size=3, unique=True))) if ops else ()
        )
        ops.append(
            PipelineOp(
                name=f"op{number}",
                op=draw(st.sampled_from(["MapDataset", "ZipDataset", "ParallelInterleaveDatasetV4", "X" * 60])),
                inputs=sources,
                cost_s=draw(st.none() | st.floats(0, 100)),
                cpu_s=draw(st.none() | st.floats(0, 100)),
                parallelism=draw(st.none() | st.integers(-1, 64)),
                captures=("tensor of 3.2 MB",) * draw(st.integers(0, 3)),
                location=draw(st.sampled_from([Location(), at(10**6, "/" + "long/" * 30 + "f" * 90)])),
                inner=draw(pipelines(depth=depth + 1)).ops if depth < 2 else (),
            )
        )
    return Pipeline(ops=tuple(ops))


def _count(ops):
    return sum(1 + _count(op.inner) for op in ops)


@settings(max_examples=40, deadline=None)
@given(pipelines(), st.integers(1, 160))
def test_no_line_is_too_long_and_no_op_is_lost(pipeline, width):
    assert all(len(line) <= max(width, 40) for line in tree_lines(section.tree(pipeline), width))
    assert len(rows(pipeline)) == _count(pipeline.ops)


def op(name: str, kind: str, *inputs: str, cost_s: float | None = None, inner: Sequence[PipelineOp] = ()) -> PipelineOp:
    return PipelineOp(name=name, op=f"{kind}Dataset", inputs=inputs, cost_s=cost_s, inner=tuple(inner))


def drawn(report: Report, *ops: PipelineOp) -> Graph:
    found = as_graph(changed(report, pipeline=Pipeline(ops=ops).model_dump()))
    (graph,) = [block for block in found if isinstance(block, Graph)]
    return graph


def test_a_chain_stays_in_one_lane_and_ends_in_the_step(starving) -> None:
    graph = drawn(
        starving.report, op("a", "Range", cost_s=0.001), op("b", "Map", "a", cost_s=0.003), op("c", "Batch", "b")
    )
    assert [(node.call, node.lane) for node in graph.nodes] == [
        ("range", 0),
        ("map", 0),
        ("batch", 0),
        ("the step that reads it", 0),
    ]
    assert [(edge.row, edge.to_row) for edge in graph.edges] == [(0, 1), (1, 2), (2, 3)]
    assert [node.share for node in graph.nodes] == [0.25, 0.75, None, None]
    assert graph.nodes[2].cost == "not measured"


def test_branches_have_lanes_of_their_own_until_they_meet(starving) -> None:
    graph = drawn(starving.report, op("a", "Range"), op("b", "Range"), op("c", "Map", "b"), op("z", "Zip", "a", "c"))
    assert [node.lane for node in graph.nodes] == [0, 1, 1, 0, 0]
    assert {(edge.row, edge.lane, edge.to_row, edge.to_lane) for edge in graph.edges} == {
        (1, 1, 2, 1),
        (0, 0, 3, 0),
        (2, 1, 3, 0),
        (3, 0, 4, 0),
    }


def test_a_dataset_that_a_function_makes_stands_beside_what_the_op_reads(starving) -> None:
    inner = (op("files", "TFRecord"), op("parse", "Map", "files"))
    graph = drawn(starving.report, op("a", "Range"), op("i", "Interleave", "a", inner=inner), op("b", "Batch", "i"))
    assert [(node.call, node.lane, node.inner) for node in graph.nodes[:3]] == [
        ("range", 0, False),
        ("TFRecordDataset", 1, True),
        ("map", 1, True),
    ]
    assert [(edge.row, edge.to_row) for edge in graph.edges if edge.inner] == [(2, 3)]
    assert graph.nodes[1].cost == "in the op below"


def test_the_op_that_the_model_names_is_marked_where_a_finding_agrees(starving) -> None:
    ops = (op("a", "Range"), op("b", "Map", "a", cost_s=0.01), op("c", "Batch", "b"))
    found = tuple(
        Finding(rule="slow", severity="critical", limiting=True, title=f"about {name}", location=Location(op=name))
        for name in ("c", "b")
    )
    model = (Prediction(name="as it is", batches_per_s=10.0, limited_by="b"),)
    named = changed(starving.report, findings=found, predictions=model)
    assert [node.limiting for node in drawn(named, *ops).nodes] == [False, True, False, False]
    assert [mark.number for mark in drawn(named, *ops).nodes[1].marks] == [2]
    unnamed = changed(starving.report, findings=found)
    assert [node.limiting for node in drawn(unnamed, *ops).nodes] == [False, True, True, False]
    compute = changed(starving.report, findings=(), predictions=model)
    assert not any(node.limiting for node in drawn(compute, *ops).nodes)


def test_every_op_leads_to_its_row_with_line_and_findings(starving) -> None:
    page = render_page(page_document(starving.report), {})
    for number in (1, 2, 3, 4):
        assert f'href="#op-{number}"' in page
        assert f'id="op-{number}"' in page
    assert "my_project/data.py:42" in page


def test_an_op_shows_its_line_where_a_patch_has_it(starving) -> None:
    edit = Edit(fix="parallel-map", file="data.py", line=42, before="ds.map(load)", after="ds.map(load, 8)")
    mended = fix("a", "a", "accepted", chosen=True, patch=Patch(edits=(edit,), diff="-"))
    (found,) = [block for block in as_graph(changed(starving.report, fixes=(mended,))) if isinstance(block, Graph)]
    assert [node.source for node in found.nodes] == ["", "ds.map(load)", "", ""]


def test_of_an_unknown_version_nothing_is_drawn(starving) -> None:
    assert as_graph(changed(starving.report, pipeline={"ops": "?"})) == ()
    assert as_graph(changed(starving.report, pipeline=None)) == ()


def test_the_name_of_an_op_is_no_part_of_another_word(starving) -> None:
    pipeline = Pipeline(ops=(op("t", "Range"), op("Map/_1", "Map", "t"), op("Map/_12", "Batch", "Map/_1")))
    report = changed(starving.report, pipeline=pipeline.model_dump())
    assert (
        with_calls("that Map/_12 waits at Map/_1, not FlatMap/_1", report) == "that batch waits at map, not FlatMap/_1"
    )
