"""The report of a scenario's run: whole, explained, rebuilt from files to the byte, and judged.

The verdict on a comparison's baseline: certain for a dataset alone, left to a diagnosis where there is a step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.unit.conftest import run_plan
from xttsbench.comparison.arms import compare
from xttsbench.errors import JournalError
from xttsbench.records.base import Estimate
from xttsbench.records.plan import Accelerator, RunPlan
from xttsbench.records.report import Attribution, Report
from xttsbench.records.trial import Parity, TrialError
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.reports.scenario import assemble_run, baseline_verdict
from xttsbench.workflows.runs import judge_run, rebuild

ENVIRONMENT_READ: dict[str, Any] = {"cpu": {"allowed_cpus": 2.0}, "gpus": [], "unmeasured": {}}
KINDS = [
    "decided",
    "two_groups",
    "two_blocks",
    "refused",
    "dead_candidate",
    "dead_baseline",
    "raising_candidate",
    "unbuildable_candidate",
    "unreadable_baseline",
    "not_reproducible",
    "interrupted",
    "nothing",
    "alone",
    "bare",
    "noisy",
    "out_of_budget",
]
every_kind = pytest.mark.parametrize("kind", KINDS)


def assembled(*files: Any) -> Report:
    return assemble_run(Recorded(Path(), *files))


def plan(comparison) -> RunPlan:
    return run_plan(kind="run", seed=3, comparison=comparison)


def made(build, kind: str):
    """Comparison and trials of a run of that kind."""
    devices = (Accelerator(), build.emulated()) if kind == "two_groups" else (build.emulated(),)
    devices = (Accelerator(),) if kind == "bare" else devices
    blocks = 2 if kind == "two_blocks" else 6
    names = ("a",) if kind == "alone" else ("a", "b", "c")
    comparison = build.comparison(*names, accelerators=devices, blocks=8 if kind == "out_of_budget" else blocks)
    walls = {"a": 0.04, "b": 0.02, "c": 0.011}
    sd = 0.2 if kind == "noisy" else 0.002
    arms = [
        build.arm_trial(
            arm.id,
            walls[arm.id.removesuffix(":again")],
            block=block,
            emulated_ms=device.step_times_ms,
            process_sd=sd,
            has_step=False if kind == "bare" else None,
            drift=0.01,
        )
        for block in range(blocks)
        for device in devices
        for arm in comparison.arms
    ]
    parity = [build.parity("b", "c")] if kind != "alone" else []

    def without(name: str, before: int = 0):
        return [t for t in arms if t.spec.arm != name or t.spec.block < before]

    waits = devices[0].step_times_ms
    error = TrialError(type="ValueError", message="bad batch", file="data.py", line=3)
    told = Parity(
        batches=8, tolerance=1e-4, same=("c",), differences={"b": "batch 0, mel: row 1, frame 2: 1 against 2"}
    )
    unlike = Parity(batches=8, tolerance=1e-4, reproducible=False, why_not="batch 0, x: row 0: 1 against 2")
    trials = {
        "refused": [build.parity("b", "c", found=told), *without("b")],
        "dead_candidate": [*parity, *without("b", 2), build.dead("b", block=2, emulated_ms=waits)],
        "dead_baseline": [*parity, build.dead("a", emulated_ms=waits)],
        "raising_candidate": [*parity, *without("b"), build.dead("b", "raised", emulated_ms=waits, error=error)],
        "unbuildable_candidate": [
            *parity,
            *without("b"),
            build.dead(
                "b",
                "raised",
                emulated_ms=waits,
                cause="Target 'm:f': no",
                error=error.model_copy(update={"type": "TargetError"}),
            ),
        ],
        "unreadable_baseline": [
            build.parity("b", "c", status="raised", cause="no file").model_copy(update={"parity": None})
        ],
        "not_reproducible": [build.parity("b", "c", found=unlike), *arms],
        "interrupted": [*parity, *arms[:8], build.dead("c", "interrupted", block=2, emulated_ms=waits)],
        "nothing": [],
    }.get(kind, [*parity, *arms])
    return comparison, trials


@pytest.fixture(scope="module")
def reports(build) -> dict[str, Report]:
    found = {}
    for kind in KINDS:
        comparison, trials = made(build, kind)
        found[kind] = assembled(plan(comparison), ENVIRONMENT_READ, trials)
    return found


@every_kind
def test_the_report_is_of_its_schema(reports, kind) -> None:
    report = reports[kind]
    assert Report.model_validate_json(report.model_dump_json()) == report
    assert report.kind == "run"
    assert report.verdict.summary


def nulls(value: Any, path: str = "") -> set[str]:
    """Paths of all nulls of the numbers that this kind of report can have."""
    found = set()
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= nulls(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found |= nulls(inner, f"{path}.{index}")
    elif value is None:
        found.add(path)
    return found


@every_kind
def test_every_null_has_its_reason(reports, kind) -> None:
    report = reports[kind]
    record = json.loads(report.model_dump_json())
    parts = ("verdict", "oscillation", "arms", "aa", "warm_up", "pipeline", "profile", "parity")
    missing = set().union(*(nulls(record[part], part) for part in parts)) - set(report.unmeasured)
    words = {"warm_up.reason"} | {f"arms.{n}.decision" for n, arm in enumerate(report.arms) if arm.role != "candidate"}
    assert missing - words - {"parity.difference"} == set()
    assert all(reason.strip() for reason in report.unmeasured.values())


@every_kind
def test_no_reason_is_given_for_what_is_there(reports, kind) -> None:
    record = json.loads(reports[kind].model_dump_json())
    for path in reports[kind].unmeasured:
        value = record
        for part in path.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        missing = {"missing": reports[kind].unmeasured[path]}
        assert value in (missing, {}, "undecided", "likely_faster", "likely_slower"), path


@every_kind
def test_it_is_rebuilt_from_its_files_to_the_byte(build, reports, kind, tmp_path: Path) -> None:
    comparison, trials = made(build, kind)
    build.run_directory(tmp_path, plan(comparison), ENVIRONMENT_READ, trials)
    (tmp_path / "report.json").write_text(reports[kind].model_dump_json(indent=2) + "\n")
    before = (tmp_path / "report.json").read_bytes()
    outcome = _rebuilt_without_pages(tmp_path)
    assert (tmp_path / "report.json").read_bytes() == before
    assert (outcome.exit_code, outcome.message) == judge_run(reports[kind], trials, comparison)


def _rebuilt_without_pages(directory: Path):
    """The pages are made from the record, which takes seconds; end-to-end they are compared as well."""

    def write(folder, report, trials):
        (folder / "report.json").write_text(report.model_dump_json(indent=2) + "\n")

    with patch("xttsbench.reporting.page.write_run", write):
        return rebuild(directory)


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("decided", 0, None),
        ("two_groups", 0, None),
        ("dead_candidate", 0, None),
        ("raising_candidate", 0, None),
        ("alone", 0, None),
        ("bare", 0, None),
        ("out_of_budget", 0, None),
        ("two_blocks", 0, None),
        ("noisy", 3, "Undecided: c is clearly faster than a"),
        ("not_reproducible", 3, "Undecided: "),
        ("dead_baseline", 4, "the baseline a ended (killed: killed by SIGKILL"),
        ("nothing", 4, "no configuration was measured"),
        ("refused", 5, "Refused, since the data are not those of a: b: batch 0, mel: row 1, frame 2: 1 against 2."),
        ("unbuildable_candidate", 5, "b: Target 'm:f': no"),
        ("unreadable_baseline", 5, "a: no file"),
        ("interrupted", 130, "Interrupted"),
    ],
)
def test_the_exit_code_says_how_it_ended(build, reports, kind, code, words) -> None:
    comparison, trials = made(build, kind)
    found = judge_run(reports[kind], trials, comparison)
    assert found[0] == code
    assert (found[1] is None) == (words is None)
    assert words is None or words.lower() in (found[1] or "").lower()


def test_what_a_reader_looks_for(reports) -> None:
    report = reports["two_groups"]
    assert [(arm.id, arm.accelerator.split(",")[0]) for arm in report.arms] == [
        (name, device) for device in ("real device", "emulated accelerator") for name in ("a", "b", "c", "a:again")
    ]
    assert {arm.group for arm in report.arms} == {"loaders"}
    assert len(report.comparison) == 2
    assert report.comparison[1].startswith("Emulated accelerator, 10 ms a step: c is clearly faster than a: 3.6")
    # The dataset alone behind the emulated accelerator is where the bottleneck is certain.
    assert report.verdict.bottleneck == "input"
    assert report.accelerator["kind"] == "emulated"
    assert report.accelerator["passes"] is False
    assert isinstance(report.verdict.attribution_s, Attribution)
    assert isinstance(report.verdict.accelerator_utilization, Estimate)
    assert report.parity["same"] is True
    assert report.aa.noisy is False
    assert report.target["name"] == "data.py:make"
    assert report.target["scenario"] == "loaders"
    assert report.target["status"] == "ok"


def test_what_cut_the_run_short_is_a_warning(build, reports) -> None:
    open_, trials = made(build, "noisy")
    asked = open_.model_copy(update={"blocks": 8})
    cut = assembled(plan(asked), ENVIRONMENT_READ, trials).warnings
    assert any("6 of 8 rounds were measured" in warning for warning in cut)
    # What is decided needs no more.
    assert not any("rounds were measured" in warning for warning in reports["out_of_budget"].warnings)
    assert not any("rounds were measured" in warning for warning in reports["decided"].warnings)
    assert not any("rounds were measured" in warning for warning in reports["interrupted"].warnings)
    comparison, trials = made(build, "decided")
    short = [t.model_copy(update={"spec": t.spec.model_copy(update={"window_s": 1.25})}) for t in trials]
    warnings = assembled(plan(comparison), ENVIRONMENT_READ, short).warnings
    assert any("1.2 s at most in place of 5 s" in warning for warning in warnings)


def test_what_is_not_known_of_the_data_is_a_warning(reports) -> None:
    assert any(w.startswith("b, c: the baseline's own data differ") for w in reports["not_reproducible"].warnings)


def test_a_dead_candidate_leaves_the_baseline_s_status_alone(reports) -> None:
    assert reports["dead_candidate"].target["status"] == "ok"
    assert reports["dead_baseline"].target["status"] == "killed"
    assert any("ended as killed" in warning for warning in reports["dead_candidate"].warnings)


def test_the_plan_of_a_diagnosis_is_no_scenario(build) -> None:
    with pytest.raises(JournalError, match="names no comparison"):
        assembled(plan(None), {}, [])


def verdict(build, wall: float, *, devices=None, blocks: int = 2, **options):
    devices = devices or (build.emulated(10),)
    comparison = build.comparison("a", "b", accelerators=devices, blocks=blocks)
    trials = [
        build.arm_trial(arm.id, wall, block=block, emulated_ms=device.step_times_ms, **options)
        for device in devices
        for block in range(blocks)
        for arm in comparison.arms
    ]
    return baseline_verdict(compare(comparison, trials))


@pytest.mark.parametrize(
    ("wall", "bottleneck"), [(0.1, "input"), (0.0125, "input"), (0.0108, "compute"), (0.0101, "compute")]
)
def test_a_dataset_alone_waits_for_data_or_does_not(build, wall, bottleneck) -> None:
    found = verdict(build, wall).verdict
    assert found.bottleneck == bottleneck
    assert found.confidence > 0.9
    parts = found.attribution_s
    assert parts.input == pytest.approx(wall - 0.01, abs=0.0002)
    assert parts.compute == pytest.approx(0.01, rel=0.01)
    told = sum(dict(parts).values())
    assert told == pytest.approx(found.step_time_s.estimate)
    assert found.accelerator_utilization.estimate == pytest.approx(0.01 / wall, rel=0.02)
    assert f"{1 - 0.01 / wall:.0%}"[:1] in found.summary


def test_handing_over_a_ready_batch_is_no_loss_of_the_input(build) -> None:
    """A wait of 1.2 ms behind 10 ms is input, unless most of it is what waking up to a ready batch costs."""
    plain = verdict(build, 0.0112).verdict
    told = verdict(build, 0.0112, handoff_s=1e-4, handoff_after_pause_s=1e-3).verdict
    assert (plain.bottleneck, told.bottleneck) == ("input", "compute")
    assert plain.attribution_s.input - told.attribution_s.input == pytest.approx(1e-3)
    assert told.attribution_s.dispatch == pytest.approx(1e-4)


def test_a_bare_dataset_has_only_its_input(build) -> None:
    found = verdict(build, 0.02, devices=(Accelerator(),), has_step=False)
    assert (found.verdict.bottleneck, found.verdict.confidence) == ("input", 1.0)
    assert found.verdict.accelerator_utilization is None
    assert "emulated:MS" in found.unmeasured["verdict.accelerator_utilization"]


def test_with_a_step_no_bottleneck_is_named_and_diagnose_is_pointed_to(build) -> None:
    found = verdict(build, 0.02, devices=(Accelerator(),))
    assert found.verdict.bottleneck == "inconclusive"
    assert found.verdict.attribution_s is None
    assert "'xttsbench diagnose' names what limits a step" in found.verdict.summary
    assert "as fast as a" in found.verdict.summary  # the answer of the comparison comes first
    assert "diagnose" in found.unmeasured["verdict.attribution_s"]
    assert found.verdict.step_time_s.estimate == pytest.approx(0.02, rel=0.01)
    assert found.verdict.input_wait_fraction.estimate == pytest.approx(0.5, rel=0.01)


def test_it_is_about_the_accelerator_where_it_is_certain(build) -> None:
    found = verdict(build, 0.1, devices=(Accelerator(), build.emulated(10)))
    assert found.group == 1
    assert found.verdict.bottleneck == "input"
    assert "(emulated accelerator, 10 ms a step)" in found.verdict.summary


def test_a_dataset_that_ends_at_once_is_not_judged(build) -> None:
    found = verdict(build, 0.1, columns={"epoch": [float(n // 2) for n in range(60)]}).verdict
    assert found.bottleneck == "inconclusive"
    assert "ends after 2 batch(es)" in found.summary


def test_nothing_measured_is_said_with_its_cause(build) -> None:
    comparison = build.comparison("a", "b")
    found = baseline_verdict(compare(comparison, [build.dead("a")]))
    assert found.verdict.summary == (
        "Nothing could be concluded: the baseline a ended (killed: killed by SIGKILL in phase 'as_is')."
    )
    assert found.verdict.step_time_s is None
    assert found.unmeasured["verdict.step_time_s"].startswith("the baseline a ended")
    assert "no configuration was measured" in baseline_verdict(compare(comparison, [])).verdict.summary
