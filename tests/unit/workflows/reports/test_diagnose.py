"""The modes of the step as arms: one figure for each, whatever the processes took.

Parts of a report that several commands share.
"""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from tests.unit.workflows.conftest import RUNS
from xttsbench.diagnosis import build_diagnosis
from xttsbench.records.base import Estimate, Location
from xttsbench.records.readings import GpuActivity, GpuDevice, XProfVerdict
from xttsbench.records.report import Attribution, Report
from xttsbench.records.trial import ProfileSummary
from xttsbench.reporting.scene import stage
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.reports import endings
from xttsbench.workflows.reports.diagnose import assemble
from xttsbench.workflows.reports.modes import GROUP, mode_arms
from xttsbench.workflows.runs import rebuild

every_run = pytest.mark.parametrize("name", [made.__name__ for made in RUNS])


def assembled(*files: Any) -> Report:
    return assemble(Recorded(Path(), *files))


@pytest.fixture(scope="module")
def reports(runs) -> dict[str, Report]:
    return {name: assembled(*run) for name, run in runs.items()}


@every_run
def test_the_files_give_the_same_report_as_the_memory(
    build, runs, reports, tmp_path: Path, name: str, monkeypatch
) -> None:
    monkeypatch.setattr("xttsbench.reporting.page.write_run", lambda *_: ())
    build.run_directory(tmp_path, *runs[name])
    assert rebuild(tmp_path).report.model_dump_json() == reports[name].model_dump_json()


@every_run
def test_the_report_is_of_its_schema_and_survives_json(reports, name: str) -> None:
    report = reports[name]
    assert Report.model_validate_json(report.model_dump_json()) == report

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(report.model_dump_json(), parse_constant=refuse)


def numeric(annotation: Any) -> bool:
    """Whether a field of that type holds a number (or a record of numbers) where it is not null."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return any(numeric(member) for member in typing.get_args(annotation))
    return annotation in (int, float, bool, Estimate, Attribution)


def nulls(value: Any, path: str = "") -> set[str]:
    """Paths of all null fields that could have been a number, by the schema; places in source code are none."""
    found: set[str] = set()
    if isinstance(value, BaseModel) and not isinstance(value, Location):
        for name, field in type(value).model_fields.items():
            inner, below = getattr(value, name), f"{path}.{name}" if path else name
            found |= {below} if inner is None and numeric(field.annotation) else nulls(inner, below)
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            found |= nulls(inner, f"{path}.{index}")
    return found


@every_run
def test_every_null_that_could_have_been_a_number_has_a_reason(reports, name: str) -> None:
    report = reports[name]
    without_meaning = {f"arms.{index}.effect" for index, arm in enumerate(report.arms) if arm.role == "baseline"}
    assert nulls(report) - set(report.unmeasured) - without_meaning == set()
    assert all(reason.strip() for reason in report.unmeasured.values())


@every_run
def test_no_reason_is_given_for_a_number_that_is_there(reports, name: str) -> None:
    report = reports[name]
    record = json.loads(report.model_dump_json())
    for path in report.unmeasured:
        head, *rest = path.split(".")
        if head == "trials" or path == "verdict.attribution_s.transfer":
            continue  # trials that never were, and a zero that is known
        value = record[head]
        for part in rest:
            value = value[int(part)] if isinstance(value, list) else value[part]
        assert value in ({}, {"missing": report.unmeasured[path]}), path


@every_run
def test_the_parts_add_up_to_the_step(reports, name: str) -> None:
    verdict = reports[name].verdict
    if verdict.attribution_s is None:
        assert verdict.step_time_s is None
        return
    parts = dict(verdict.attribution_s)
    residual = parts.pop("residual")
    assert sum(parts.values()) == pytest.approx(verdict.step_time_s.estimate, rel=0.03)
    assert sum(parts.values()) + residual == pytest.approx(verdict.step_time_s.estimate)


@pytest.mark.parametrize(
    ("name", "bottleneck", "finding"),
    [
        ("starving", "input", "thread-pool"),
        ("eager", "dispatch", "eager-step"),
        ("retracing", "compile", "retracing"),
        ("computing", "compute", None),
        ("emulated", "compute", None),
        ("bare", "input", "input-bound"),
        ("few", "inconclusive", None),
        ("raised", "inconclusive", None),
    ],
)
def test_the_verdict_and_its_first_finding(reports, name: str, bottleneck: str, finding: str | None) -> None:
    report = reports[name]
    assert report.verdict.bottleneck == bottleneck
    limiting = [found.rule for found in report.findings if found.limiting]
    assert limiting[:1] == ([finding] if finding else [])
    assert [found.limiting for found in report.findings] == sorted((f.limiting for f in report.findings), reverse=True)


def test_what_a_reader_looks_for_in_a_starving_run(reports) -> None:
    report = reports["starving"]
    assert report.target == {
        "name": "data.py:make",
        "kwargs": {"lr": 1e-4, "sizes": [1, 2], "name": "ä"},
        "kind": "dataset+step",
        "setup_s": 0.5,
        "status": "raised",
        "error": None,
    }
    kinds = {kind.name: kind for kind in report.ladder}
    assert {name: (kind.steps, kind.processes) for name, kind in kinds.items()} == {
        "as_is": (380, 2),
        "input_only": (0, 0),  # the main trials of these have no segment of it
        "step_only": (190, 2),
    }
    assert kinds["as_is"].step_time_s.estimate == pytest.approx(0.0305, rel=0.02)
    arms = {arm.id: arm for arm in report.arms}
    assert list(arms) == ["as-given", "step:graph", "step:xla"]
    assert (arms["as-given"].role, arms["as-given"].config, arms["as-given"].blocks) == (
        "baseline",
        {"mode": "graph"},
        2,
    )
    assert (arms["step:xla"].status, arms["step:xla"].decision) == ("raised: no kernel", "ended")
    assert report.overhead["overhead_s_per_step"] == 1e-5
    assert report.overhead["share_of_step"] == pytest.approx(1e-5 / 0.0305, rel=0.02)
    assert report.readings["host"]["samples"] == 10
    assert "cpu_s_per_step" not in report.readings["host"], "it stands once"
    assert report.readings["cpu_s_per_step"] > 0
    assert "trial 004-xla ended as raised: no kernel" in report.notes
    assert "XLA has no kernel" in report.notes
    assert "trials.eager" not in report.unmeasured  # a step that waits takes no mode
    assert "tf.data" in report.unmeasured["pipeline.ops.0.cost_s"]
    assert [trial["id"] for trial in report.trials][:2] == ["000-ladder", "001-pipeline"]


def test_the_input_alone_says_what_the_beginning_of_an_epoch_makes_of_its_mean(build, runs) -> None:
    plan, environment, (first, *rest) = runs["starving"]
    few = build.segment("input_only", wait_s=[0.01, 0.01, 2.8, 0.01], epoch=[0, 0, 1, 1])
    rest[0] = rest[0].model_copy(update={"segments": (few,)})
    (alone,) = (one for one in assembled(plan, environment, (first, *rest)).ladder if one.name == "input_only")
    assert alone.what == "the input without a step; 1 of its 4 batches begins an epoch, and the others take 10.0 ms"


def test_notes_that_differ_in_their_seconds_stand_once(build) -> None:
    note = "the cache was filled before anything was measured, which took {} s: the numbers are of later epochs"
    trials = [build.trial("arm", fix="cache@a", arm="cache@a", notes=(note.format(took),)) for took in (2.6, 1.2)]
    assert endings(trials) == [f"with cache@a: {note.format(2.6)}"]


def test_the_warm_up_is_kept_apart(reports) -> None:
    warm = reports["starving"].warm_up
    assert (warm.first_step_s, warm.traces, warm.trace_s) == (pytest.approx(0.41), 1, pytest.approx(0.3))
    assert (warm.xla_compiles, warm.xla_compile_s) == (0, 0.0)
    assert warm.steps_measured + warm.steps_cut == 260
    assert warm.steady_state


def test_plots_cut_the_process_that_the_report_tells_of_and_where_the_report_cuts(build, runs) -> None:
    plan, environment, _ = runs["computing"]
    traced = (np.arange(200) % 3 > 0) & (np.arange(200) < 60)
    step = 0.03 + 0.3 * traced
    columns = {"step_s": step, "calls_s": step, "traces": traced.astype(int)}
    slow_at_first = np.where(np.arange(160) < 30, 0.06, 0.03)
    trials = [
        build.ladder(steps=60),
        build.ladder(steps=200, step_columns=columns, block=1, number=1),
        build.ladder(steps=160, step_columns={"step_s": slow_at_first, "calls_s": slow_at_first}, block=2, number=2),
    ]
    for some in (trials, trials[:1], trials[2:], trials[::2]):
        report = assembled(plan, environment, some)
        scene = stage(report, some)
        assert scene.main.steady_from == report.warm_up.steps_cut
        assert scene.main.steady_wall_s.size == report.warm_up.steps_measured
    assert report.warm_up.steps_cut == 30
    assert assembled(plan, environment, trials).warm_up.steps_measured > 160  # compilation is no warm-up


def test_a_run_of_240_steady_steps_is_certified_and_a_shorter_one_is_not(build, runs) -> None:
    plan, environment, _ = runs["computing"]
    long = assembled(plan, environment, [build.ladder(steps=600)]).warm_up
    short = assembled(plan, environment, [build.ladder(steps=120)]).warm_up
    assert long.certified
    assert long.reason is None
    assert not short.certified
    assert short.steady_state
    assert "240 are needed for that" in short.reason


def test_a_profile_is_in_the_report_with_xprof_and_nvml_beside_it(runs) -> None:
    plan, environment, trials = runs["starving"]
    half = dict.fromkeys(("kernel_s", "idle_s"), 0.02) | dict.fromkeys(
        ("collective_s", "copy_s", "collective_alone_s", "copy_alone_s"), 0.0
    )
    gpu = GpuActivity(
        steps=20,
        step_s=0.04,
        step_ends_ns=(800_000_000,),
        host_s={"input": 0.03},
        devices=(GpuDevice(index=0, **half),),
    )
    xprof = XProfVerdict(says="not input", statement="NOT input-bound", input_share=0.0)
    profile = ProfileSummary(directory="profile", steps=20, gpu=gpu, xprof=xprof)
    found = [trials[0].model_copy(update={"profile": profile}), *trials[1:]]
    report = assembled(plan, environment, found)
    assert report.profile["gpu"]["devices"][0]["kernel_s"] == 0.02
    assert report.profile["nvml"][0]["unmeasured"]
    agreement = report.profile["agreement"]
    assert (agreement["verdict"], agreement["xprof"], agreement["agree"]) == ("input", "not input", False)
    assert agreement["input_share_profiled"] == pytest.approx(0.75)
    assert agreement["slowed_by_profiler"] == pytest.approx(0.04 / report.verdict.step_time_s.estimate)
    assert agreement["why"]
    assert "profile" not in report.unmeasured
    assert Report.model_validate_json(report.model_dump_json()) == report
    asked = plan.model_copy(update={"profile": True})
    assert assembled(asked, environment, trials).unmeasured["profile"].startswith("the trial ended before")


def test_an_emulated_accelerator_is_always_labelled(reports) -> None:
    report = reports["emulated"]
    assert report.accelerator["kind"] == "emulated"
    assert "emulated" in report.accelerator["label"]
    assert report.accelerator["passes"] is True
    assert report.verdict.accelerator_utilization.estimate == pytest.approx(20 / 21.52, rel=0.01)
    assert reports["computing"].accelerator == {"kind": "real", "label": "real device"}
    assert "emulated:MS" in reports["bare"].unmeasured["verdict.accelerator_utilization"]


def test_a_short_dataset_and_an_unsteady_run_are_noted_without_a_warning(build, runs, reports) -> None:
    assert any("the dataset is short (10 batches)" in note for note in reports["bare"].notes)
    assert reports["bare"].warnings == ()
    plan, environment, _ = runs["computing"]
    drifting = build.ladder(steps=200, step_columns={"step_s": [0.01 + 1e-4 * n for n in range(200)]})
    found = assembled(plan, environment, [drifting])
    assert found.warm_up.reason
    assert not any(note.startswith("no steady state") for note in found.notes), "which the warm-up says"


def test_the_error_of_a_target_is_in_the_report(reports) -> None:
    report = reports["raised"]
    assert report.target["status"] == "raised"
    assert report.target["error"]["message"] == "bad batch"
    assert report.verdict.summary == "Nothing could be concluded: ValueError: bad batch (data.py:3)."
    assert report.unmeasured["verdict.step_time_s"] == "ValueError: bad batch (data.py:3)"


MACHINE = {"cpu": {"allowed_cpus": 2.0}}


def test_times_rates_and_ratios_of_the_modes_agree(build) -> None:
    # The process of XLA ran on a slower machine than the main one: 300 ms as given there, 200 ms here.
    given = build.segment("step_only", step_s=[0.30] * 20, calls_s=0.30, valid_frames=500, frames=600)
    through_xla = build.segment("xla", step_s=[0.315] * 20, calls_s=0.315, valid_frames=500, frames=600)
    slow = build.trial("xla", build.segment("warm_up", step_s=[2.0]), given, through_xla, number=1)
    given = build.segment("step_only", step_s=[0.2] * 20, calls_s=0.2)
    eager = build.trial("eager", given, build.segment("eager", step_s=[0.8] * 20), number=2)
    failed = build.trial("precision", number=3, status="raised", cause="no kernel")
    trials = [build.ladder(step=0.2, steps=40), slow, eager, failed]
    arms = {arm.id: arm for arm in mode_arms(trials, build_diagnosis(trials, MACHINE), np.random.default_rng(0))}
    as_given = arms["step:graph"]
    assert {arm.group for arm in arms.values()} == {GROUP}
    assert as_given.step_time_s.estimate == pytest.approx(0.2, rel=0.02)
    for name, speedup in (("step:xla", 0.30 / 0.315), ("step:eager", 0.25)):
        arm = arms[name]
        assert arm.effect.estimate == pytest.approx(speedup, rel=1e-6)
        assert as_given.step_time_s.estimate / arm.step_time_s.estimate == pytest.approx(speedup, rel=1e-6)
        assert arm.throughput_per_s.estimate / as_given.throughput_per_s.estimate == pytest.approx(speedup, rel=1e-6)
        assert arm.step_time_s.low <= arm.step_time_s.estimate <= arm.step_time_s.high


def test_the_step_alone_has_one_time_in_all_tables(build, runs) -> None:
    plan, environment, _ = runs["computing"]
    # The first batch is slow alone, and as it is it was not among those that are matched.
    alone = build.segment("step_only", step_s=[0.5] + [0.2] * 19, calls_s=0.2, batch=[-1, *range(19)])
    as_is = build.segment("as_is", step_s=[0.2] * 19, calls_s=0.2, batch=[*range(19)])
    main = build.trial("ladder", build.segment("warm_up", step_s=[0.2]), as_is, alone)
    given = build.segment("step_only", step_s=[0.2] * 20, calls_s=0.2)
    xla = build.trial("xla", given, build.segment("xla", step_s=[0.1] * 20, calls_s=0.1), number=1)
    report = assembled(plan, environment, (main, xla))
    ladder = {one.name: one.step_time_s.estimate for one in report.ladder}
    arms = {arm.id: arm for arm in report.arms}
    assert ladder["step_only"] == pytest.approx(arms["step:graph"].step_time_s.estimate) == pytest.approx(0.2)
    assert ladder["xla"] == pytest.approx(arms["step:xla"].step_time_s.estimate) == pytest.approx(0.1)
    assert arms["step:xla"].effect.estimate == pytest.approx(2.0)


def test_what_the_trial_of_a_fix_noted_is_said_of_that_fix(build) -> None:
    noted = build.trial("arm", notes=("the cache was filled",))
    fixed = noted.model_copy(update={"spec": noted.spec.model_copy(update={"fix": "cache@Map/_1"})})
    assert endings([noted, fixed]) == ["the cache was filled", "with cache@Map/_1: the cache was filled"]
