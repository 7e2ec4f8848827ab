"""How long a diagnosis measures: a start that takes long is not taken from the measuring."""

from __future__ import annotations

import pytest

from xttsbench.planning import IMPORT_S, Job
from xttsbench.workflows.diagnose.diagnose import Isolation, isolate
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
