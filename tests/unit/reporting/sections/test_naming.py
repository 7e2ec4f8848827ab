"""No output for people has the names of the graph or of fixes; each text of a record may hold them."""

from __future__ import annotations

import re

import pytest

from tests.unit.reporting.conftest import changed
from tests.unit.reporting.sections.test_advice import PIPELINE, cache, fix, op, report_of
from tests.unit.reporting.test_agreement import outputs
from xttsbench.records.base import Location
from xttsbench.records.report import Report
from xttsbench.reporting.sections.naming import short, speaker, with_calls

BOTH = fix("parallel-map:32 + prefetch", "maps in parallel (32 calls), a prefetch", "not verified")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slower than cache@MapDataset/_3, so no further", "slower than a cache in memory after map, so no further"),
        ("parallel-map:32 + prefetch: 1 process", "maps in parallel (32 calls), a prefetch: 1 process"),
        ("the length of RangeDataset/_1", "the length of range"),
        ("a prefetch at the end", "a prefetch at the end"),
        ("007-parallel-map:32-+-prefetch", "007-parallel-map:32-+-prefetch"),
        ("make.<locals>.<lambda>() runs", "the lambda in make() runs"),
        ("lines.<locals>.samples() and Clips.read()", "samples() and Clips.read()"),
    ],
)
def test_names_become_what_they_stand_for(text: str, said: str) -> None:
    assert with_calls(text, report_of(cache("not verified"), BOTH)) == said


def test_of_several_ops_of_one_call_function_and_line_follow() -> None:
    twice = changed(
        PIPELINE,
        ops=(*PIPELINE.ops, op("MapDataset", 9, "BatchDatasetV2/_4", function="__inference_Dataset_map_crop_7")),
    )
    report = report_of(pipeline=twice.model_dump(mode="json"))
    assert (
        speaker(report)("MapDataset/_9 and MapDataset/_3")
        == "map of crop() (my_project/data.py:19) and map (my_project/data.py:13)"
    )


def test_of_two_calls_of_one_function_in_one_line_it_is_said_which() -> None:
    again = changed(next(one for one in PIPELINE.ops if one.name == "MapDataset/_3"), name="MapDataset/_9")
    report = report_of(pipeline=changed(PIPELINE, ops=(*PIPELINE.ops, again)).model_dump(mode="json"))
    assert (
        speaker(report)("MapDataset/_9 and MapDataset/_3")
        == "map (my_project/data.py:13, number 2 of 2) and map (my_project/data.py:13, number 1 of 2)"
    )


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("my_project/data.py:make", "my_project/one/two/three/four/faces/dataset.py"),
        ("my_project.data:make", "my_project/one/two/three/four/faces/dataset.py"),
        ("elsewhere.py", "…/four/faces/dataset.py"),
    ],
)
def test_a_file_has_one_name_which_is_its_path_from_the_directory_of_the_command_on(target: str, shown: str) -> None:
    file = "/home/me/my_project/one/two/three/four/faces/dataset.py"
    at = Location(file=file, line=7, op="MapDataset/_3")
    report = report_of(target={"name": target, "kind": "dataset+step"})
    found = report.findings[0].model_copy(update={"location": at, "title": f"read() ({file}:7) is slow"})
    report = changed(report, findings=(found,))
    assert short(file, report) == shown
    assert with_calls(found.title, report) == f"read() ({shown}:7) is slow"
    assert with_calls("most of it in dataset.py:7 step", report) == f"most of it in {shown}:7 step"
    for where, text in outputs(report).items():
        assert {*re.findall(r"[^\s(]*dataset\.py", text)} <= {shown}, where


def everywhere() -> Report:
    """A report with names of ops and fixes in every text that may hold one."""
    name = "cache@MapDataset/_3"
    report = report_of(
        cache("rejected", why=f"slower than {name}", predicted_speedup=2.0),
        cache("not verified", why=f"{name}: no time"),
    )
    evidence = {"helps": name, "measured_with": name, "predicted_with": name}
    finding = report.findings[0].model_copy(
        update={"evidence": evidence, "remedy": f"Put MapDataset/_3 behind {name}."}
    )
    return changed(
        report,
        findings=(finding,),
        warnings=(f"with {name}: slow",),
        notes=(f"with {name}: the cache was filled before",),
        unmeasured={"findings.0.verified_speedup": f"{name}: no time"},
    )


def test_no_output_has_the_name_of_an_op_or_of_a_fix() -> None:
    for where, text in outputs(everywhere()).items():
        assert "cache@" not in text, where
        assert "Dataset/_" not in text, where
