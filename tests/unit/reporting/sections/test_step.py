"""The section on the step in words: phases, lines, devices, shapes, conditions; nothing where there is nothing.

The section on a profiled window: one GPU, several, none; XProf and NVML beside it; names that are markup.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.reporting.conftest import changed, one, words
from xttsbench.records.base import Estimate
from xttsbench.records.code import OpLine, Placement, StepOps
from xttsbench.records.readings import Gap, GpuActivity, GpuDevice
from xttsbench.records.report import Report, Verdict
from xttsbench.reporting import document as doc
from xttsbench.reporting import markdown
from xttsbench.reporting.document import Table, View
from xttsbench.reporting.page import page_document
from xttsbench.reporting.sections.report import report_document
from xttsbench.reporting.sections.step import profiled, sentence, tables

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
    assert found["What each shape cost, over all steps that were run"] == [
        ("[(8, 16)]", "9", "1", "2", "1.50 s", "not measured")
    ]
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


def device(index: int, kernel: float = 5e-3) -> dict[str, Any]:
    idle = 8e-3 - kernel
    made = GpuDevice(
        index=index,
        kernel_s=kernel,
        collective_s=0.0,
        copy_s=2e-3,
        collective_alone_s=0.0,
        copy_alone_s=2e-3,
        idle_s=idle,
        work_s={"kernel": kernel, "to_device": 2e-3},
        kernels=12,
        idle_by_cause_s={"input": idle - 1e-3, "host": 1e-3},
        longest_gaps=(Gap(start_ns=5, duration_s=idle, step=3, cause="input"),),
    )
    return made.model_dump(mode="json")


def made(*devices: dict[str, Any], **changes: Any) -> Any:
    gpu = GpuActivity(
        steps=20,
        step_s=10e-3,
        host_s={"input": 2e-3, "dispatch": 8e-3},
        unmeasured={} if devices else {"devices": "no GPU in the profile: TensorFlow ran on the processor"},
    ).model_dump(mode="json")
    profile = {"directory": "profile", "steps": 20, "gpu": gpu | {"devices": list(devices)}, "unmeasured": {}}
    return changed(report(None), profile=profile | changes)


def profile_tables(of: Any) -> dict[str, list[tuple[str, ...]]]:
    (section,) = profiled(of)
    return {block.columns[0].name: words(block) for block in section.blocks if isinstance(block, doc.Table)}


def said(of: Any) -> str:
    (section,) = profiled(of)
    return " ".join(block.text for block in section.blocks if isinstance(block, doc.Paragraph))


def test_nothing_is_said_where_no_profile_was_asked_for() -> None:
    assert list(profiled(report(None))) == []


def test_one_gpu() -> None:
    found = made(device(0), nvml=[{"gpu": 0, "utilization": 0.61}])
    assert said(found) == (
        "GPU 0 computes 50.0 % of a profiled step, copies alone 20.0 %, is idle 30.0 %, "
        "mostly while the main thread is waiting for input."
    )
    shown = profile_tables(found)
    (row,) = shown["GPU"]
    assert row[:5] == ("GPU 0", "5.00 ms (50.0 %)", "0 s (0.0 %)", "2.00 ms (20.0 %)", "3.00 ms (30.0 %)")
    assert row[5:] == ("12.0", "61.0 %")
    assert shown["idle while the main thread is"] == [
        ("waiting for input", "2.00 ms (20.0 %)"),
        ("running other Python", "1.00 ms (10.0 %)"),
    ]
    assert shown["longest gaps"] == [("3.00 ms", "GPU 0", "3", "waiting for input")]
    assert shown["the main thread in the profiled steps"][1][0] == "launching ops"


def test_many_gpus_are_told_by_the_busiest_and_the_least_busy() -> None:
    unused = device(7) | {"work_s": {}, "kernel_s": 0.0, "idle_by_cause_s": {}}
    found = made(*(device(index, (3 + index) * 1e-3) for index in range(4)), unused)
    text = said(found)
    assert "GPU 0 computes 30.0 %" in text
    assert "GPU 3 computes 60.0 %" in text
    assert "GPU 1 computes" not in text
    assert "2 others are between them." in text
    assert "Nothing ran on GPU 7." in text
    assert len(profile_tables(found)["GPU"]) == 5


def test_without_a_gpu_the_host_is_told_all_the_same() -> None:
    found = made()
    (section,) = profiled(found)
    assert section.title == "Profiled steps"
    assert said(found) == "no GPU in the profile: TensorFlow ran on the processor"
    assert profile_tables(found)["the main thread in the profiled steps"] == [
        ("waiting for input", "2.00 ms", "20.0 %"),
        ("running TensorFlow's ops", "8.00 ms", "80.0 %"),
    ]


@pytest.mark.parametrize(
    ("xprof", "agreement", "expected"),
    [
        (None, {}, [("XProf", "not measured: XProf is not installed")]),
        (
            {"statement": "Your program is NOT input-bound", "version": "2.24"},
            {"verdict": "input", "agree": False, "why": "it counts otherwise"},
            [("XProf 2.24", "Your program is NOT input-bound"), ("the verdict", "input; it counts otherwise")],
        ),
        (
            {"statement": "Your program is HIGHLY input-bound", "version": None},
            {"verdict": "input", "agree": True, "why": None},
            [("XProf", "Your program is HIGHLY input-bound"), ("the verdict", "input: they agree")],
        ),
    ],
)
def test_xprof_stands_beside_the_verdict(xprof, agreement, expected) -> None:
    found = made(xprof=xprof, agreement=agreement, unmeasured={"xprof": "XProf is not installed"})
    (section,) = profiled(found)
    (facts,) = (block for block in section.blocks if isinstance(block, doc.Facts))
    assert [(fact.label, fact.value) for fact in facts.facts][:-1] == expected
    assert "tensorboard --logdir profile" in facts.facts[-1].value


def test_a_profile_that_failed_says_why_and_one_of_another_version_says_nothing_wrong() -> None:
    failed = made(gpu=None, steps=0, unmeasured={"profile": "the target runs a profiler of its own"})
    assert said(failed) == "not measured: the target runs a profiler of its own"
    assert said(made(gpu={"another": "version"})) == "not measured: the profile was not read"


def test_it_is_in_every_output() -> None:
    found = made(device(0))
    shown = {
        view: [block.title for block in report_document(found).shown(view) if isinstance(block, doc.Section)]
        for view in View
    }
    assert "GPU" in shown[View.FULL]
    assert "GPU" not in shown[View.DETAILED]
    assert "GPU" in [block.title for block in page_document(found).blocks if isinstance(block, doc.Section)]
    text = markdown.render(report_document(found))
    assert "GPU 0 computes 50.0 %" in text
