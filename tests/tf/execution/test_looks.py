"""Looks after each round of a real trial: it waits for the answer, ends its rounds by it, and goes on as it is."""

from __future__ import annotations

from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import run_trial
from xttsbench.records.trial import Look

LIMITS = Limits(60.0, 30.0)


def looking(final_at: int, seen: list):
    """A verdict that is final from a round on; what it was asked about is in ``seen``."""

    def verdict(record):
        seen.append(record)
        final = len(record.rounds) >= final_at
        return Look(after_s=record.duration_s, bottleneck="input", probability=0.9, final=final)

    return verdict


def test_a_final_verdict_ends_the_rounds_and_the_target_goes_on_as_it_is(helper, spec):
    seen = []
    record = run_trial(spec("good", stretch_s=0.4, steps=1000), helper, LIMITS, verdict=looking(2, seen))
    assert (record.status, record.cause) == ("ok", None)
    assert [len(one.rounds) for one in seen] == [1, 2]
    assert [one.final for one in record.looks] == [False, True]
    assert all(one.segment("step_only").steps for one in seen)
    assert all(one.anatomy is not None for one in seen), "no look could tell host work without it"
    assert [mark.round for mark in record.rounds] == [0, 1, 2]
    rounds = {name: set(record.segment(name).columns["round"]) for name in ("as_is", "step_only", "input_only")}
    assert rounds == {"as_is": {0, 1, 2}, "step_only": {0, 1}, "input_only": {0, 1}}
    assert 0.4 <= record.stretch_s < record.duration_s
    assert record.step_ops is not None, "they are read after the verdict"


def test_without_a_final_verdict_all_rounds_are_measured_before_the_stretch(helper, spec):
    seen = []
    record = run_trial(spec("good", stretch_s=0.4), helper, LIMITS, verdict=looking(99, seen))
    assert len(seen) == len(record.rounds) - 1 == record.spec.rounds
    assert record.stretch_s >= 0.4
    asked_by_nobody = run_trial(spec("good"), helper, LIMITS)
    assert (len(asked_by_nobody.rounds), asked_by_nobody.looks) == (record.spec.rounds, ())
