"""The report of a training run: whole, explained, rebuilt from files to the byte, and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.unit.conftest import run_plan
from xttsbench.errors import JournalError
from xttsbench.execution.journal import append_history
from xttsbench.execution.run_directory import write_json
from xttsbench.execution.training import Trained
from xttsbench.records.plan import Accelerator, Comparison, PlannedVariant, RunPlan
from xttsbench.records.report import Report
from xttsbench.records.training import Begun, Ended, Evaluated, HistoryLine, Interval, TrainJob, TrainSetup, Watched
from xttsbench.records.trial import MeasurementOverhead, TrialRecord
from xttsbench.reporting import markdown
from xttsbench.reporting.sections.report import report_document
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.reports.train import SETUP, assemble_train
from xttsbench.workflows.runs import judge_training, rebuild

ENVIRONMENT_READ: dict[str, Any] = {"cpu": {"allowed_cpus": 2.0}, "gpus": [], "unmeasured": {}}
CONFIG: dict[str, Any] = {"loader": "packed", "mode": "graph", "prefetch": -1, "workers": -1, "batch_size": 8}
EMULATED = Accelerator(kind="emulated", label="emulated accelerator, 10 ms a step", step_times_ms=(10.0,))


REAL = Accelerator()


def assembled(plan: RunPlan, environment: Any, trials: Any, *history: Any) -> Report:
    return assemble_train(Recorded(Path(), plan, environment, trials), *history)


def plan(accelerator: Accelerator = REAL) -> RunPlan:
    arm = PlannedVariant(id="train", role="baseline", config=CONFIG, kwargs=CONFIG)
    limits = {"window_s": 1e9, "trial_s": 1e9, "stall_s": 1e9}
    comparison = Comparison(
        name="train", target="tiny", arms=(arm,), accelerators=(accelerator,), blocks=1, steps=60, **limits
    )
    return run_plan(kind="train", kwargs=CONFIG, accelerator=accelerator, steps=60, comparison=comparison)


def setup(**changes: Any) -> TrainSetup:
    config = CONFIG | changes.pop("config", {})
    return TrainSetup(job=TrainJob(**{"directory": "d", "recipe": {}, "config": config, "data": "s"} | changes))


def session(build, *, block: int = 0, wait: float = 1e-3, steps: int = 60, **fields: Any) -> TrialRecord:
    columns: dict[str, Any] = {"frames": 900, "valid_frames": 600, "wait_s": wait, "gap_s": 1e-4}
    if waits := fields.get("emulated_ms"):
        columns["emulated_s"] = waits[0] / 1e3
    as_is = build.segment("as_is", warmup=1, step_s=build.noisy(0.05, steps, np.random.default_rng(block)), **columns)
    overhead = MeasurementOverhead(overhead_s=2e-5, pairs=20, method="toggled")
    fields = {"arm": "train", "group": "train", "overhead": overhead} | fields
    return build.trial("arm", build.segment("warm_up", step_s=[3.0]), as_is, block=block, number=block, **fields)


def lines(session: int = 0, *, first: int = 1, last: int = 60, reason: Any = "steps") -> list[HistoryLine]:
    ones: dict[str, Any] = dict.fromkeys(Begun.model_fields, 1) | {"step": first - 1, "steps": last, "warm_up_s": 3.0}
    sums = {"samples_sha256": "s", "weights_sha256": "w", "optimizer_sha256": "o"}
    found = [HistoryLine(session=session, begun=Begun(**ones))]
    for step in range(first, last + 1, 20):
        fields: dict[str, Any] = dict.fromkeys(Interval.model_fields, 1)
        fields |= {"first_step": step, "steps": 20, "loss": 30 / step}
        watched = Watched(wall_s=1, wait_s=0.02, step_s=0.9, outside_s=0.08, valid_frames=12000, samples=160, steps=20)
        found.append(HistoryLine(session=session, interval=Interval(**fields), watched=watched))
    held_out = Evaluated(step=last, loss=0.7, mel=0.5, stop=0.1, guided=0.1, clips=9, best=True)
    found.append(HistoryLine(session=session, evaluated=held_out, took_s=0.5))
    found.append(HistoryLine(session=session, warned="something was outlived"))
    return [*found, HistoryLine(session=session, ended=Ended(reason=reason, step=last, **sums))]


def test_a_session_that_failed_and_was_gone_on_with_does_not_end_the_run(build) -> None:
    failed = session(build).model_copy(update={"status": "raised", "cause": "the data were gone"})
    whole = session(build, block=1)
    (arm,) = assembled(plan(), ENVIRONMENT_READ, [failed, whole], lines(1), setup()).arms
    assert (arm.status, arm.decision) == ("ok", None)
    (arm,) = assembled(plan(), ENVIRONMENT_READ, [whole, failed], lines(1), setup()).arms
    assert arm.status.startswith("raised")


def test_everything_is_told_or_has_a_reason(build) -> None:
    report = assembled(plan(), ENVIRONMENT_READ, [session(build)], lines(), setup())
    assert (report.kind, report.verdict.bottleneck, report.findings) == ("train", "compute", ())
    (arm,) = report.arms
    assert (arm.id, arm.blocks, arm.steps, arm.padding_efficiency) == ("train", 1, 59, pytest.approx(2 / 3))
    assert arm.throughput_per_s.estimate == pytest.approx(8 / report.verdict.step_time_s.estimate, rel=1e-6)
    assert [one.wait_fraction for one in report.training.intervals] == [0.02] * 3
    assert (report.training.evaluations[0].took_s, report.training.ended.step) == (0.5, 60)
    assert report.warm_up.first_step_s == 3.0
    assert report.overhead["share_of_step"] == pytest.approx(2e-5 / report.verdict.step_time_s.estimate)
    assert "something was outlived." in report.warnings
    missing = [f"verdict.{name}" for name, value in report.verdict if value is None]
    missing += [f"warm_up.{name}" for name, value in report.warm_up if value is None and name != "reason"]
    missing += [f"oscillation.{name}" for name, value in report.oscillation if value is None]
    missing += [f"arms.0.{name}" for name in ("effect", "evidence")]
    assert [path for path in missing if path not in report.unmeasured] == []


def test_waiting_is_explained_by_the_configuration(build) -> None:
    told = setup(config={"loader": "numpy_wav"})
    report = assembled(plan(), ENVIRONMENT_READ, [session(build, wait=0.05)], lines(), told)
    assert report.verdict.bottleneck == "input"
    (finding,) = report.findings
    assert (finding.rule, finding.limiting) == ("python-function", True)


def test_an_eager_step_is_a_finding(build) -> None:
    report = assembled(plan(), ENVIRONMENT_READ, [session(build)], lines(), setup(config={"mode": "eager"}))
    assert [finding.rule for finding in report.findings] == ["eager-step"]
    assert report.verdict.bottleneck == "inconclusive"


def test_an_emulated_accelerator_is_labelled_and_its_use_told(build) -> None:
    trial = session(build, emulated_ms=EMULATED.step_times_ms)
    report = assembled(plan(EMULATED), ENVIRONMENT_READ, [trial], lines(), setup())
    assert report.accelerator["kind"] == "emulated"
    assert report.verdict.accelerator_utilization.estimate == pytest.approx(0.01 / 0.0511, rel=0.05)


def test_without_a_step_the_report_says_why(build) -> None:
    dead = build.trial("arm", status="raised", cause="no such file", arm="train", group="train")
    report = assembled(plan(), ENVIRONMENT_READ, [dead], [], setup())
    assert (report.arms, report.verdict.step_time_s) == ((), None)
    assert "no such file" in report.verdict.summary
    assert markdown.render(report_document(report))


def test_it_is_rebuilt_to_the_byte_and_written_in_words(build, tmp_path: Path) -> None:
    trials = [session(build), session(build, block=1, steps=80)]
    told = [*lines(), *lines(1, first=61, last=140)]
    build.run_directory(tmp_path, plan(), ENVIRONMENT_READ, trials)
    write_json(tmp_path / SETUP, setup().model_dump(mode="json"))
    for line in told:
        append_history(tmp_path, line)
    with patch("xttsbench.reporting.plots.draw_one", side_effect=ValueError("not drawn here")):
        outcome = rebuild(tmp_path)
    assert outcome.exit_code == 0
    assert outcome.report == assembled(plan(), ENVIRONMENT_READ, trials, told, setup())
    page = (tmp_path / "report.md").read_text()
    assert "<summary>Losses over the steps</summary>" in page
    assert "| 61 to 80 |" in page
    (tmp_path / SETUP).unlink()
    with pytest.raises(JournalError, match=r"train\.json cannot be read"):
        rebuild(tmp_path)


@pytest.mark.parametrize(
    ("fields", "reason", "exit_code", "code", "said"),
    [
        ({}, "steps", None, 0, None),
        ({}, "terminated", None, 130, "after step 60"),
        ({"status": "interrupted"}, "steps", None, 130, "Ended at once"),
        ({"status": "raised", "cause": "off course"}, "steps", 1, 1, "off course"),
        ({"status": "raised", "cause": "bad clip"}, "steps", 5, 5, "bad clip"),
        ({"status": "killed", "cause": "killed by SIGABRT"}, "steps", None, 1, "SIGABRT"),
        ({"status": "out_of_memory", "cause": "OOM"}, "steps", 1, 1, "batch_size (now 8)"),
    ],
)
def test_how_it_ended_is_the_exit_code(build, fields, reason: str, exit_code: int | None, code: int, said) -> None:
    trained = Trained(session(build, **fields), exit_code, "8 clips, 900 frames")
    report = assembled(plan(), ENVIRONMENT_READ, [trained.record], lines(reason=reason), setup())
    found, message = judge_training(trained, report)
    assert found == code
    assert (message is None) if said is None else said in message
    if fields.get("status") == "out_of_memory":
        assert "with a batch of 8 clips, 900 frames" in message
