from __future__ import annotations

import pytest

from tests.unit.reporting.conftest import one, section, sections, words
from xttsbench.reporting.document import Bars, Document, Facts, Finding, Table
from xttsbench.reporting.sections import unmeasured
from xttsbench.reporting.sections.report import report_document as describe
from xttsbench.reporting.text import plain


def titles(document: Document) -> list[str]:
    return [found.title for found in sections(document.blocks) if found.blocks]


def told(run, reasons: dict[str, str]) -> list[tuple[str, ...]]:
    (found,) = unmeasured(run.report.model_copy(update={"unmeasured": reasons}))
    return [(fact.label, fact.value) for fact in one(found, Facts).facts]


def test_entries_of_a_list_that_share_a_reason_stand_in_one_line(starving) -> None:
    reasons = {f"findings.{index}.equivalent": "not compared" for index in range(12)}
    reasons |= {"arms[0].effect": "no time", "arms[1].effect": "no time"}
    assert told(starving, reasons) == [("findings.*.equivalent", "not compared"), ("arms.*.effect", "no time")]


def test_different_reasons_are_not_thrown_together(starving) -> None:
    reasons = {"arms.1.effect": "it ended", "arms.2.effect": "it ran out of memory", "arms.3.effect": "it ended"}
    assert told(starving, reasons) == [("arms.*.effect", "it ended"), ("arms.*.effect", "it ran out of memory")]


def test_numbers_that_are_no_index_stay(starving) -> None:
    reasons = {
        "oscillation.p99_over_p50": "few",
        "trials.ladder (block 1)": "no time",
        "trials.fix thread-pool:32": "x",
    }
    assert told(starving, reasons) == list(reasons.items())


def test_numbers_of_one_record_that_share_a_reason_stand_in_one_line(starving) -> None:
    reasons = {f"arms.{index}.{name}": "it ended" for index in (2, 5) for name in ("cv", "effect", "step_time_s")}
    reasons |= {"verdict.step_time_s": "nothing ran", "verdict.attribution_s": "nothing ran", "profile": "not asked"}
    assert told(starving, reasons) == [
        ("arms.*: cv, effect, step_time_s", "it ended"),
        ("verdict: step_time_s, attribution_s", "nothing ran"),
        ("profile", "not asked"),
    ]


def test_every_reason_stands_with_every_field_that_it_is_for(every_run) -> None:
    for name, (report, _) in every_run.items():
        lines = [fact for found in unmeasured(report) for fact in one(found, Facts).facts]
        for path, reason in report.unmeasured.items():
            field = plain(path).rpartition(".")[2]
            assert any(field in line.label and line.value == plain(reason) for line in lines), (name, path)


def test_compared_arms_are_not_in_the_table_of_the_others(comparing, starving) -> None:
    both = comparing.report.model_copy(update={"arms": (*comparing.report.arms, *starving.report.arms)})
    said = describe(both)
    alone = "Configurations, each against the baseline"
    assert [row[0] for row in words(one(section(said, alone), Table))] == ["graph", "eager", "xla"]
    assert alone not in titles(describe(comparing.report))
    full = words(one(section(said, "Compared configurations in full"), Table))
    assert [row[2] for row in full] == [arm.id for arm in comparing.report.arms]
    assert full[1][3:] == ("loader packed", "8", "1,920", "5.7 % (5.6 to 5.7)", "0.120", "3,210")


def test_what_is_known_of_the_baseline_follows_under_its_own_heading(comparing, starving) -> None:
    label = {"kind": "emulated", "label": comparing.report.arms[0].accelerator}
    found = {"verdict": starving.report.verdict, "accelerator": label, "overhead": starving.report.overhead}
    said = describe(comparing.report.model_copy(update=found))
    assert said.headline.word == ""
    baseline = section(said, "The baseline by itself: numpy_wav, EMULATED accelerator, 10 ms a step")
    assert [(fact.label, fact.value) for fact in one(baseline, Facts).facts[:2]] == [
        ("what limits it", "input (probability 99.8 %)"),
        ("step time, mean", "34.2 ms (33.2 to 35.2)"),
    ]
    assert one(section(said, "Where the time of a step goes (mean)"), Bars).parts
    assert [fact.label for fact in one(section(said, "In time"), Facts).facts] == ["measurement overhead per step"]


def test_a_comparison_that_names_no_bottleneck_says_why(comparing, starving) -> None:
    verdict = starving.report.verdict.model_copy(update={"bottleneck": "inconclusive", "attribution_s": None})
    reasons = {"verdict.attribution_s": "the ladder was not climbed"}
    said = describe(comparing.report.model_copy(update={"verdict": verdict, "unmeasured": reasons}))
    baseline = section(said, "The baseline by itself: numpy_wav, EMULATED accelerator, 10 ms a step")
    assert one(baseline, Facts).facts[0].value == "not measured: the ladder was not climbed"
    assert "Where the time of a step goes (mean)" not in titles(said)


def gain(run, **changes) -> str:
    finding = run.report.findings[0].model_copy(update=changes)
    return one(section(describe(run.report.model_copy(update={"findings": (finding,)})), "Findings"), Finding).gain


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "estimated 2.02x (1.96 to 2.08); measured 1.940x (1.901 to 1.979); same elements as before"),
        ({"verified_speedup": None, "equivalent": None}, "estimated 2.02x (1.96 to 2.08); not measured"),
        ({"predicted_speedup": None, "equivalent": None}, "measured 1.940x (1.901 to 1.979)"),
        ({"predicted_speedup": None, "verified_speedup": None, "equivalent": None}, ""),
        ({"predicted_speedup": None, "verified_speedup": None, "equivalent": False}, "THE FIX CHANGES THE DATA"),
    ],
)
def test_a_gain_says_what_was_measured_and_no_more(starving, changes, text: str) -> None:
    assert gain(starving, **changes) == text
