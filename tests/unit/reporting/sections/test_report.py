from __future__ import annotations

import re

import pytest

from tests.unit.reporting.conftest import changed, estimate, one, section, sections, words
from tests.unit.reporting.sections.test_advice import NO_GAIN, SAME, cache, fix, report_of
from tests.unit.reporting.test_agreement import outputs
from xttsbench.records.report import Report
from xttsbench.reporting.document import Document, Facts, Finding, Table
from xttsbench.reporting.sections import unmeasured
from xttsbench.reporting.sections.findings import passed
from xttsbench.reporting.sections.report import report_document as describe
from xttsbench.reporting.step_bar import Bars
from xttsbench.reporting.words import in_words


def titles(document: Document) -> list[str]:
    return [found.title for found in sections(document.blocks) if found.blocks]


def told(run, reasons: dict[str, str]) -> list[tuple[str, ...]]:
    (found,) = unmeasured(changed(run.report, unmeasured=reasons))
    return [(fact.label, fact.value) for fact in one(found, Facts).facts]


def test_what_a_reader_misses_is_said_in_words(starving) -> None:
    reasons = {
        "oscillation.p99_over_p50": "few",
        "trials.ladder (repeat 1)": "no time",
        "verdict.step_time_s": "nothing ran",
        "verdict.attribution_s": "nothing ran",
        "something_new.seen": "unknown here",
    }
    assert told(starving, reasons) == [
        ("the slowest steps over the median", "few"),
        ("the isolation experiments in another process", "no time"),
        ("the time of a step, where a step's time goes", "nothing ran"),
        ("something new.seen", "unknown here"),
    ]


def test_a_configuration_is_named_and_its_numbers_share_a_line(comparing) -> None:
    reasons = {f"arms.3.{name}": "refused" for name in ("step_time_s", "effect")} | {"arms.4.effect": "out of memory"}
    assert told(comparing, reasons) == [
        ("tf_fast, emulated accelerator, 10 ms a step: step time, speed-up", "refused"),
        ("ram, emulated accelerator, 10 ms a step: speed-up", "out of memory"),
    ]


def test_what_nobody_misses_is_left_to_the_record(starving) -> None:
    nobody = {
        "fixes.1.patch": "x",
        "profile": "x",
        "arms.0.effect": "the baseline",
        "oscillation.variance_share": "x",
        "aa.effect": "x",
    }
    assert unmeasured(changed(starving.report, unmeasured=nobody)) == ()


def test_compared_arms_are_not_in_the_table_of_the_others(comparing, starving) -> None:
    both = changed(comparing.report, arms=(*comparing.report.arms, *starving.report.arms))
    said = describe(both)
    alone = "Configurations, each against the baseline"
    assert [row[0] for row in words(one(section(said, alone), Table))] == ["graph", "eager", "xla"]
    assert alone not in titles(describe(comparing.report))
    full = words(one(section(said, "Compared configurations in full"), Table))
    assert [row[2] for row in full] == [in_words(arm.id) for arm in comparing.report.arms]
    assert full[1][3:] == ("loader packed", "8", "1,920", "5.7 % (5.6 to 5.7)", "0.120", "3,210")


def test_what_is_known_of_the_baseline_follows_under_its_own_heading(comparing, starving) -> None:
    label = {"kind": "emulated", "label": comparing.report.arms[0].accelerator}
    found = {"verdict": starving.report.verdict, "accelerator": label, "overhead": starving.report.overhead}
    said = describe(comparing.report.model_copy(update=found))
    assert said.headline.word == ""
    baseline = section(said, "The baseline by itself: numpy_wav, EMULATED accelerator, 10 ms a step")
    assert [(fact.label, fact.value) for fact in one(baseline, Facts).facts[:2]] == [
        ("what limits it", "input (probability over 99 %)"),
        ("step time, mean", "34.2 ms (33.2 to 35.2)"),
    ]
    assert one(section(said, "Where the time of a step goes (mean)"), Bars).parts
    assert [fact.label for fact in one(section(said, "In time"), Facts).facts] == ["measurement overhead per step"]


def test_a_comparison_that_names_no_bottleneck_says_why(comparing, starving) -> None:
    verdict = changed(starving.report.verdict, bottleneck="inconclusive", attribution_s=None)
    reasons = {"verdict.attribution_s": "the ladder was not climbed"}
    said = describe(changed(comparing.report, verdict=verdict, unmeasured=reasons))
    baseline = section(said, "The baseline by itself: numpy_wav, EMULATED accelerator, 10 ms a step")
    assert one(baseline, Facts).facts[0].value == "not measured: the ladder was not climbed"
    assert "Where the time of a step goes (mean)" not in titles(said)


def gain(run, **changes) -> str:
    finding = run.report.findings[0].model_copy(update=changes)
    return one(section(describe(changed(run.report, findings=(finding,))), "Findings"), Finding).gain


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "measured 1.940x (1.901 to 1.979); same elements as before"),
        (
            {"verified_speedup": None, "same_data": "not_proved"},
            "at most 2.02x (1.96 to 2.08), if that time were gone; not measured",
        ),
        ({"predicted_speedup": None, "same_data": "not_proved"}, "measured 1.940x (1.901 to 1.979)"),
        ({"predicted_speedup": None, "verified_speedup": None, "same_data": "not_proved"}, ""),
        (
            {"predicted_speedup": None, "verified_speedup": None, "same_data": "differs"},
            "the fix tried CHANGES THE DATA",
        ),
    ],
)
def test_a_gain_says_what_was_measured_and_no_more(starving, changes, text: str) -> None:
    assert gain(starving, **changes) == text


def test_a_measured_gain_names_the_fix_that_gave_it(starving) -> None:
    kept = cache("accepted", verified_speedup=estimate(4.0), semantics=SAME)
    finding = starving.report.findings[0].model_copy(update={"rule": "cacheable", "verified_speedup": estimate(4.0)})
    report = changed(starving.report, findings=(finding,), fixes=(kept,))
    told = one(section(describe(report), "Findings"), Finding).gain
    assert re.search(r"measured 4\.00x \(3\.88 to 4\.12\), by a cache in memory", told)


def quiet(report: Report) -> dict[str, set[str]]:
    """Rules without a finding, by the title under which they stand."""
    return {fold.title: {row.cells[0].value for row in one(fold, Table).rows} for fold in passed(report) if fold.blocks}


def test_no_check_found_nothing_beside_a_fix_of_its_own_that_was_named() -> None:
    untried = cache("not verified", why="there was no time for it")
    loop = fix("open-generator", "the generator's loop as a parallel map", "accepted")
    report = changed(report_of(untried, loop), findings=(report_of().findings[0].model_copy(update={"rule": "drift"}),))
    found = quiet(report)
    assert found["Checks of which the fix says more: 3"] == {"sequential-map", "cacheable", "python-function"}
    (nothing,) = (title for title in found if "found nothing" in title)
    assert not found[nothing] & {"sequential-map", "cacheable", "python-function"}
    assert "not tried: there was no time for it" in outputs(report)["report.html"]


def test_no_check_of_a_pipeline_that_was_not_read_found_nothing() -> None:
    report = changed(report_of(), pipeline=None, unmeasured={"pipeline": "the trial that reads the graph failed"})
    found = quiet(report)
    (blind,) = (title for title in found if "could not be made: the trial that reads the graph failed" in title)
    (nothing,) = (title for title in found if "found nothing" in title)
    assert "shuffle-fill" in found[blind]
    assert "stragglers" in found[nothing]
    assert not found[blind] & found[nothing]


def test_a_fix_that_was_seen_to_give_nothing_leaves_its_check_without_a_finding() -> None:
    report = report_of(NO_GAIN)
    (title,) = quiet(report)
    assert "sequential-map" in quiet(report)[title]
    small = fix("parallel-map", "maps in parallel", "not verified", predicted_speedup=1.02, why="less than 5 %")
    assert "sequential-map" in quiet(report_of(small))[title]
    undecided = report.verdict.model_copy(update={"bottleneck": "inconclusive"})
    assert all(
        "as far as they can tell without a verdict" in title for title in quiet(changed(report, verdict=undecided))
    )


def test_two_shares_of_waiting_say_what_they_count() -> None:
    text = outputs(report_of())["report.html"]
    assert "in next(): wait and hand-over 52.3 %" in text
    assert "input 52.3 % of it" in text
    assert not re.search(r"wait\w* (for input )?52.3 %", text)
