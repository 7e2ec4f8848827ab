"""``compare`` as a user calls it, on run directories that were written by hand: what it says, writes and ends with."""

from __future__ import annotations

import json
import os
import re
import shutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import Result

from tests.unit.cli.made import COMMAND, invoke
from tests.unit.conftest import run_directory
from xttsbench.errors import InvalidInputError, NothingMeasuredError, UsageError, XttsbenchError
from xttsbench.execution.journal import TRIALS, append_trial
from xttsbench.records.comparison_result import ComparisonReport
from xttsbench.records.plan import Accelerator, RunPlan
from xttsbench.reporting.console import MOST_LINES
from xttsbench.reporting.page import to_json
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.reports.diagnose import assemble
from xttsbench.workflows.reports.scenario import assemble_run

MACHINE = {
    "cpu": {"model": "Xeon", "machine_cpus": 8, "affinity_cpus": 2, "quota_cpus": None},
    "gpus": [],
    "packages": {"tensorflow": "2.21.0", "numpy": "2.4.6"},
}
REAL, EMULATED = (
    Accelerator(),
    Accelerator(kind="emulated", label="emulated accelerator, 10 ms a step", step_times_ms=(10.0,)),
)


def call(*arguments: object) -> Result:
    return invoke("compare", *arguments, plain=True)


def record(*arguments: object, code: int | None = None) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert code in (None, result.exit_code)
    return json.loads(result.stdout)


def error(kind: type[XttsbenchError], *arguments: object) -> str:
    result = call(*arguments)
    assert isinstance(result.exception, kind), (result.exception, result.output)
    return str(result.exception)


Make = Callable[..., Path]


@pytest.fixture(scope="module")
def make(build, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """``make(walls, ...)``: the directory of a scenario's run whose arms take those seconds a step."""
    root = tmp_path_factory.mktemp("runs")
    made: list[Path] = []

    def scenario(
        walls: dict[str, float],
        *,
        blocks: int = 8,
        seed: int = 0,
        accelerators: tuple[Accelerator, ...] = (REAL,),
        environment: dict[str, Any] = MACHINE,
        options: dict[str, Any] | None = None,
        plan: dict[str, Any] | None = None,
        report: bool = True,
        **fields: Any,
    ) -> Path:
        directory = root / f"run{len(made)}"
        directory.mkdir()
        made.append(directory)
        comparison = build.comparison(*walls, blocks=blocks, accelerators=accelerators, **fields)
        trials = [
            build.arm_trial(
                arm.id,
                walls[arm.id.removesuffix(":again")],
                block=block,
                emulated_ms=accelerator.step_times_ms,
                seed=seed,
                **{"process_sd": 0.005, "steps": 30} | (options or {}),
            )
            for accelerator in accelerators
            for block in range(blocks)
            for arm in comparison.arms
        ]
        began = {"created_utc": f"2026-01-02T03:04:{len(made):02d}+00:00"}
        planned = build.run_plan(kind="run", comparison=comparison, **began | (plan or {}))
        return written(directory, planned, trials, environment, report=report)

    return scenario


def written(
    directory: Path, plan: RunPlan, trials: list[Any], environment: dict[str, Any] = MACHINE, *, report: bool = True
) -> Path:
    run_directory(directory, plan, environment, trials)
    if report:
        made = (assemble_run if plan.kind == "run" else assemble)(Recorded(directory, plan, environment, trials))
        (directory / "report.json").write_text(to_json(made))
    return directory


@pytest.fixture(scope="module")
def before(make: Make) -> Path:
    return make({"a": 0.02, "b": 0.03})


@pytest.fixture(scope="module")
def faster(make: Make) -> Path:
    return make({"a": 0.01, "b": 0.03, "new": 0.01}, seed=1)


@pytest.fixture(scope="module")
def slower(make: Make) -> Path:
    return make({"a": 0.03, "b": 0.03}, seed=2)


def test_arms_of_two_runs_are_matched_by_id_and_decided(before: Path, faster: Path) -> None:
    found = record(before, faster, code=3)
    a, b = found["pairs"]
    assert (a["name"], a["decision"], a["method"], a["unit"]) == ("a", "clearly_faster", "separate sessions", "samples")
    assert a["effect"]["estimate"] == pytest.approx(2, rel=0.02)
    assert a["effect"]["low"] < 2 < a["effect"]["high"]
    # Equal: the allowance for two sessions leaves a difference of a few percent open.
    assert (b["name"], b["decision"]) == ("b", "undecided")
    assert b["effect"]["low"] < 1 < b["effect"]["high"]
    assert b["smallest_visible_effect"] == pytest.approx(0.17, rel=0.2)
    assert any("compared with nothing: new is in" in warning for warning in found["warnings"])
    assert a["a"]["processes"] == 8
    assert 8 * 15 <= a["a"]["steps"] <= 8 * 29  # the steady state leaves out half at most
    assert a["a"]["first_step_s"] == pytest.approx(0.4)
    assert found["pairs"][0]["a"]["memory_bytes"] == {"missing": "the run does not record it"}


def test_the_record_is_a_report(before: Path, slower: Path) -> None:
    text = call(before, slower, "--json").stdout
    found = ComparisonReport.model_validate_json(text)
    assert (found.schema_version, found.kind, found.session_noise) == (3, "compare", 0.02)
    assert [(arm.group, arm.role, arm.decision) for arm in found.arms[:2]] == [
        ("a", "baseline", None),
        ("a", "candidate", "clearly_slower"),
    ]
    assert found.arms[1].effect == found.pairs[0].effect
    assert found.verdict.summary.startswith("Of 2 configurations B is: 1 clearly slower, 1 undecided")
    for index, pair in enumerate(found.pairs):
        for side in ("a", "b"):
            missing = [name for name, value in getattr(pair, side) if value is None]
            assert all(f"pairs.{index}.{side}.{name}" in found.unmeasured for name in missing)
    for index, arm in enumerate(found.arms):
        assert all(f"arms.{index}.{name}" in found.unmeasured for name, value in arm if value is None)


def test_arms_of_one_run_are_paired_by_block(make: Make) -> None:
    # The blocks drift by a third, far more than the arms differ: unpaired, nothing could be said.
    one = make({"a": 0.02, "b": 0.0215}, options={"drift": 0.3, "process_sd": 0.002})
    found = record(f"{one}:a", f"{one}:b")
    (pair,) = found["pairs"]
    assert (pair["name"], pair["method"], pair["decision"]) == ("a vs b", "paired blocks", "clearly_slower")
    report = json.loads((one / "report.json").read_text())
    assert pair["effect"] == pytest.approx(report["arms"][1]["effect"])
    assert ("missing" in found["session_noise"], found["warnings"]) == (True, [])
    back = record(f"{one}:b", one)["pairs"][0]  # without an arm: the baseline
    assert (back["name"], back["decision"]) == ("b vs a", "clearly_faster")


def test_rounds_that_others_disturbed_do_not_count(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = make({"a": 0.02, "b": 0.02}, seed=7)
    whole = record(f"{one}:a", f"{one}:b")["pairs"][0]
    disturbed = types.SimpleNamespace(invalid=frozenset({(2, 0), (5, 0)}))
    monkeypatch.setattr("xttsbench.workflows.compare.pairs.gate", lambda _: disturbed)
    left = record(f"{one}:a", f"{one}:b")["pairs"][0]
    assert (whole["a"]["processes"], left["a"]["processes"], left["b"]["processes"]) == (8, 6, 6)


def test_a_session_allowance_of_nothing_is_narrower_and_said(make: Make, before: Path) -> None:
    runs = [make({"a": 0.02}, blocks=24, seed=seed, options={"process_sd": 0.002}) for seed in (3, 4)]
    plain, none = record(*runs), record(*runs, "--session-noise", "0", code=0)
    assert [pair["decision"] for pair in none["pairs"]] == ["no_difference"]
    assert [pair["decision"] for pair in plain["pairs"]] == ["undecided"]
    assert "difference may be the machine's" in none["warnings"][0]


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        ("--max-regression 10%", 1),
        ("--max-regression 0.5", 0),
        ("--max-regression 33%", 3),  # the limit is within the interval
        ("--max-step-time 40ms", 0),
        ("--max-step-time 0.02", 1),
        ("--min-throughput 1e6", 1),
        ("--max-cv 0.5 --max-input-wait 90%", 0),
        ("--min-utilization 20%", 0),
    ],
)
def test_gates_and_their_exit_codes(before: Path, slower: Path, gates: str, code: int) -> None:
    result = call(before, slower, *gates.split())
    assert result.exit_code == code
    assert ("A gate failed: a: " in result.stderr) == ("FAIL" in result.stdout) == (code == 1)


def test_what_died_never_passes(make: Make, before: Path, build) -> None:
    dead = make({"a": 0.02, "b": 0.03}, seed=4, report=False)
    for path in dead.glob(TRIALS):
        lines = [line for line in path.read_text().splitlines() if json.loads(line)["spec"]["arm"] != "b"]
        path.write_text("\n".join(lines) + "\n")
    append_trial(dead, build.dead("b"))
    found = record(before, dead, "--max-regression", "10%", code=3)  # without a report: from the journal
    assert [(pair["name"], pair["method"]) for pair in found["pairs"]] == [
        ("a", "separate sessions"),
        ("b", "not measured"),
    ]
    assert [gate["outcome"] for gate in found["gates"]] == ["passed", "not measured"]
    assert found["gates"][1]["value"] == {"missing": found["gates"][1]["why"]}
    assert "B was not measured (killed: killed by SIGKILL" in call(before, dead, "--max-regression", "10%").stderr
    assert call(f"{before}:b", f"{dead}:b").exit_code == 4


def test_without_batch_sizes_steps_are_counted(build, tmp_path: Path) -> None:
    runs = [diagnosed(build, tmp_path / str(step), step, step_columns={"batch_size": 0}) for step in (0.06, 0.03)]
    (pair,) = record(*runs)["pairs"]
    assert (pair["unit"], pair["decision"]) == ("steps", "clearly_faster")
    assert pair["effect"]["estimate"] == pytest.approx(2, rel=0.02)
    assert "missing" in pair["b"]["throughput_per_s"]
    assert pair["b"]["rate_per_s"]["estimate"] == pytest.approx(1 / 0.03, rel=0.02)


def test_reports_alone_are_compared_by_their_intervals(before: Path, faster: Path, tmp_path: Path) -> None:
    files = []
    for number, run in enumerate((before, faster)):
        files.append(tmp_path / f"{number}.json")
        shutil.copy(run / "report.json", files[-1])
    found = record(*files)
    whole = record(before, faster)
    assert [pair["decision"] for pair in found["pairs"]] == [pair["decision"] for pair in whole["pairs"]]
    assert found["pairs"][0]["effect"]["estimate"] == pytest.approx(whole["pairs"][0]["effect"]["estimate"], rel=0.01)
    assert (found["a"]["processes_known"], whole["a"]["processes_known"]) == (False, True)
    assert found["pairs"][0]["a"]["first_step_s"] == {"missing": "a report alone does not hold it"}
    # A report in its run's directory is that run.
    assert record(before / "report.json", faster)["pairs"] == whole["pairs"]
    assert "does not hold their rounds" in error(InvalidInputError, f"{files[0]}:a", f"{files[0]}:b")


def printed(*arguments: object) -> str:
    return invoke(*arguments, plain=True).stdout


def test_one_line_one_screen_or_everything_is_printed(before: Path, slower: Path, monkeypatch) -> None:
    monkeypatch.setattr("xttsbench.reporting.page._write_plots", lambda *_: {})
    for command in (("report", before), ("compare", before, slower)):
        line, screen, more, everything = (printed(*command, *option) for option in (["-q"], [], ["-v"], ["-vv"]))
        assert len(line.splitlines()) == 1 < len(screen.splitlines()) <= MOST_LINES
        assert len(screen) < len(more) <= len(everything)
        assert more.endswith(screen)
        assert everything.endswith(screen)
    assert f"{before}/report.html" in "".join(printed("report", before).split())


def test_runs_that_differ_in_more_than_code_are_refused(make: Make, before: Path) -> None:
    other = make({"a": 0.01, "b": 0.03}, environment=MACHINE | {"cpu": MACHINE["cpu"] | {"model": "EPYC"}})
    said = error(InvalidInputError, before, other)
    assert "processor: Xeon in A, EPYC in B" in said
    assert "--across" in said
    found = record(before, other, "--across")
    assert (found["across"], found["warnings"][0][:31]) == (True, "ACROSS: the two differ in proce")
    for option in ((), ("--markdown", "-")):
        result = call(before, other, "--across", *option)
        assert "ACROSS" in result.stdout
        assert "NOT COMPARABLE" in result.stdout


def test_emulated_and_other_settings_are_refused(make: Make, before: Path) -> None:
    both = make({"a": 0.02, "b": 0.03}, seed=6, accelerators=(REAL, EMULATED))
    said = error(InvalidInputError, f"{before}:a", f"{both}:a@emulated")
    assert "accelerator: real device in A, emulated accelerator, 10 ms a step in B" in said
    assert "accelerator" in error(InvalidInputError, f"{both}:a@real", f"{both}:b@emulated:10")
    assert "data set: d1 in A, d2 in B" in error(
        InvalidInputError, make({"a": 0.02}, plan={"data": "d1"}), make({"a": 0.02}, plan={"data": "d2"})
    )
    assert "steps a trial: 240 in A, 100 in B" in error(InvalidInputError, before, make({"a": 0.02}, steps=100))
    assert "samples in a batch" in error(
        InvalidInputError, before, make({"a": 0.02}, options={"columns": {"batch_size": 4}})
    )


def test_other_code_is_named_and_compared(make: Make, before: Path) -> None:
    one, other = make({"a": 0.02}, plan={"code": "c1"}), make({"a": 0.01}, plan={"code": "c2"}, seed=1)
    assert record(one, other)["differences"] == [{"field": "code", "a": "c1", "b": "c2", "comparable": True}]


def test_arms_on_several_accelerators(make: Make, before: Path) -> None:
    both = make({"a": 0.02, "b": 0.03}, seed=7, accelerators=(REAL, EMULATED))
    other = make({"a": 0.02, "b": 0.03}, seed=8, accelerators=(REAL, EMULATED))
    assert [pair["name"] for pair in record(both, other)["pairs"]] == [
        "a@real",
        "b@real",
        "a@emulated:10",
        "b@emulated:10",
    ]
    assert "a@real, a@emulated:10" in error(UsageError, f"{both}:a", f"{other}:b")
    # The other side's accelerator decides where one is named.
    (pair,) = record(f"{both}:a@emulated:10", f"{other}:b")["pairs"]
    assert pair["b"]["accelerator"] == EMULATED.label
    assert [pair["name"] for pair in record(before, other)["pairs"]] == ["a", "b"]


def diagnosed(build, directory: Path, step: float, **fields: Any) -> Path:
    """The directory of a diagnosis whose step takes that long, three processes of it."""
    trials = [build.ladder(step=step, number=block, block=block, **fields) for block in range(3)]
    plan = build.run_plan(created_utc=f"2026-01-02T03:04:05.{round(1000 * step):03d}+00:00")
    return written(directory, plan, trials)


def test_a_diagnosis_is_compared_by_its_target_as_given(build, tmp_path: Path) -> None:
    (pair,) = record(*(diagnosed(build, tmp_path / str(step), step) for step in (0.03, 0.06)))["pairs"]
    assert (pair["name"], pair["decision"], pair["a"]["processes"]) == ("original", "clearly_slower", 3)
    assert pair["effect"]["estimate"] == pytest.approx(0.5, rel=0.02)
    assert pair["a"]["input_wait_fraction"] is not None


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("nope", "no such configuration; the configurations are a, b, a:again"),
        ("@emulated", "no configuration ran on 'emulated'"),
    ],
)
def test_arms_that_do_not_exist(arm: str, said: str, before: Path, slower: Path) -> None:
    assert said in error(UsageError, f"{before}:{arm}", slower)


def test_one_run_twice_is_refused(before: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(before, copy)
    for other in (before, copy, before / "report.json"):
        assert "are the same run" in error(UsageError, before, other)
    assert "same configuration of the same run" in error(UsageError, f"{before}:a", f"{copy}:a")
    assert record(f"{before}:a", f"{copy}:b")["pairs"][0]["method"] == "paired blocks"


def test_bad_files_are_one_error(before: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "plan.json cannot be read" in str(call(before, tmp_path / "empty").exception)
    assert "does not exist" in error(InvalidInputError, before, tmp_path / "no:where")
    assert "does not exist" in error(InvalidInputError, before, "nul\0")
    for text, said in (
        ("{", "is not JSON"),
        ("[]", "schema_version is None"),
        ('{"schema_version": 2}', "schema_version is 2, and this version of xttsbench reads 3"),
        ('{"schema_version": 3, "kind": "compare"}', "is a comparison itself"),
        ('{"schema_version": 3, "kind": "run"}', "is not a report of a run: command: Field required"),
        ("[" * 100_000, "is not JSON"),
    ):
        path = tmp_path / "bad.json"
        path.write_text(text)
        assert said in error(InvalidInputError, before, path)
    assert "Nothing was named" in error(UsageError, before, "")


def test_a_run_without_a_trial_is_nothing_measured(build, before: Path, tmp_path: Path) -> None:
    empty = written(tmp_path / "none", build.run_plan(), [])
    assert "nothing was measured in this run" in error(NothingMeasuredError, before, empty)


def test_files_that_are_written(before: Path, slower: Path, tmp_path: Path) -> None:
    out, junit, comment = tmp_path / "out", tmp_path / "deep/junit.xml", tmp_path / "comment.md"
    options = ("--out", out, "--junit", junit, "--markdown", comment, "--max-regression", "10%")
    result = call(before, slower, *options)
    assert result.exit_code == 1
    assert ComparisonReport.model_validate_json((out / "report.json").read_text()).gates[0].outcome == "failed"
    assert (out / "report.md").read_text() == comment.read_text()
    assert comment.read_text().startswith("### Of 2 configurations B is: 1 clearly slower, 1 undecided")
    root = ElementTree.parse(junit).getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "0")
    assert "holds 'report" in error(UsageError, before, slower, "--out", out)
    (tmp_path / "file").write_text("")
    assert "cannot be written" in error(UsageError, before, slower, "--junit", tmp_path / "file/x.xml")
    assert "both write to standard output" in error(UsageError, before, slower, "--json", "--markdown", "-")
    assert call(before, slower, "--markdown", "-").stdout.startswith("### ")


def test_a_name_that_is_no_text_is_shown_with_a_mark(before: Path, slower: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff:x")
    shutil.copytree(slower, odd)
    found = record(f"{before}:a", f"{odd}:a", "--out", tmp_path / "out", "--junit", tmp_path / "j.xml")
    assert found["b"]["path"].endswith("odd\N{REPLACEMENT CHARACTER}:x")
    assert found["pairs"][0]["decision"] == "clearly_slower"


def test_a_journal_without_times_is_not_measured(before: Path, slower: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    shutil.copytree(slower, odd)
    path = odd / TRIALS
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for segment in line["segments"]:
            segment["columns"]["wall_ns"] = [0] * len(segment["columns"]["wall_ns"])
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = record(before, odd)  # what the report says stands
    assert found["pairs"][0]["decision"] == "clearly_slower"


def test_the_page_names_options_that_exist() -> None:
    page = (Path(__file__).parents[3] / "docs/comparing.md").read_text()
    ours = {option for parameter in COMMAND.commands["compare"].params for option in parameter.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))
    assert named <= ours
    assert {option for option in ours if option.startswith("--m")} <= named
