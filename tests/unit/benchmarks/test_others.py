"""Outcomes of other people's pipelines, and the pages that show them."""

import json
from pathlib import Path

import outcomes
import pytest

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "reports/reference/benchmarks/others.json"


def report(**more: object) -> dict:
    verdict = {
        "bottleneck": "input",
        "confidence": 1.0,
        "summary": "Most costly is MapDataset/_4 (/home/a/code/data.py:2).",
        "step_time_s": {"estimate": 0.04, "low": 0.03, "high": 0.05},
        "attribution_s": {"input": 0.03},
    }
    location = {"file": "/home/a/code/data.py", "line": 2, "op": "MapDataset/_4"}
    found = {"rule": "sequential-map", "limiting": True, "location": location, "remedy": "See /home/a/code/data.py:2."}
    passed = found | {"limiting": False, "location": location | {"line": 1}}
    return {"verdict": verdict, "findings": [passed, found], "fixes": None, "optimized": None} | more


def test_what_a_report_says_names_the_line_of_the_code_and_no_folder_of_the_machine() -> None:
    row = outcomes.said(report(), "data.py", "a\n  b.map(c)\n")
    assert (row["verdict"], row["share"], row["step_ms"]) == ("input", 0.75, 40.0)
    assert (row["rule"], row["line"], row["code"]) == ("sequential-map", 2, "b.map(c)")
    assert row["summary"] == "Most costly is MapDataset/_4 (data.py:2)."
    assert row["remedy"] == "See data.py:2."
    assert (row["fixes"], row["what"], row["same"], row["not_accepted"]) == ([], None, None, {})
    accepted = {
        "name": "a",
        "outcome": "accepted",
        "why": "3",
        "chosen": True,
        "what": "a cache after ParallelMapDatasetV2/_6",
    }
    fixes = [accepted, {"name": "b", "outcome": "rejected", "why": "random"}]
    applied = {"fixes": ["a"], "equivalent": True, "data": "44 elements", "speedup": {"estimate": 3.0}}
    row = outcomes.said(report(fixes=fixes, optimized=applied), "other.py", "a\nb")
    assert (row["fixes"], row["what"], row["same"], row["not_accepted"]) == (
        ["a"],
        "a cache after map",
        True,
        {"b": "random"},
    )
    assert row["code"] is None


def ratio(low: float, estimate: float, high: float) -> dict:
    return {"low": low, "estimate": estimate, "high": high}


INPUT = {
    "verdict": "input",
    "known": ["input"],
    "ratio": ratio(2, 2.2, 2.4),
    "same": True,
    "fixes": ["cache"],
    "what": "a cache",
}
NOT_FASTER = ratio(0.9, 0.97, 1.04) | {"same": True}
FASTER = ratio(1.5, 2.0, 2.5)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (INPUT, "right"),
        (INPUT | {"own_ratio": ratio(4, 5, 6)}, "right in part: its authors' own form is 5 times as fast"),
        (INPUT | {"ratio": ratio(0.9, 1.1, 1.3)}, "undecided"),
        (INPUT | {"ratio": ratio(0.7, 0.8, 0.9)}, "wrong: slower"),
        (INPUT | {"same_in_loop": False}, "wrong: other data"),
        (INPUT | {"verdict": "compute"}, "wrong: input is right"),
        (INPUT | {"verdict": "inconclusive"}, "undecided"),
        (INPUT | {"ratio": None, "fixes": []}, "silent: no fix"),
        (
            INPUT | {"ratio": None, "fixes": [], "not_accepted": {"prefetch": "undecided: 1.5", "pool": "slower"}},
            "undecided: prefetch",
        ),
        (INPUT | {"ratio": None, "tried": {"a": NOT_FASTER}}, "right: nothing to change, as tried by hand"),
        (
            INPUT | {"ratio": None, "tried": {"a": NOT_FASTER, "b": FASTER | {"same": None}}},
            "silent: b by hand is faster",
        ),
        (
            INPUT | {"ratio": None, "tried": {"a": NOT_FASTER, "b": FASTER | {"same": False}}},
            "right: nothing to change, as tried by hand",
        ),
        ({"verdict": "compute", "known": ["compute"]}, "right: nothing to change"),
        ({"verdict": "compute", "known": ["compute"], "tried": {"a": FASTER}}, "silent: a by hand is faster"),
        ({"failed": "no report"}, "wrong: no report"),
    ],
)
def test_an_outcome_is_of_the_verdict_and_of_the_loop(row: dict, said: str) -> None:
    assert outcomes.outcome(row) == said


def test_the_tables_of_the_pages_are_those_of_the_results() -> None:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    assert len(rows) >= 5
    assert len({row["repository"] for row in rows}) >= 3
    assert [row["outcome"] for row in rows] == [outcomes.outcome(row) for row in rows]
    for page, table in (("README.md", outcomes.readme), ("docs/case-studies.md", outcomes.cases)):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert outcomes.with_table(text, table(rows)) == text, "python benchmarks/others --readme writes it again"
    assert RESULTS.with_suffix(".md").read_text(encoding="utf-8") == outcomes.markdown(
        json.loads(RESULTS.read_text(encoding="utf-8"))
    )
