import pytest

from xttsbench.errors import UsageError
from xttsbench.records.base import Estimate
from xttsbench.records.report import Attribution, Finding
from xttsbench.records.watch import Stalls, WatchSummary
from xttsbench.reporting.console import render
from xttsbench.reporting.document import Section, View
from xttsbench.reporting.sections.brief import watch_document
from xttsbench.reporting.step_bar import Bars
from xttsbench.workflows.watch.summary import judge, parse


def made(step_ms=(10.0, 9.5, 10.5), wait=(0.30, 0.28, 0.32), **changed):
    step = Estimate(estimate=step_ms[0] / 1e3, low=step_ms[1] / 1e3, high=step_ms[2] / 1e3)
    nothing = dict.fromkeys(("dispatch", "compile", "transfer", "contention", "residual"), 0.0)
    stretch = {
        **dict.fromkeys(("start_s", "compile_s", "outside_s", "cpu_s", "gc_s", "sync_s"), 0.0),
        **dict.fromkeys(("traces", "xla_compiles", "compiling_steps"), 0),
        "end_s": 1.0, "steps": 100, "samples": 100, "wall_s": 1.0, "wait_s": 0.3, "step_s": 0.7, "slowest_s": 0.1,
    }  # fmt: skip
    fields = {
        "script": "train.py", "pid": 1, "started_utc": "t", "updated_utc": "t", "duration_s": 1.0, "over": True,
        "ended": "returned", "exit_code": 0, "signal": None, "error": None, "iterations": ("fit",), "steps": 100,
        "warm_up_steps": 2, "epochs": 1, "bottleneck": "input", "probability": 0.99, "sentence": "It waits.",
        "attribution_s": Attribution(input=0.003, compute=0.006, host=0.001, **nothing), "step_time_s": step,
        "quantiles_s": {"p99": 0.05}, "input_wait_fraction": Estimate(estimate=wait[0], low=wait[1], high=wait[2]),
        "stalls": Stalls(count=2, lost_s=0.1, share_of_time=0.1), "drift": None, "memory": None, "traces": 0,
        "xla_compiles": 0, "garbage_collection_share": 0.0, "period_steps": None,
        "next_command": "xttsbench diagnose train.py", "stretches": (stretch,),
    }  # fmt: skip
    return WatchSummary.model_validate(fields | changed)


def outcome(expression, summary=None, baseline=None):
    found = judge(parse(expression), summary or made(), baseline)
    return found.outcome


def test_a_gate_fails_passes_or_stays_open_by_its_whole_interval():
    assert outcome("input>20%") == "failed"
    assert outcome("input>0.4") == "passed"
    assert outcome("input>29%") == "undecided"
    assert outcome("step-time>20ms") == "passed"
    assert outcome("p99>0.04s") == "failed"
    assert outcome("host>5%") == "failed"
    assert outcome("stalls>20%") == "passed"
    assert outcome("drift>1%") == "passed"


def test_what_was_not_measured_never_passes():
    assert outcome("input>20%", made(input_wait_fraction=None)) == "not measured"
    assert outcome("warning", made(stretches=())) == "not measured"


def test_against_a_baseline_both_intervals_count():
    before = made(step_ms=(9.0, 8.8, 9.2), wait=(0.10, 0.09, 0.11))
    assert outcome("step-time>+30%", baseline=before) == "passed"
    assert outcome("step-time>+2%", baseline=before) == "failed"
    assert outcome("step-time>+9%", baseline=before) == "undecided"
    assert outcome("input>+5%", baseline=before) == "failed"
    assert outcome("input>+30%", baseline=before) == "passed"
    with pytest.raises(UsageError, match="--baseline"):
        judge(parse("input>+5%"), made(), None)


def test_a_severity_is_that_of_findings_on_the_bottleneck():
    bad = Finding(rule="input-bound", severity="critical", limiting=True, title="it waits")
    assert outcome("warning", made(findings=(bad,))) == "failed"
    assert outcome("warning", made(findings=(bad.model_copy(update={"limiting": False}),))) == "passed"


@pytest.mark.parametrize(
    "expression", ["", "input", "input>", "input>x", "inputs>1", "input>5ms", "p99>5%", "p99>+5", "input>nan", "fatal"]
)
def test_what_is_no_gate_is_refused_with_those_that_are(expression):
    with pytest.raises(UsageError, match="--fail-on"):
        parse(expression)


def test_the_bar_has_the_share_of_the_step_that_each_part_takes():
    shown = watch_document(made(), "x").shown(View.SUMMARY)
    inside = [one for block in shown for one in (block.blocks if isinstance(block, Section) else (block,))]
    (bars,) = [block for block in inside if isinstance(block, Bars)]
    shares = {part.name: part.share for part in bars.parts if part.share}
    assert shares == pytest.approx({"input": 0.3, "compute": 0.6, "host": 0.1})


def test_the_screen_is_one_screen_and_hostile_names_stay_text():
    hostile = "train\x1b[31m<b>.py"
    summary = made(script=hostile, error="ValueError: \x1b]0;x\x07 <script>", ended="raised", exit_code=1)
    text = render(watch_document(summary, "reports/x"), width=100, color=False, view=View.SUMMARY)
    assert "\x1b" not in text
    assert "LIKELY INPUT" in text
    assert "xttsbench diagnose train.py" in text
    assert "exit code 1" in text
    assert len(text.splitlines()) <= 25


def test_a_run_without_a_verdict_shows_what_can_be_mended_all_the_same():
    known = Finding(rule="cold-storage", severity="info", limiting=False, title="nothing to mend", remedy="Nothing.")
    leak = Finding(rule="leak", severity="warning", limiting=False, title="each run leaks", remedy="Make it once.")
    undecided = made(bottleneck="inconclusive", findings=(known, leak))
    text = " ".join(render(watch_document(undecided, "x"), width=100, color=False, view=View.SUMMARY).split())
    assert "found besides each run leaks what to do Make it once." in text
    decided = made(findings=(known, leak))
    assert "leaks" not in render(watch_document(decided, "x"), width=100, color=False, view=View.SUMMARY)
