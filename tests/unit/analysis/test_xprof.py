"""What XProf says of a profile, read from its tables, and why it differs from the verdict."""

from __future__ import annotations

import json

import pytest

from xttsbench.analysis.gpu import answer, difference, read
from xttsbench.records.gpu_activity import XProfVerdict


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "Your program is HIGHLY input-bound because 97.2% of the total step time sampled is waiting for input.",
            "input",
        ),
        ("Your program is MODERATELY input-bound because 12.0% of the total step time", "input"),
        ("Your program is NOT input-bound because only 0.0% of the total step time", "not input"),
        ("Your program is POTENTIALLY input-bound because 6.4% of the total step time", "perhaps input"),
        ("No step time measured. Therefore we cannot tell where the performance bottleneck is.", "nothing"),
        ("", "nothing"),
    ],
)
def test_the_sentence_of_xprof_is_read(statement, says):
    assert answer(statement) == says


def tables(step_ms, input_ms, statement):
    ops = [("Iterator::Root::Prefetch", 10.0), ("Iterator::Root::Prefetch::Map", 30.0)]
    analyzer = [
        {"cols": [], "rows": [], "p": {}},
        {"cols": [], "rows": [], "p": {"steptime_ms_average": step_ms, "infeed_time_ms_avg": input_ms}},
        {
            "cols": [{"id": "opName"}, {"id": "selfTimeInMs"}],
            "rows": [{"c": [{"v": name}, {"v": ms}]} for name, ms in ops],
        },
        {"cols": [{"id": "link"}], "rows": [{"c": [{"v": 'Set <a href="x">num_parallel_calls</a>.'}]}]},
    ]
    return {
        "overview_page": json.dumps([{"p": {"statement": statement}}]),
        "input_pipeline_analyzer": json.dumps(analyzer),
    }


def test_the_tables_of_xprof_are_read():
    found = read(tables("34.9", "34.0", "Your program is HIGHLY input-bound because 97.4% ..."))
    assert (found.says, found.input_share, found.step_s) == ("input", 0.9742, 0.0349)
    assert found.op == "Iterator::Root::Prefetch::Map"
    assert found.advice == "Set num_parallel_calls."


def test_without_a_step_time_xprof_has_no_share_and_no_advice():
    found = read(tables("0.0", "0.0", "No step time measured. Therefore we cannot tell."))
    assert (found.says, found.input_share, found.advice) == ("nothing", None, "")


def test_tables_of_another_kind_are_refused():
    with pytest.raises((ValueError, KeyError, TypeError)):
        read({"overview_page": "{", "input_pipeline_analyzer": "[]"})


def said(says, share=0.9):
    return XProfVerdict(says=says, input_share=share)


@pytest.mark.parametrize(("says", "bottleneck"), [("input", "input"), ("not input", "compute"), ("not input", "host")])
def test_the_same_answer_needs_no_reason(says, bottleneck):
    assert difference(said(says), bottleneck, measured=0.9, profiled=0.9, slowed=1.0) is None


@pytest.mark.parametrize(
    ("says", "share", "bottleneck", "measured", "profiled", "slowed", "words"),
    [
        ("nothing", None, "input", 0.9, 0.9, 1.0, "found no step"),
        ("input", 0.9, "inconclusive", 0.9, 0.9, 1.0, "nothing to hold against"),
        ("not input", 0.0, "inconclusive", None, 0.9, 1.0, "nothing to hold against"),
        ("perhaps input", 0.0, "compute", 0.0, 0.0, 1.0, "cannot tell"),
        ("perhaps input", 0.0, "input", 0.9, 0.9, 1.0, "next() takes 90% of it"),
        ("input", 0.4, "compute", 0.02, 0.4, 1.5, "a step took 1.5 times as long; over all steps"),
        ("input", 0.07, "dispatch", 0.08, 0.07, 1.0, "from 5% of waiting on, here 7%"),
        ("not input", 0.01, "input", 0.4, 0.4, 1.0, "no event of higher rank"),
        ("not input", 0.01, "input", None, None, None, "no event of higher rank"),
    ],
)
def test_a_difference_has_its_reason(says, share, bottleneck, measured, profiled, slowed, words):
    found = difference(said(says, share), bottleneck, measured=measured, profiled=profiled, slowed=slowed)
    assert words in found
