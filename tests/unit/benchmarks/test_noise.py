"""The benchmark of neighbours: they do what they say and end with their maker; what is told of them is judged right."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from disturbed import ARMS, TARGETS
from neighbours import KINDS, WORDS, NotPossibleError, beside
from told import compared, diagnosed, figures, judged_arm, table

from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.scenario.load import load_scenario
from xttsbench.targets.spec import parse_target

NOISE = Path(__file__).resolve().parents[3] / "benchmarks" / "noise"


def mine() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if any(part.endswith("neighbours.py") for part in line) and str(os.getpid()) in line:
            found.append(process)
    return found


@pytest.mark.parametrize("name", ["none", "core", "bursts", "memory", "steal15"])
def test_a_neighbour_lives_as_long_as_the_block(name: str) -> None:
    cores = len(os.sched_getaffinity(0))
    try:
        with beside(name) as prefix:
            assert prefix == []
            wanted = {"none": 0, "core": 1, "memory": 1}.get(name, cores)
            until = time.monotonic() + 10  # a process that has just begun may not show its command yet
            while len(mine()) < wanted and time.monotonic() < until:
                time.sleep(0.01)
            assert len(mine()) == wanted
    except NotPossibleError as error:
        pytest.skip(str(error))
    assert mine() == []


def test_a_neighbour_ends_with_a_parent_that_was_killed() -> None:
    code = f"import sys; sys.path.insert(0, {str(NOISE)!r})\nfrom neighbours import beside\nimport time\n"
    code += "with beside('core'):\n    print('on', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "on\n"
        (child,) = psutil.Process(parent.pid).children()
        while not child.cpu_times().user:  # it has asked the kernel to be ended
            time.sleep(0.01)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    child.wait(timeout=10)


def test_the_quota_holds_for_what_is_started_with_its_prefix() -> None:
    code = "import pathlib; print(pathlib.Path('/proc/self/cgroup').read_text())"
    try:
        with beside("quota") as prefix:
            said = subprocess.run(
                [*prefix, sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
    except NotPossibleError as error:
        pytest.skip(str(error))
    assert f"xttsbench-noise-{os.getpid()}" in said
    assert not list(Path("/sys/fs/cgroup").glob(f"**/xttsbench-noise-{os.getpid()}"))


def test_an_unknown_neighbour_and_each_kind_have_their_words() -> None:
    with pytest.raises(ValueError, match="no such neighbour: 'cat'"), beside("cat"):
        pass
    assert set(WORDS) == {"none", "core", "bursts", "memory", "quota", "steal15", "steal35", "steal60"}
    assert set(KINDS) == {"spin", "bursts", "hog", "steal"}


def test_the_targets_are_there_and_have_every_verdict(tmp_path: Path) -> None:
    assert len(TARGETS) >= 16 + 1
    assert {verdict for target in TARGETS for verdict in target.verdicts} == {
        *("input", "dispatch", "compute", "compile", "host", "transfer", "contention", "inconclusive")
    }
    for target in TARGETS:
        assert f"\ndef {target.name}(" in target.file.read_text(encoding="utf-8")
    for arms in ARMS:
        path = tmp_path / f"{arms.name}.yaml"
        path.write_text(arms.scenario(), encoding="utf-8")
        scenario = load_scenario(path, target=parse_target, accelerator=parse_accelerator)
        assert [arm.id for arm in scenario.arms] == list(arms.arms)


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
