"""What is told of a measurement beside neighbours is judged right."""

import json
from pathlib import Path

import pytest
from neighbours import WORDS
from told import compared, diagnosed, figures, judged_arm, table

NOISE = Path(__file__).resolve().parents[3] / "benchmarks" / "noise"


def report(bottleneck: str, sentence: str = "quiet") -> dict:
    verdict = {
        "bottleneck": bottleneck,
        "confidence": 0.98765,
        "verdict_final_s": 9.0,
        "summary": "It waits.",
        "step_time_s": None,
        "attribution_s": None,
    }
    machine = {"sentence": sentence, "steal_share": 0.0, "foreign_share": 0.4, "throttled_share": None}
    return {"verdict": verdict, "disturbance": machine, "arms": []}


@pytest.mark.parametrize(("said", "outcome"), [("input", "right"), ("inconclusive", "undecided"), ("host", "wrong")])
def test_a_verdict_is_right_undecided_or_wrong(said: str, outcome: str) -> None:
    row = diagnosed(report(said, "others used 40 % of the processor throughout"), ("input", "contention"), "core")
    assert (row["outcome"], row["confidence"], row["named"]) == (outcome, 0.988, True)
    assert diagnosed(report("inconclusive"), ("inconclusive",), "none")["outcome"] == "right"
    assert diagnosed(None, ("input",), "core") == {"outcome": "failed"}
    assert not diagnosed(report("input"), ("input",), "steal35")["named"]


@pytest.mark.parametrize(
    ("decision", "speed", "outcome"),
    [
        ("clearly_faster", 1.3, "right"),
        ("faster", 1.3, "right"),
        ("likely_faster", 1.3, "undecided"),
        ("undecided", 1.3, "undecided"),
        (None, 1.3, "undecided"),
        ("no_difference", 1.3, "wrong"),
        ("slower", 1.3, "wrong"),
        ("slower", 0.5, "right"),
        ("faster", 0.5, "wrong"),
        ("faster", 1.0, "wrong"),
        ("clearly_slower", 1.0, "wrong"),
        ("no_difference", 1.0, "right"),
        ("undecided", 1.0, "right"),
    ],
)
def test_what_is_said_of_an_arm(decision: str | None, speed: float, outcome: str) -> None:
    assert judged_arm(decision, speed) == outcome


def test_no_figure_names_the_folders_of_the_machine() -> None:
    told = report("input")
    told["verdict"]["summary"] = f"The most costly op is a map ({NOISE.parents[1]}/tests/targets/bottlenecks.py:46)."
    row = diagnosed(told, ["input"], "none")
    assert row["summary"] == "The most costly op is a map (tests/targets/bottlenecks.py:46)."


def test_a_comparison_is_as_good_as_its_worst_arm_and_the_baseline_again_is_the_same() -> None:
    def arm(name: str, role: str, decision: str | None) -> dict:
        return {"id": name, "role": role, "decision": decision, "effect": {"estimate": 1.29, "low": 1.2, "high": 1.4}}

    told = report("compute") | {"arms": [arm("base", "baseline", None), arm("b", "candidate", "faster")]}
    row = compared(told, {"base": 1.0, "b": 1.3}, "none")
    assert (row["outcome"], row["arms"]["b"]["ratio"]) == ("right", [1.29, 1.2, 1.4])
    told["arms"].append(arm("base-aa", "aa", "faster"))
    row = compared(told, {"base": 1.0, "b": 1.3}, "none")
    assert (row["outcome"], row["arms"]["base-aa"]["truth"]) == ("wrong", 1.0)


def test_figures_and_table_count_by_neighbour() -> None:
    def row(case: str, neighbour: str, outcome: str, **more: object) -> dict:
        known = {"case": case, "neighbour": neighbour, "kind": "diagnose", "known": "input", "seconds": 10.0}
        return known | {"outcome": outcome, "verdict": "host", "named": True} | more

    rows = [row(f"c{number}", "core", "right") for number in range(9)] + [row("c9", "core", "undecided")]
    rows += [row("c0", "none", "wrong"), row("c0", "quota", "skipped", skipped="no control group")]
    rows.append(row("c1", "bursts", "right", known="input or host"))
    arms = {"b": {"outcome": "right", "truth": 1.3, "ratio": [1.3, 1.2, 1.4], "decision": "clearly_faster"}}
    rows.append(row("arms", "core", "right", kind="run", arms=arms))
    values = figures(json.loads(json.dumps(rows)))
    assert (values["core"]["right"], values["core"]["undecided"], values["core"]["met"]) == (9, 1, True)
    assert (values["none"]["met"], values["quota"]["met"], values["quota"]["skipped"]) == (
        False,
        None,
        "no control group",
    )
    assert values["core"]["arms"] == {"right": 1, "undecided": 0, "wrong": 0}
    text = table(rows, WORDS, "2 processors")
    assert "| c0 | input | right, 10 s | wrong (host), 10 s | - | - |" in text
    assert "| c1 | input (input or host beside bursts) | right, 10 s | - | - | right, 10 s |" in text
    assert "1.3 (1.2 to 1.4), clearly faster" in text
    assert "Provisional" not in text
    assert "Provisional: before 1 of 14 cases" in table(
        [*rows[:-1], rows[-1] | {"others_before": 0.5}], WORDS, "2 processors"
    )
    lengths = {line.count("|") for line in text.splitlines() if line.startswith("| core") or line.startswith("| neigh")}
    assert len(lengths) == 1
