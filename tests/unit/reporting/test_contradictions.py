"""Two places of one report never say two things: each situation in which they did, from records."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.reporting.conftest import changed, estimate, starving_run
from tests.unit.reporting.sections.test_advice import (
    NO_GAIN,
    OTHER,
    PIPELINE,
    SAME,
    accepted,
    cache,
    fix,
    op,
    report_of,
)
from tests.unit.reporting.sections.test_summary import flat, screen
from tests.unit.reporting.test_agreement import outputs
from xttsbench.fixes.results import mending
from xttsbench.records.base import Location
from xttsbench.records.fix import Edit, Patch
from xttsbench.records.pipeline import Pipeline, Prediction, PythonFunction
from xttsbench.records.report import Finding, Oscillation, Report, Variant, WarmUp
from xttsbench.reporting.page import page_document, render_page
from xttsbench.reporting.sections.pipeline import call, described, manner

EVERYTHING = ("console, FULL", "report.md", "report.html")


def everywhere(report: Report, wanted: str, *, where: tuple[str, ...] = EVERYTHING) -> None:
    found = outputs(report)
    for name in where:
        assert wanted in found[name], (name, wanted)


def nowhere(report: Report, unwanted: str) -> None:
    for name, text in outputs(report).items():
        assert unwanted not in text, name


def finding(rule: str, **more: Any) -> Finding:
    given = {"severity": "warning", "limiting": False, "title": f"title of {rule}", "evidence": {}, "remedy": "Do."}
    return Finding(**{"rule": rule, "location": Location(), **given, **more})


@pytest.mark.parametrize(
    ("fields", "shown", "works"),
    [
        ({"parallelism": -1}, "map(calls AUTOTUNE)", "up to 2 calls at once, as AUTOTUNE chooses, on 2 processors"),
        (
            {"parallelism": -1, "chosen_parallelism": 2},
            "map(calls AUTOTUNE (chose 2))",
            "2 calls at once on 2 processors",
        ),
        ({"parallelism": 2}, "map(calls 2)", "2 calls at once on 2 processors"),
    ],
)
def test_calls_at_once_are_those_of_the_call(fields: dict[str, int], shown: str, works: str) -> None:
    own = op("ParallelMapDatasetV2", 3, cost_s=0.01, cpu_s=0.01, **fields)
    assert call(own) == shown
    assert manner(own, Pipeline(ops=(own,), cpus=2)) == f"it computes, {works}"


def test_what_tensorflow_makes_parallel_is_noted_beside_its_call() -> None:
    own = op("MapDataset", 3, cost_s=0.01, cpu_s=0.01)
    cells, _ = described(own, Pipeline(ops=(own,), cpus=2), "")
    assert cells[-1] == "run in parallel by TensorFlow"
    cells, _ = described(own, Pipeline(ops=(own,), cpus=2, autotune=False), "")
    assert cells[-1] == ""


def test_a_line_that_tells_calls_apart_stands_once() -> None:
    two = (*PIPELINE.ops, op("MapDataset", 5, "BatchDatasetV2/_4", cost_s=0.001))
    pipeline = PIPELINE.model_copy(update={"ops": two}).model_dump(mode="json")
    place = "MapDataset/_3 (/home/me/my_project/data.py:13)"
    summary = f"The step waits 90% of its time for data; the most costly op is {place}."
    verdict = starving_run().report.verdict.model_copy(update={"summary": summary})
    report = report_of(NO_GAIN, pipeline=pipeline, verdict=verdict)
    assert "the most costly op is map (" in outputs(report)["console, FULL"]
    nowhere(report, "(data.py:13) (")


def test_the_measured_fixes_stand_beside_the_original_with_the_time_of_the_answer() -> None:
    arm = Variant(id="as-given", role="baseline", config={}, blocks=1, status="ok", step_time_s=estimate(0.0342))
    report = changed(accepted(), arms=(arm,))
    everywhere(report, "original 34.2 ms", where=("console, FULL", "report.html"))
    page = outputs(report)["report.html"]
    _, _, table = page.partition("Configurations, each against the baseline")
    assert "a cache in memory after map 18.0 ms" in table
    assert "maps in parallel 3.80 ms" in table
    assert "The step time of a fix is that of the original divided by the speed-up" in table
    assert "divided by the speed-up" not in outputs(changed(accepted(), arms=(arm,), fixes=()))["report.html"]
    assert " proposed" in table


def test_an_accepted_fix_that_looks_faster_says_why_it_is_not_proposed() -> None:
    page = outputs(accepted())["report.html"]
    assert page.count("not proposed, as what is proposed is about as fast") == 1, "maps in parallel, at 9x"


def test_nothing_tried_is_nowhere_called_not_accepted() -> None:
    report = report_of(fix("any-order", "elements in any order", "not verified", why="they have to be asked for"))
    everywhere(report, "No fix was tried: the pipeline stays as it is.")
    nowhere(report, "No fix was accepted")
    everywhere(report_of(NO_GAIN), "No fix was accepted: the pipeline stays as it is.")


def test_the_next_command_comes_after_the_advice_on_the_page_as_well() -> None:
    found = outputs(report_of(cache("not verified", predicted_speedup=4.8, why="there was no time for it"), NO_GAIN))
    assert "Next: xttsbench optimize" in found["report.html"]
    assert "next xttsbench optimize" in found["console, SUMMARY"]


DIFF = """\
--- a/my_project/data.py
+++ b/my_project/data.py
@@ -9,7 +9,8 @@
 a
-b
-c
+b1
+c1
 d
@@ -30,3 +31,4 @@
 e
 f
+g
"""


def test_the_lines_to_edit_are_all_that_the_patch_touches() -> None:
    report = accepted()
    file = "/home/me/my_project/data.py"
    edits = tuple(Edit(fix="x", file=file, line=line, before="", after="") for line in (11, 31))
    patch = Patch(diff=DIFF, edits=edits, ran=True, equivalent=True)
    fixes = tuple(one.model_copy(update={"patch": patch}) if one.chosen else one for one in report.fixes)
    text = flat(screen(changed(report, fixes=fixes)))
    assert "your line my_project/data.py:10-11 and my_project/data.py:31 " in text


def test_the_speed_of_the_patched_source_is_no_second_gain_of_one_change() -> None:
    report = accepted()
    assert "The patched source, the same change, was run as well: the same data, and faster too." in flat(
        screen(report)
    )
    assert "1.850x" not in flat(screen(report)), "beside 1.900x, which its processes are part of"
    assert "as fast, timed by itself" in outputs(report)["report.html"]


def test_a_bound_is_not_printed_beside_a_measurement_that_may_exceed_it() -> None:
    bound = finding("input-bound", limiting=True, predicted_speedup=estimate(4.59), verified_speedup=None)
    everywhere(changed(report_of(NO_GAIN), findings=(bound,)), "at most 4.59x (4.45 to 4.73), if that time were gone")
    measured = bound.model_copy(update={"verified_speedup": estimate(5.23, 0.5)})
    report = changed(report_of(NO_GAIN), findings=(measured,))
    everywhere(report, "measured 5.23x (")
    nowhere(report, "4.59x")


def test_what_limits_first_is_said_with_its_own_line_and_no_other_op_is_the_headline() -> None:
    verdict = starving_run().report.verdict
    summary = "The step waits 90% of its time for data; the most costly op is MapDataset/_3."
    at = Location(file="/home/me/my_project/data.py", line=14, op="BatchDatasetV2/_4")
    slow = finding("stragglers", limiting=True, title="5 of 55 steps are far slower; they begin an epoch", location=at)
    report = report_of(NO_GAIN, verdict=changed(verdict, summary=summary), findings=(slow,))
    for where in ("console, SUMMARY", "report.html"):
        text = outputs(report)[where]
        assert "cause 5 of 55 steps are far slower; they begin an epoch. In every batch map takes 100.0 % of" in text
        assert "your line my_project/data.py:14" in text
        assert "the most costly op is" not in text.partition("Findings")[0], where


def test_where_there_is_no_gpu_no_device_but_the_cpu_is_spoken_of() -> None:
    why = "no accelerator: the processor is the device; --accelerator emulated:MS shows the input side of one"
    verdict = changed(starving_run().report.verdict, accelerator_utilization=None)
    report = report_of(
        NO_GAIN,
        verdict=verdict,
        accelerator={"kind": "real", "label": "real device"},
        unmeasured={"verdict.accelerator_utilization": why},
    )
    nowhere(report, "accelerator utilization")
    nowhere(report, "real device")
    gpus = report.environment | {"gpus": [{"name": "Some GPU"}]}
    everywhere(changed(report, environment=gpus), "real device", where=("report.html",))


def test_a_step_that_is_slower_through_xla_takes_longer_in_words() -> None:
    alone = Variant(id="step:xla", role="candidate", blocks=1, status="ok", effect=estimate(0.171, 0.1))
    verdict = changed(starving_run().report.verdict, bottleneck="compute")
    report = report_of(kind="diagnose", verdict=verdict, findings=(), arms=(alone,), accelerator={"kind": "real"})
    text = flat(screen(report))
    assert "With XLA the step alone takes 5.85 times as long." in text
    assert "larger batches" not in text


def test_data_that_differ_are_said_to_and_not_how_far_that_was_looked_at() -> None:
    page = outputs(report_of(cache("rejected", predicted_speedup=4.8, semantics=changed(OTHER, epochs=1, rows=9))))
    assert "OTHER DATA" in page["report.html"]
    assert "over 1 epoch" not in page["report.html"]


def test_a_drift_is_said_once_with_its_size() -> None:
    reason = "the step time fell by 24% of the median step over 556 steps in a row"
    warm = WarmUp(steps_measured=887, steps_cut=0, steady_state=False, certified=False, reason=reason)
    report = changed(report_of(NO_GAIN), warm_up=warm, findings=(finding("drift"),))
    everywhere(report, "no steady state: step times drift", where=("console, FULL", "report.html"))
    nowhere(report, "24%")


def test_one_rate_is_not_said_with_two_intervals() -> None:
    arm = Variant(
        id="as-given", role="baseline", config={}, blocks=1, status="ok", step_time_s=estimate(0.0342),
        throughput_per_s=estimate(467.0),
    )  # fmt: skip
    row = Prediction(name="as it is", batches_per_s=29.0, speedup=1.0, limited_by="map", measured_per_s=estimate(29.2))
    report = changed(accepted(), arms=(arm,), predictions=(row,))
    nowhere(report, "467 /s")
    nowhere(report, "29.2 /s")


def test_memory_that_runs_out_is_said_first() -> None:
    leak = finding("memory-leak", severity="critical", title="memory grows by 1.1 MB a step and does not stop")
    report = report_of(NO_GAIN)
    report = changed(report, findings=(leak, *report.findings))
    assert "warning memory grows by 1.1 MB a step" in flat(screen(report))
    assert "cause" in flat(screen(report)), "and is not the cause of the wait"


def test_an_undecided_verdict_has_no_probability_of_its_own() -> None:
    said = "No bottleneck can be named: input has a probability of 71% only."
    verdict = starving_run().report.verdict.model_copy(update={"bottleneck": "inconclusive", "summary": said})
    nowhere(report_of(verdict=verdict, findings=()), "This verdict has probability")


def test_uneven_steps_without_a_period_do_not_oscillate() -> None:
    report = report_of(NO_GAIN)
    report = changed(report, oscillation=Oscillation(std_over_mean=3.8, p_value=0.4), unmeasured={})
    everywhere(report, "no period at 1 %; steps are very uneven, std/mean 3.80", where=("console, FULL", "report.html"))


def test_a_steady_state_with_a_drift_says_so_and_steps_are_counted_once() -> None:
    warm = WarmUp(steps_measured=343, steps_cut=20, steady_state=True, certified=True)
    report = changed(report_of(NO_GAIN), warm_up=warm)
    everywhere(report, "363 steps measured, 20 of them cut as warm-up", where=("console, FULL", "report.html"))
    nowhere(report, "in which step times drift")
    drifting = changed(report, findings=(*report.findings, finding("drift")))
    said = "steady state reached, in which step times drift"
    everywhere(drifting, said, where=("console, FULL", "report.html"))


def test_the_costliest_python_function_is_the_cause() -> None:
    cheap = finding("python-function", limiting=True, title="cheap() waits", evidence={"cost_share": 0.3})
    costly = finding("python-function", limiting=True, title="costly() waits", evidence={"cost_share": 0.7})
    text = flat(screen(report_of(NO_GAIN, findings=(cheap, costly))))
    assert "cause costly() waits" in text
    assert "cheap() waits" not in text


def test_a_figure_that_is_missing_says_of_which_finding() -> None:
    reason = "no fix of its own was measured"
    report = changed(report_of(NO_GAIN), unmeasured={"findings.0.verified_speedup": reason})
    everywhere(report, "what mending cacheable gives", where=("console, FULL", "report.html"))


def test_rows_that_were_compared_are_of_those_of_an_epoch() -> None:
    assert SAME.checked == "checked 9 rows of the 90 that an epoch yields, over 2 epochs"
    timed = SAME.model_copy(update={"timed_batches": 2, "timed_of": 7})
    assert timed.checked.endswith(", and 2 of the 7 batches of the timed runs")


def test_a_larger_buffer_is_not_what_mends_one_that_is_too_large() -> None:
    assert mending("oversized-prefetch", (fix("buffer:16", "a larger last prefetch", "accepted"),)) is None


def test_a_part_that_is_known_to_be_nothing_is_not_called_unmeasured() -> None:
    path, none = (
        "verdict.attribution_s.transfer",
        "no device boundary to cross: the processor is the device, so it is 0",
    )
    nowhere(changed(report_of(NO_GAIN), unmeasured={path: none}), "transfer: not measured")
    unknown = changed(report_of(NO_GAIN), unmeasured={path: "it takes an experiment"})
    everywhere(unknown, "transfer: not measured: it takes an experiment", where=("console, FULL", "report.html"))


def test_the_first_interval_of_a_screen_says_what_brackets_hold_and_no_other_does() -> None:
    report = accepted()
    page = render_page(page_document(report), {})
    for text in (flat(screen(report)), re.sub(r"<[^>]*>", "", page)):
        assert text.count("(95 % interval: ") == 1
        assert text.index("(95 % interval: ") < re.search(r"\([\d.]+ to [\d.]+\)", text).start()


@pytest.mark.parametrize(
    ("outcome", "said"),
    [("accepted", "its fix"), ("rejected", "tried for it, and rejected"), ("not verified", "a fix to try")],
)
def test_a_fix_that_was_rejected_is_nobody_s_fix(outcome: str, said: str) -> None:
    found = finding("python-function", limiting=True, evidence={"helps": "cache@MapDataset/_3"})
    report = report_of(cache(outcome, predicted_speedup=2.0), findings=(found,))
    everywhere(report, f"{said} a cache in memory after map", where=("console, FULL", "report.html"))
    if outcome != "accepted":
        nowhere(report, "its fix")


def test_calls_that_do_not_add_up_to_the_time_of_their_op_say_of_what_both_are() -> None:
    timed = PythonFunction(token="pyfunc_0", kind="numpy_function", name="load", call_time_s=0.0131)
    pipeline = PIPELINE.model_copy(update={"python_functions": (timed,)}).model_dump(mode="json")
    shown = {"call_time_s": 0.0131, "op_cost_s_per_batch": 0.0182}
    report = report_of(NO_GAIN, pipeline=pipeline, findings=(finding("python-function", evidence=shown),))
    everywhere(report, "its calls may add up to another time", where=("console, FULL", "report.html"))
    everywhere(report, "time of one call, with the pipeline as it runs 13.1 ms", where=("console, FULL",))
    everywhere(report, "its time per batch, all calls added up 18.2 ms", where=("console, FULL",))


def test_a_screen_without_a_verdict_shows_what_can_be_mended_all_the_same() -> None:
    at = Location(file="/home/me/my_project/data.py", line=21, op="ShuffleDataset/_6")
    known = finding("cold-storage", severity="info", title="nothing to mend")
    shuffle = finding("shuffle-fill", title="shuffle holds 3.1 GiB", remedy="Shuffle names, not images.", location=at)
    leak = finding("py-function-leak", severity="critical", title="each run leaks", remedy="Make it once.")
    verdict = changed(starving_run().report.verdict, bottleneck="inconclusive", summary="Nothing can be named.")
    report = report_of(kind="diagnose", verdict=verdict, findings=(known, shuffle))
    text = flat(screen(report))
    assert "found besides shuffle holds 3.1 GiB (my_project/data.py:21" in text
    assert "Shuffle names, not images." in text
    assert len(screen(report).splitlines()) <= 25
    assert "found besides each run leaks. Make it once." in flat(
        screen(changed(report, findings=(known, shuffle, leak)))
    )
    assert "found besides" not in flat(screen(changed(report, findings=(known,))))


def test_what_a_proved_fix_explains_is_nowhere_said_to_be_explained_by_no_op() -> None:
    clause = "; no op explains it: by themselves all of them take 8.9 ms of the 37 ms; handing over takes the rest"
    verdict = changed(starving_run().report.verdict, summary=f"The step waits 72% of its time for data{clause}.")
    bound = finding("input-bound", limiting=True, title=f"72% of the step is waiting for data{clause}")
    proved = changed(accepted(), verdict=verdict, findings=(bound,))
    nowhere(proved, "no op explains it")
    assert "INPUT The step waits 72% of its time for data (this" in flat(screen(proved))
    assert "cause map takes 100.0 % of" in flat(screen(proved))
    open_one = report_of(NO_GAIN, verdict=verdict, findings=(bound,))
    everywhere(open_one, "no op explains it: by themselves all of them take 8.9 ms of the 37 ms")
    assert "map takes" not in flat(screen(open_one)), "which would explain it"


@pytest.mark.parametrize("mode", ["ok", "not run"])
def test_what_a_step_without_its_loss_would_give_is_not_called_an_estimate_of_a_fix(mode: str) -> None:
    eager = finding("eager-step", limiting=True, predicted_speedup=estimate(67.3), evidence={"graph_mode": mode})
    graph = fix("step:graph", "the step as one graph", "not verified", why="no time")
    report = changed(report_of(graph), findings=(eager,))
    measured = mode == "ok"
    everywhere(report, "estimated 67.3x (" if measured else "at most 67.3x (", where=("console, FULL",))
    assert ("estimated 67.3x" in outputs(report)["console, FULL"]) is measured


def test_of_two_bottlenecks_the_screen_says_which_comes_first() -> None:
    python, bound = (finding(one, limiting=True, location=Location(op="MapDataset/_3")) for one in "ab")
    eager = finding("eager-step", limiting=True, predicted_speedup=estimate(1.3))
    again = finding("retracing", limiting=True, predicted_speedup=estimate(1.3))

    def marks(*found: Finding) -> list[str]:
        shown = outputs(changed(report_of(NO_GAIN), findings=found))["console, FULL"]
        return re.findall(r"(?:FIRST |NEXT |SAME )?BOTTLENECK", shown)

    assert marks(python) == ["BOTTLENECK"]
    assert marks(python, bound, finding("c")) == ["BOTTLENECK", "SAME BOTTLENECK"]
    both = ["FIRST BOTTLENECK", "NEXT BOTTLENECK", "SAME BOTTLENECK", "SAME BOTTLENECK"]
    assert marks(python, eager, again, bound) == both


@pytest.mark.parametrize("part", ["compute", "dispatch"])
def test_a_step_that_is_to_be_changed_has_its_line(part: str) -> None:
    at = Location(file="/home/me/my_project/train.py", line=135)
    of_input = fix("gather", "rows at once", "not verified", places=(Location(file="/home/me/data.py", line=4),))
    xla = fix("step:xla", "the step through XLA", "not verified", why="no time", places=(at,))
    verdict = changed(starving_run().report.verdict, bottleneck=part)
    report = changed(report_of(of_input, xla), verdict=verdict, findings=())
    everywhere(report, "your line my_project/train.py:135, the step", where=("console, SUMMARY", "report.html"))
    waits = changed(report, verdict=changed(verdict, bottleneck="host"))
    nowhere(waits, "train.py:135, the step")


def test_a_long_text_ends_with_a_sentence() -> None:
    sentence = "It waits for a file and leaves the processor idle while it does so, whatever else there is to do. "
    long = finding("slow", limiting=True, remedy=sentence * 9)
    text = screen(changed(report_of(kind="diagnose"), findings=(long,)))
    assert "whatever else there is to do. …" in flat(text)
    assert flat(text).count("It waits for a file") < 9
    endless = changed(report_of(kind="diagnose"), findings=(changed(long, remedy="so " * 400),))
    assert "so so…" in flat(screen(endless)), "a text without an end is cut all the same"


def test_of_fixes_that_were_not_tried_one_that_may_help_is_named_and_the_next_command_has_the_time_for_it() -> None:
    little = fix("gather", "rows at once", "not verified", predicted_speedup=1.0, why="estimated 1.00 times as fast")
    xla = fix("step:xla", "the step through XLA", "not verified", why="there was no time for it within the budget")
    verdict = changed(starving_run().report.verdict, bottleneck="compute")
    text = flat(screen(changed(report_of(little, xla), verdict=verdict, findings=())))
    assert "no fix was tried; the step through XLA: there was no time for it" in text
    assert "next xttsbench optimize my_project/data.py:make --accelerator emulated:15 --budget 600 " in text
    failed = changed(xla, why="run that way the step alone raised ValueError: no kernel")
    text = flat(screen(changed(report_of(little, failed), verdict=verdict, findings=())))
    assert "the step through XLA: run that way the step alone raised ValueError: no kernel" in text
    assert "next xttsbench explain compute" in text


def test_random_elements_are_nowhere_said_to_be_the_same() -> None:
    drawn = SAME.model_copy(update={"how": "distribution"})
    report = report_of(cache("accepted", verified_speedup=estimate(1.9), semantics=drawn))
    report = changed(report, findings=(changed(report.findings[0], same_data="proved"),))
    everywhere(report, "random elements, drawn as before", where=("console, FULL", "report.html"))
    nowhere(report, "same elements as before")
