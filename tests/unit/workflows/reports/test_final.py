"""When a verdict was final: at the look that named it for good, or at the end of the last trial that it waited for."""

from __future__ import annotations

from xttsbench.records.trial import Look
from xttsbench.workflows.reports import verdict_final_s

AT = "2026-01-01T00:00:{:02d}+00:00"


def looked(after_s, bottleneck, *, final=True):
    return Look(after_s=after_s, bottleneck=bottleneck, probability=0.99, final=final)


def begun(trial, second, *looks):
    return trial.model_copy(update={"started_utc": AT.format(second), "duration_s": 8.0, "looks": looks})


def test_it_is_the_look_that_named_the_verdict(build):
    first = begun(build.ladder(), 10, looked(2.0, "input", final=False), looked(4.5, "input"))
    later = begun(build.trial("pipeline"), 18)
    assert verdict_final_s([first, later], "input") == 4.5


def test_a_verdict_that_turned_later_was_final_at_the_end_of_what_it_waited_for(build):
    first = begun(build.ladder(), 10, looked(4.5, "input"))
    assert verdict_final_s([first, begun(build.trial("graph"), 18)], "compute") == 16.0


def test_a_repeat_that_was_needed_makes_the_first_process_s_looks_no_verdict(build):
    first = begun(build.ladder(), 10, looked(4.5, "input"))
    again = begun(build.ladder(block=1), 30, looked(5.0, "input"))
    assert verdict_final_s([first, again], "input") == 25.0


def test_without_a_trial_there_is_none():
    assert verdict_final_s([]) is None
