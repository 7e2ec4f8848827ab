"""How long a diagnosis measures: a start that takes long is not taken from the measuring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.evidence.made import make_evidence
from xttsbench.diagnosis.diagnosis import Diagnosis
from xttsbench.planning import IMPORT_S, Job
from xttsbench.workflows.diagnose import Isolation, isolate
from xttsbench.workflows.measure.session import Silent

JOB = Job(target="m:f", kwargs={}, emulated_ms=(5.0,), steps=100, window_s=2.0, seed=0)


class Fake:
    """A session whose trials take two seconds, after a start of so many."""

    def __init__(self, build, start_s):
        self._build, self._start_s = build, start_s
        self.import_s = IMPORT_S
        self.spent_s = 0.0
        self.trials = []

    def run(self, spec, limits):
        if not self.trials:
            self.import_s = self._start_s
            self.spent_s += self._start_s
        self.spent_s += 2.0
        record = self._build.ladder() if spec.rung == "ladder" else self._build.trial(spec.rung)
        self.trials.append(record.model_copy(update={"spec": spec, "duration_s": 2.0}))
        return self.trials[-1]


@pytest.mark.parametrize(
    ("start_s", "budget_s", "read"), [(6.0, 200.0, True), (39.0, 200.0, True), (39.0, 46.0, False)]
)
def test_the_pipeline_is_read_though_tensorflow_took_its_time_to_start(build, start_s, budget_s, read) -> None:
    session = Fake(build, start_s)
    isolate(Isolation(JOB, {}, budget_s, 40.0, ("ladder", "pipeline")), session, Silent())
    assert ("pipeline" in [trial.spec.rung for trial in session.trials]) is read


@pytest.mark.parametrize(("verdict", "more"), [("inconclusive", ["ladder", "ladder"]), ("compute", [])])
def test_what_is_left_of_the_budget_goes_to_a_verdict_where_there_is_none(build, monkeypatch, verdict, more) -> None:
    said = Diagnosis(make_evidence(verdict), probability=0.88, figures={"wall_s": None})
    monkeypatch.setattr("xttsbench.workflows.diagnose.build_diagnosis", lambda *_, **__: said)
    session = Fake(build, IMPORT_S)
    isolation = Isolation(JOB, {}, 200.0, 8.0)
    isolate(isolation, session, Silent())
    before = len(session.trials)
    isolate(replace(isolation, due_s=190.0, undecided=True), session, Silent())
    assert [trial.spec.rung for trial in session.trials[before:]][: len(more)] == more
    assert bool(session.trials[before:]) is bool(more)


@pytest.mark.parametrize(("budget_s", "processes"), [(300.0, 3), (600.0, 6)])
def test_more_time_lets_more_processes_decide(build, monkeypatch, budget_s: float, processes: int) -> None:
    said = Diagnosis(make_evidence("inconclusive"), probability=0.88, figures={"wall_s": None})
    monkeypatch.setattr("xttsbench.workflows.diagnose.build_diagnosis", lambda *_, **__: said)
    session = Fake(build, IMPORT_S)
    isolation = Isolation(JOB, {}, budget_s, 3.0)
    isolate(isolation, session, Silent())
    isolate(replace(isolation, due_s=budget_s, undecided=True), session, Silent())
    assert [trial.spec.rung for trial in session.trials].count("ladder") == processes


def test_optimize_reads_the_pipeline_also_where_one_process_names_no_bottleneck(build, monkeypatch) -> None:
    said = Diagnosis(make_evidence("inconclusive"), probability=0.88, figures={"wall_s": None})
    monkeypatch.setattr("xttsbench.workflows.diagnose.build_diagnosis", lambda *_, **__: said)
    session = Fake(build, IMPORT_S)
    isolate(Isolation(JOB, {}, 75.0, 40.0, ("ladder", "pipeline", "graph", "xla")), session, Silent())
    assert [trial.spec.rung for trial in session.trials][:2] == ["ladder", "pipeline"]
