from __future__ import annotations

import pytest

from xttsbench.workflows.outcome import judge, judge_fixes
from xttsbench.workflows.reports.diagnose import assemble


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
        ("nothing", 4, "Nothing was measured: no step ended. Check that"),
        ("raised", 5, "ValueError: bad batch (data.py:3)"),
        ("not_a_number", 5, "The batches hold NaN or infinity (mel): the timings stand, but"),
        ("interrupted", 130, "Interrupted; what was measured before is in the report."),
    ],
)
def test_exit_code_and_sentence(runs, name: str, code: int, message: str | None) -> None:
    run = runs[name]
    found, said = judge(assemble(*run), run.trials)
    assert found == code
    assert said is None if message is None else said is not None and said.startswith(message)
    assert "\n" not in (said or "")


def test_an_input_that_was_not_read_is_not_called_beyond_mending(runs) -> None:
    run = runs["bare"]
    unread = [trial for trial in run.trials if trial.spec.rung != "pipeline"]
    report = assemble(run.plan, run.environment, unread)
    assert report.verdict.bottleneck == "input"
    code, said = judge_fixes(report.model_copy(update={"fixes": ()}))
    assert code == 3
    assert "it was not read (the trial that reads the graph was not run or failed)" in said


@pytest.mark.parametrize(
    ("why", "code", "said"),
    [
        (
            "the script wrote out.h5, and it cannot be kept from that here: no. Say --repeat.",
            3,
            "No fix was tried: step:",
        ),
        ("there was no time for it within the budget", 3, "No fix was tried: step:graph: there was no time"),
        (
            "put the step into a function of its own first",
            0,
            "(step:graph: put the step into a function of its own first)",
        ),
    ],
)
def test_where_nothing_was_tried_the_sentence_says_why_and_what_to_do(runs, why: str, code: int, said: str) -> None:
    report = assemble(*runs["eager"])
    (fix,) = [one for one in report.fixes if one.name == "step:graph"]
    held = fix.model_copy(update={"outcome": "not verified", "why": why, "semantics": None, "decision": None})
    found, sentence = judge_fixes(report.model_copy(update={"fixes": (held,)}))
    assert found == code
    assert said in (sentence or "")
    if code == 0:
        assert "Nothing was tried, since no fix mends what limits the step: the step runs op by op" in (sentence or "")
        assert "@tf.function" in (sentence or "")


def changed(runs, index: int, **fields):
    trials = list(runs["starving"].trials)
    trials[index] = trials[index].model_copy(update=fields)
    return trials


def judged(runs, trials) -> int:
    plan, environment, _ = runs["starving"]
    return judge(assemble(plan, environment, trials), trials)[0]


def test_a_target_that_raises_in_a_later_process_is_invalid_all_the_same(runs) -> None:
    assert judged(runs, changed(runs, 4, status="raised", cause="ValueError: bad")) == 5


def test_a_mode_or_fix_that_fails_is_no_fault_of_the_target(runs) -> None:
    for index in (2, 3, 5):
        assert judged(runs, changed(runs, index, status="raised", cause="no", segments=())) == 0


def test_an_interruption_comes_before_all_else(runs) -> None:
    trials = [*changed(runs, 0, status="raised", cause="bad"), runs["interrupted"].trials[1]]
    assert judged(runs, trials) == 130


def test_invalid_comes_before_inconclusive(runs) -> None:
    (trial,) = runs["not_a_number"].trials
    both = trial.model_copy(update={"status": "killed", "cause": "killed by SIGKILL"})
    assert judged(runs, [both]) == 5
