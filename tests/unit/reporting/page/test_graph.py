from __future__ import annotations

from collections.abc import Sequence

from xttsbench.records.base import Location
from xttsbench.records.fix import Edit, FixResult, Patch
from xttsbench.records.pipeline import Pipeline, PipelineOp, Prediction
from xttsbench.records.report import Finding, Report
from xttsbench.reporting.html import render
from xttsbench.reporting.page.document import page_document
from xttsbench.reporting.page.graph import Graph, blocks
from xttsbench.reporting.sections.answer import with_calls


def op(name: str, kind: str, *inputs: str, cost_s: float | None = None, inner: Sequence[PipelineOp] = ()) -> PipelineOp:
    return PipelineOp(name=name, op=f"{kind}Dataset", inputs=inputs, cost_s=cost_s, inner=tuple(inner))


def drawn(report: Report, *ops: PipelineOp) -> Graph:
    found = blocks(report.model_copy(update={"pipeline": Pipeline(ops=ops).model_dump()}))
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
    named = starving.report.model_copy(update={"findings": found, "predictions": model})
    assert [node.limiting for node in drawn(named, *ops).nodes] == [False, True, False, False]
    assert [mark.number for mark in drawn(named, *ops).nodes[1].marks] == [2]
    unnamed = starving.report.model_copy(update={"findings": found})
    assert [node.limiting for node in drawn(unnamed, *ops).nodes] == [False, True, True, False]
    compute = starving.report.model_copy(update={"findings": (), "predictions": model})
    assert not any(node.limiting for node in drawn(compute, *ops).nodes)


def test_every_op_leads_to_its_row_with_line_and_findings(starving) -> None:
    page = render(page_document(starving.report), {})
    for number in (1, 2, 3, 4):
        assert f'href="#op-{number}"' in page
        assert f'id="op-{number}"' in page
    assert "my_project/data.py:42" in page


def test_an_op_shows_its_line_where_a_patch_has_it(starving) -> None:
    edit = Edit(fix="parallel-map", file="data.py", line=42, before="ds.map(load)", after="ds.map(load, 8)")
    fix = FixResult(
        name="a", fixes=("a",), what="a", outcome="accepted", why="", chosen=True, patch=Patch(edits=(edit,), diff="-")
    )
    (found,) = [
        block for block in blocks(starving.report.model_copy(update={"fixes": (fix,)})) if isinstance(block, Graph)
    ]
    assert [node.source for node in found.nodes] == ["", "ds.map(load)", "", ""]


def test_of_an_unknown_version_nothing_is_drawn(starving) -> None:
    assert blocks(starving.report.model_copy(update={"pipeline": {"ops": "?"}})) == ()
    assert blocks(starving.report.model_copy(update={"pipeline": None})) == ()


def test_the_name_of_an_op_is_no_part_of_another_word(starving) -> None:
    pipeline = Pipeline(ops=(op("t", "Range"), op("Map/_1", "Map", "t"), op("Map/_12", "Batch", "Map/_1")))
    report = starving.report.model_copy(update={"pipeline": pipeline.model_dump()})
    assert (
        with_calls("that Map/_12 waits at Map/_1, not FlatMap/_1", report) == "that batch waits at map, not FlatMap/_1"
    )
