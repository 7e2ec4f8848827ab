"""The section on the step in words: phases, lines, devices, shapes, conditions; nothing where there is nothing."""

from __future__ import annotations

import pytest

from tests.unit.reporting.conftest import one, words
from xttsbench.records.base import Estimate
from xttsbench.records.code import OpLine, Placement, StepOps
from xttsbench.records.report import Report, Verdict
from xttsbench.reporting.document import Table
from xttsbench.reporting.sections.step import sentence, tables

OPS = StepOps(
    phases={"backward": 0.6, "forward": 0.35, "optimizer": 0.05},
    op_time_s=0.004,
    between_ops_s=0.001,
    lines=(
        OpLine(file="/home/me/train.py", line=12, function="step", phase="backward", ops=7, share=0.55),
        OpLine(file="", line=0, function="model/dense", phase="forward", ops=2, share=0.35),
        OpLine(file="", line=0, function="", phase="other", ops=1),
    ),
    placements=(
        Placement(op="MatMul", device="GPU:0", count=3, share=0.5, why="the placer's choice"),
        Placement(op="Relu", device="GPU:0", count=3, share=0.3, why="the placer's choice"),
        Placement(op="Unique", device="CPU:0", count=1, share=0.2, why="no kernel for the GPU is registered"),
    ),
    ops=42,
)
SHAPE = {"shape": "[(8, 16)]", "steps": 9, "traces": 1, "compiles": 2, "lost_s": 1.5, "step_s": None}
SPEED = Estimate(estimate=1.5, low=1.4, high=1.6).model_dump()


def report(step) -> Report:
    nothing = dict.fromkeys(
        ["step_time_s", "step_time_median_s", "step_time_p95_s", "input_wait_fraction", "accelerator_utilization"]
    )
    said = Verdict(bottleneck="compute", summary="", confidence=1.0, attribution_s=None, **nothing)
    told = {"kind": "diagnose", "command": "", "created_utc": "", "target": {}, "environment": {}}
    return Report(**told, verdict=said, step=step)


@pytest.fixture
def whole() -> Report:
    conditions = {
        "mixed_bfloat16": {"step_time_s": SPEED, "speedup": SPEED, "status": "ok", "cause": None},
        "half-batch": {"step_time_s": None, "speedup": None, "status": "not applicable", "cause": "[red]no[/red]"},
    }
    ops = OPS.model_dump(mode="json", exclude={"unmeasured"})
    return report(
        {
            "ops": ops,
            "shapes": [SHAPE],
            "shapes_seen": 1,
            "conditions": conditions,
            "unmeasured": {"functions": "short"},
        }
    )


def test_one_sentence(whole) -> None:
    said = sentence(whole)
    assert said == (
        "Of the time of the step's ops: backward 60.0 %, forward 35.0 %, optimizer 5.0 %; "
        "most of it in one place: train.py:12 step (backward, 55.0 %)."
    )


def test_the_tables(whole) -> None:
    found = {fold.title: words(one(fold, Table)) for fold in tables(whole)}
    assert found["The step by phase"][0] == ("forward", "35.0 %")
    assert ("Python between the ops", "1.00 ms") in found["The step by phase"]
    lines = found["The lines behind the step's ops"]
    assert [row[0] for row in lines] == ["train.py:12 step", "layers model/dense", "no line of the target's"]
    assert lines[2][3] == "not measured"
    devices = found["Where the step's ops run"]
    assert devices[0] == ("GPU:0", "6", "80.0 %", "MatMul, Relu", "the placer's choice")
    assert devices[1][4] == "no kernel for the GPU is registered"
    assert found["What each shape cost"] == [("[(8, 16)]", "9", "1", "2", "1.50 s", "not measured")]
    conditions = found["The step under other conditions"]
    assert conditions[0][2] == "1.500x (1.400 to 1.600)"
    assert conditions[1][1:3] == ("not measured", "not measured")
    assert "no" in conditions[1][3]
    for table in (one(fold, Table) for fold in tables(whole)):
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


def test_without_a_step_or_ops_nothing_is_said() -> None:
    assert list(tables(report(None))) == []
    assert sentence(report(None)) == ""
    empty = report({"ops": None, "shapes": [], "conditions": {}, "unmeasured": {"ops": "no trial came so far"}})
    assert [fold.title for fold in tables(empty) if fold.blocks] == ["Of the step not measured"]
    assert sentence(empty) == ""
