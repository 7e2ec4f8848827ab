"""How long a diagnosis measures: a start that takes long is not taken from the measuring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.evidence.made import make_evidence
from xttsbench.diagnosis import Diagnosis
from xttsbench.errors import UsageError
from xttsbench.planning import IMPORT_S, Job
from xttsbench.records.report import Report
from xttsbench.workflows.diagnose import Isolation, Request, diagnose, isolate
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Silent
from xttsbench.workflows.reports.diagnose import assemble
from xttsbench.workflows.runs import judge, judge_fixes

JOB = Job(target="m:f", kwargs={}, emulated_ms=(5.0,), steps=100, window_s=2.0, seed=0)


def assembled(*files: Any) -> Report:
    return assemble(Recorded(Path(), *files))


class Fake:
    """A session whose trials take two seconds, after a start of so many."""

    def __init__(self, build, start_s):
        self._build, self._start_s = build, start_s
        self.import_s = IMPORT_S
        self.spent_s = 0.0
        self.trials = []

    def run(self, spec, limits, verdict=None):
        if not self.trials:
            self.import_s = self._start_s
            self.spent_s += self._start_s
        self.spent_s += 2.0
        record = self._build.ladder() if spec.kind == "ladder" else self._build.trial(spec.kind)
        self.trials.append(record.model_copy(update={"spec": spec, "duration_s": 2.0}))
        return self.trials[-1]


@pytest.fixture
def concluding(monkeypatch: pytest.MonkeyPatch):
    """``concluding(verdict)``: what every diagnosis comes to."""

    def conclude(verdict: str) -> None:
        said = Diagnosis(make_evidence(verdict), probability=0.88, figures={"wall_s": None})
        monkeypatch.setattr("xttsbench.workflows.diagnose.build_diagnosis", lambda *_, **__: said)

    return conclude


@pytest.mark.parametrize(
    ("start_s", "budget_s", "read"), [(6.0, 200.0, True), (39.0, 200.0, True), (39.0, 46.0, False)]
)
def test_the_pipeline_is_read_though_tensorflow_took_its_time_to_start(build, start_s, budget_s, read) -> None:
    session = Fake(build, start_s)
    isolate(Isolation(JOB, {}, budget_s, 40.0, ("ladder", "pipeline")), session, Silent())
    assert ("pipeline" in [trial.spec.kind for trial in session.trials]) is read


@pytest.mark.parametrize(("verdict", "more"), [("inconclusive", ["ladder", "ladder"]), ("compute", [])])
def test_what_is_left_of_the_budget_goes_to_a_verdict_where_there_is_none(build, concluding, verdict, more) -> None:
    concluding(verdict)
    session = Fake(build, IMPORT_S)
    isolation = Isolation(JOB, {}, 200.0, 8.0)
    isolate(isolation, session, Silent())
    before = len(session.trials)
    isolate(replace(isolation, due_s=190.0, undecided=True), session, Silent())
    assert [trial.spec.kind for trial in session.trials[before:]][: len(more)] == more
    assert bool(session.trials[before:]) is bool(more)


@pytest.mark.parametrize(("budget_s", "processes"), [(300.0, 3), (600.0, 6)])
def test_more_time_lets_more_processes_decide(build, concluding, budget_s: float, processes: int) -> None:
    concluding("inconclusive")
    session = Fake(build, IMPORT_S)
    isolation = Isolation(JOB, {}, budget_s, 3.0)
    isolate(isolation, session, Silent())
    isolate(replace(isolation, due_s=budget_s, undecided=True), session, Silent())
    assert [trial.spec.kind for trial in session.trials].count("ladder") == processes


def test_optimize_reads_the_pipeline_also_where_one_process_names_no_bottleneck(build, concluding) -> None:
    concluding("inconclusive")
    session = Fake(build, IMPORT_S)
    isolate(Isolation(JOB, {}, 75.0, 40.0, ("ladder", "pipeline", "graph", "xla")), session, Silent())
    assert [trial.spec.kind for trial in session.trials][:2] == ["ladder", "pipeline"]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("starving", 0, None),
        ("eager", 0, None),
        ("retracing", 0, None),
        ("computing", 0, None),
        ("emulated", 0, None),
        ("bare", 0, None),
        ("few", 3, "No bottleneck can be named: only 1 step(s) were measured after the warm-up."),
        ("killed", 3, "No bottleneck can be named: the trial ended early (killed by SIGKILL)."),
        ("empty", 4, "Nothing was measured: the dataset yields no batch. Check that"),
        (
            "slow",
            4,
            "Nothing was measured: still in phase 'as_is' after its time limit of 150 s. The 2 steps that ended are "
            "warm-up, and took up to 40.0 s each: give it more seconds (--budget), or smaller batches.",
        ),
        ("nothing", 4, "Nothing was measured: no step ended. Check that"),
        ("raised", 5, "ValueError: bad batch (data.py:3)"),
        ("not_a_number", 5, "The batches hold NaN or infinity (mel): the timings stand, but"),
        ("interrupted", 130, "Interrupted; what was measured before is in the report."),
    ],
)
def test_exit_code_and_sentence(runs, name: str, code: int, message: str | None) -> None:
    run = runs[name]
    found, said = judge(assembled(*run), run.trials)
    assert found == code
    assert said is None if message is None else said is not None and said.startswith(message)
    assert "\n" not in (said or "")


def test_an_input_that_was_not_read_is_not_called_beyond_mending(runs) -> None:
    run = runs["bare"]
    unread = [trial for trial in run.trials if trial.spec.kind != "pipeline"]
    report = assembled(run.plan, run.environment, unread)
    assert report.verdict.bottleneck == "input"
    code, said = judge_fixes(report.model_copy(update={"fixes": ()}))
    assert code == 3
    assert "it was not read (the trial that reads the graph was not run or failed)" in said


def test_batches_of_the_script_s_own_have_no_fixes(runs) -> None:
    report = assembled(*runs["bare"])
    own = {"rule": "no-dataset", "limiting": True, "title": "Clips() makes each"}
    found = report.findings[0].model_copy(update=own)
    code, said = judge_fixes(report.model_copy(update={"fixes": (), "pipeline": None, "findings": (found,)}))
    assert (code, said) == (0, "Nothing was tried, since fixes are of datasets, and here is none: Clips() makes each.")


@pytest.mark.parametrize(
    ("why", "code", "said"),
    [
        (
            "the script wrote out.h5, and it cannot be kept from that here: no. Say --repeat.",
            3,
            "No fix was tried: the step as one graph:",
        ),
        ("there was no time for it within the budget", 3, "No fix was tried: the step as one graph: there was no time"),
        (
            "put the step into a function of its own first",
            0,
            "(the step as one graph: put the step into a function of its own first)",
        ),
    ],
)
def test_where_nothing_was_tried_the_sentence_says_why_and_what_to_do(runs, why: str, code: int, said: str) -> None:
    report = assembled(*runs["eager"])
    (fix,) = [one for one in report.fixes if one.name == "step:graph"]
    held = fix.model_copy(update={"outcome": "not verified", "why": why, "semantics": None, "decision": None})
    found, sentence = judge_fixes(report.model_copy(update={"fixes": (held,)}))
    assert found == code
    assert said in (sentence or "")
    if code == 0:
        assert "Nothing was tried, since no fix mends what limits the step: the step runs op by op" in (sentence or "")
        assert "@tf.function" in (sentence or "")


def test_an_input_with_a_remedy_by_hand_is_not_called_beyond_mending(runs) -> None:
    report = assembled(*runs["bare"])
    limiting = report.findings[0].model_copy(update={"limiting": True, "remedy": "Write .repeat() first."})
    (fix, *_) = assembled(*runs["eager"]).fixes
    little = {"outcome": "not verified", "why": "too little.", "semantics": None, "decision": None}
    told = {"fixes": (fix.model_copy(update=little),), "findings": (limiting,)}
    code, said = judge_fixes(report.model_copy(update=told))
    assert (code, said) == (0, f"No fix was tried: {fix.words}: too little. Write .repeat() first.")


def changed(runs, index: int, **fields):
    trials = list(runs["starving"].trials)
    trials[index] = trials[index].model_copy(update=fields)
    return trials


def judged(runs, trials) -> int:
    plan, environment, _ = runs["starving"]
    return judge(assembled(plan, environment, trials), trials)[0]


def test_a_target_that_raises_in_a_later_process_is_invalid_all_the_same(runs) -> None:
    assert judged(runs, changed(runs, 3, status="raised", cause="ValueError: bad")) == 5


def test_a_mode_or_fix_that_fails_is_no_fault_of_the_target(runs) -> None:
    for index in (2, 4):
        assert judged(runs, changed(runs, index, status="raised", cause="no", segments=())) == 0


def test_an_interruption_comes_before_all_else(runs) -> None:
    trials = [*changed(runs, 0, status="raised", cause="bad"), runs["interrupted"].trials[1]]
    assert judged(runs, trials) == 130


def test_invalid_comes_before_inconclusive(runs) -> None:
    (trial,) = runs["not_a_number"].trials
    both = trial.model_copy(update={"status": "killed", "cause": "killed by SIGKILL"})
    assert judged(runs, [both]) == 5


def test_a_profile_is_refused_where_names_are_left_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--profile"):
        diagnose(Request("m:f", command="x", redact=True, profile=True, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()
