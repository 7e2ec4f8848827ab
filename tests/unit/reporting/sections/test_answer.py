"""What was not tried is said before what is left to do, and the budget of the next command fits what is missing."""

from __future__ import annotations

import pytest

from tests.unit.reporting.conftest import changed, estimate
from tests.unit.reporting.sections.test_advice import (
    LOADS,
    NO_GAIN,
    OTHER,
    SAME,
    UNPROVED,
    cache,
    fix,
    report_of,
    with_findings,
)
from tests.unit.reporting.sections.test_summary import flat, noisy, screen
from xttsbench.records.report import Finding, Variant
from xttsbench.reporting.sections import answer

UNTRIED = "there was no time for it within the budget: its cache takes 4 s to fill"


def test_what_was_not_tried_is_said_before_what_is_left() -> None:
    slow = fix(
        "parallel-map", "maps in parallel", "not verified", verified_speedup=estimate(0.8), why="no gain of 2% to be"
    )
    slow = slow.model_copy(update={"decision": "undecided", "semantics": SAME})
    text = flat(screen(report_of(slow, cache("not verified", why=UNTRIED))))
    assert (
        "what to do Not tried for want of time: a cache in memory after map; the next command has more of it. Maps in "
        "parallel was tried: no gain of 2% to be." in text
    )
    assert "What is left" not in text
    assert "yes, bit for bit tried, no gain seen" in text
    map_ = fix("parallel-map", "maps in parallel", "not verified", predicted_speedup=1.4, why=UNTRIED)
    text = flat(screen(report_of(cache("rejected", predicted_speedup=4.8, semantics=OTHER), map_)))
    assert "what to do Not tried for want of time: maps in parallel; the next command has more of it. A cache" in text
    assert "What is left is to make that work itself cheaper." in flat(screen(with_findings(report_of(slow), LOADS)))


@pytest.mark.parametrize(
    ("given", "why", "wanted"),
    [
        ("--budget 200 ", "evidence 15.9; about 1 more round like these would (1 s)", 360),
        ("--budget 160 ", "there was no time for it: its cache takes 206 s to fill", 600),
        ("--budget 110 ", "there was no time for it", 600),
        ("--budget 900 ", "there was no time for it", 1800),
        ("", "there was no time for it", 600),
    ],
)
def test_the_budget_that_is_shown_fits_what_is_missing(given: str, why: str, wanted: int) -> None:
    command = f"xttsbench optimize my_project/data.py:make {given}--out reports/one"
    text = flat(screen(report_of(NO_GAIN, cache("not verified", predicted_speedup=4.8, why=why), command=command)))
    assert f"next xttsbench optimize my_project/data.py:make --budget {wanted} report" in text or "no time" not in why
    tried = cache(
        "not verified", verified_speedup=estimate(3.4, 0.8), decision="likely_faster", why=why, semantics=SAME
    )
    assert f"--budget {wanted} report" in flat(screen(report_of(tried, command=command)))


LONG = "there was no time for it within the budget: its cache takes 5172 s to fill"


def test_the_next_command_proves_what_is_to_be_proved_with_it_and_has_the_time() -> None:
    slow = cache("not verified", predicted_speedup=9.0, why=LONG)
    quick = fix(
        "parallel-map", "maps in parallel", "not verified", predicted_speedup=7.0, why="there was no time for it"
    )
    command = "xttsbench {} my_project/data.py:make --budget 60 --out reports/one"
    text = flat(screen(report_of(slow, quick, kind="optimize", command=command.format("optimize"))))
    assert "with the next command: maps in parallel." in text, "for which an hour is not needed"
    assert "next xttsbench optimize my_project/data.py:make --budget 600 report" in text
    text = flat(screen(report_of(slow, kind="optimize", command=command.format("optimize"))))
    assert "next xttsbench optimize my_project/data.py:make --budget 10440 report" in text
    target = {"name": "my_project/data.py:make", "kind": "dataset+step"}
    text = flat(screen(report_of(slow, kind="diagnose", command=command.format("diagnose"), target=target)))
    assert "next xttsbench optimize my_project/data.py:make --budget 10440 report" in text


def test_rounds_that_would_decide_and_the_budget_of_the_next_command_are_one_estimate() -> None:
    why = "evidence 3, and 20 decides; about 6 more rounds like these would (50 s)"
    tried = cache(
        "not verified", verified_speedup=estimate(1.3), decision="undecided", rounds=4, why=why, semantics=SAME
    )
    command = "xttsbench optimize my_project/data.py:make --budget 120 --out reports/one"
    text = flat(screen(report_of(tried, command=command)))
    assert "About 6 more rounds would decide it, and the next command has the time for them." in text
    assert "--budget 240 report" in text
    arm = Variant(id="b", role="candidate", group="g", blocks=2, rounds=4, status="ok", decision="undecided")
    said = ("whether b is faster is undecided, and about 6 more rounds like these would decide.",)
    run = report_of(kind="sweep", arms=(arm,), comparison=said, command=command.replace("optimize", "sweep"))
    assert "--budget 480 report" in flat(screen(run)), "thirty seconds a round, as they took"


def test_what_no_fix_does_is_said_before_one_that_nothing_speaks_for() -> None:
    graph = fix("step:graph", "the step as one graph", "rejected", why="not proved", semantics=UNPROVED)
    slow = fix("parallel-map", "maps in parallel", "not verified", verified_speedup=estimate(0.7), why="likely slower")
    anew = Finding(
        rule="call-per-batch",
        severity="critical",
        limiting=True,
        title="predict() is called for each batch",
        remedy="Write `model.predict_on_batch(x)` in line 86.",
    )
    text = flat(screen(changed(report_of(graph, slow), findings=(anew,))))
    assert "what to do Write `model.predict_on_batch(x)` in line 86. Maps in parallel was tried: likely slower." in text
    gains = changed(graph, predicted_speedup=2.0)
    assert "what to do The step as one graph would give 2.00x" in flat(
        screen(changed(report_of(gains, slow), findings=(anew,)))
    )


def test_two_that_there_was_no_time_for_are_both_named() -> None:
    fixes = [fix(f"parallel-map:{n}", f"maps {n} at once", "not verified", why=UNTRIED) for n in (2, 4, 8)]
    assert "maps 2 at once and maps 4 at once; the next" in flat(screen(report_of(NO_GAIN, *fixes[:2])))
    assert "maps 2 at once and maps 4 at once and 1 more; the next" in flat(screen(report_of(NO_GAIN, *fixes)))


def test_a_machine_is_not_the_reason_where_a_quiet_one_would_have_no_verdict_either() -> None:
    report = noisy()
    assert answer.disturbed(report)
    anew = "No bottleneck can be named: predict() is called anew for each batch: what it makes ready is measured."
    report = changed(report, verdict=changed(report.verdict, summary=anew))
    assert answer.disturbed(report) == ""
    text = flat(screen(report))
    assert f"UNDECIDED {anew}" in text
    assert "machine others used 42 %" in text


def test_launching_that_was_not_told_from_computing_has_no_probability() -> None:
    said = "The step spends 99% of its time launching ops or computing; which of the two is not known: untimed."
    report = report_of(NO_GAIN)
    assert "probability" in flat(screen(report))
    text = flat(screen(changed(report, verdict=changed(report.verdict, bottleneck="dispatch", summary=said))))
    assert f"LAUNCH OVERHEAD {said}" in text
    assert "launch overhead or compute 0.9 %" in text, "in the bar as well"
    assert "probability" not in text


def test_the_gain_of_a_step_s_fix_is_not_said_to_be_from_a_model_of_the_pipeline() -> None:
    several = fix("step:several:16", "several steps in one call", "not verified", predicted_speedup=1.2, why=UNTRIED)
    text = flat(screen(report_of(several)))
    assert "1.200x as fast, estimated from the parts of a step" in text
    assert "model of the pipeline" not in text


@pytest.mark.parametrize(
    ("rounds", "busy", "said", "budget"),
    [
        (769, 0.7, "Run the next command when the machine is quieter: now about 769 more rounds would be needed.", 110),
        (769, 0.0, "About 769 more rounds would decide it, and the next command has the time for them.", 2340),
        (6, 0.7, "About 6 more rounds would decide it, and the next command has the time for them.", 2340),
    ],
)
def test_a_busy_machine_is_not_measured_for_longer_where_a_quiet_one_decides(
    rounds: int, busy: float, said: str, budget: int
) -> None:
    why = f"undecided: evidence 0.08, and 20 decides; about {rounds} more rounds like these would (1086 s)"
    open_one = fix("parallel-map", "maps in parallel", "not verified", verified_speedup=estimate(1.09), why=why)
    open_one = changed(open_one, semantics=SAME, decision="undecided", rounds=3)
    others = changed(noisy().disturbance, foreign_share=busy, steal_share=0.0, throttled_share=None)
    out = cache("rejected", semantics=UNPROVED)
    command = "xttsbench optimize my_project/data.py:make --budget 110"
    text = flat(screen(report_of(open_one, out, command=command, disturbance=others)))
    assert said in text
    assert f"next {command.replace('110', str(budget))} " in text
    assert "may help, but the data are not proved to stay the same: a cache would repeat the first pass" in text


@pytest.mark.parametrize(("compute", "said"), [(0.0295, True), (0.016, False)])
def test_compute_beyond_the_pause_of_the_emulated_accelerator_is_explained(compute: float, said: bool) -> None:
    report = report_of(NO_GAIN, accelerator={"kind": "emulated", "label": "emulated, 15 ms", "mean_step_ms": 15.0})
    parts = changed(report.verdict.attribution_s, compute=compute)
    text = flat(screen(changed(report, verdict=changed(report.verdict, attribution_s=parts))))
    told = "compute 29.5 ms: the 15.0 ms of the emulated accelerator, and that this machine lets it go on late"
    assert (told in text) is said
