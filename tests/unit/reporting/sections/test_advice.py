"""The screen never contradicts itself: each situation of a fix, from records, and all that is said of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.conftest import changed, estimate, fix, starving_run
from tests.unit.reporting.sections.test_summary import STORED, every_report, flat, optimized, screen, stored  # noqa: F401
from tests.unit.reporting.test_agreement import outputs
from xttsbench.diagnosis.verdict import unmeasured_verdict
from xttsbench.records.base import Location
from xttsbench.records.fix import Edit, FixResult, Optimized, Patch, Semantics
from xttsbench.records.pipeline import GeneratorParts, Pipeline, PipelineOp, PythonFunction, SlowLine
from xttsbench.records.report import Disturbance, Finding, Report
from xttsbench.reporting.document import View
from xttsbench.reporting.sections import compares

DRAWS = "A cache would repeat the first pass: _pitch() at data.py:18 draws random numbers; put that behind the cache."
UNPROVED = Semantics(equivalent=None, how="unknown", sentence=DRAWS)
OTHER = Semantics(
    equivalent=False, how="different", sentence="The data differ: first at epoch 2, element 1, sample 1, audio."
)
SAME = Semantics(equivalent=True, how="identical", sentence="The same.", epochs=2, rows=9, rows_of=90)


def op(kind: str, number: int, *inputs: str, **more: Any) -> PipelineOp:
    at = Location(file="/home/me/my_project/data.py", line=10 + number, op=f"{kind}/_{number}")
    return PipelineOp(name=f"{kind}/_{number}", op=kind, inputs=inputs, location=at, **more)


PIPELINE = Pipeline(
    ops=(
        op("RangeDataset", 1, cardinality=90),
        op("ShuffleDatasetV3", 2, "RangeDataset/_1", random=True, cardinality=90, buffer_size=90),
        op("MapDataset", 3, "ShuffleDatasetV3/_2", cardinality=90, cost_s=0.017),
        op("BatchDatasetV2", 4, "MapDataset/_3", cardinality=10, batch_size=9),
    )
)


def cache(outcome: str, **more: Any) -> FixResult:
    return fix("cache@MapDataset/_3", "a cache in memory after MapDataset/_3", outcome, **more)


def report_of(*fixes: FixResult, kind: str = "optimize", **more: Any) -> Report:
    """A run of ``optimize`` whose cause is a costly map, with these results of its fixes."""
    found = Finding(
        rule="cacheable",
        severity="warning",
        limiting=True,
        title="MapDataset/_3 makes its 90 elements anew each time through, 20 MiB if they were kept",
        location=Location(file="/home/me/my_project/data.py", line=13, op="MapDataset/_3"),
        evidence={},
        remedy="Keep it in memory: .cache() after this op.",
        predicted_speedup=None,
        verified_speedup=None,
        same_data="not_proved",
        patch=None,
    )
    command = f"xttsbench {kind} my_project/data.py:make --accelerator emulated:15 --out reports/one"
    given = {"kind": kind, "command": command, "fixes": fixes, "findings": (found,), "arms": (), "warnings": ()}
    target = {"name": "my_project/data.py:make", "kind": "dataset"}
    pipeline = PIPELINE.model_dump(mode="json")
    return changed(starving_run().report, **given | {"target": target, "pipeline": pipeline} | more)


WHY = "no faster by 1%: 1.01 times as fast"
NO_GAIN = fix("parallel-map", "maps in parallel", "rejected", why=WHY, verified_speedup=estimate(1.01), semantics=SAME)
ONCE = "faster: 5.21 times as fast (2.37 to 11.43, 1 round): 1 process, and it takes 2"
OPEN = "undecided: 1.30 times as fast (0.80 to 2.10, 3 rounds)"
SITUATIONS = {
    "not proved": report_of(cache("rejected", predicted_speedup=4.8, semantics=UNPROVED)),
    "other data": report_of(cache("rejected", verified_speedup=estimate(4.8), semantics=OTHER)),
    "no gain": report_of(NO_GAIN),
    "both": report_of(cache("rejected", predicted_speedup=4.8, semantics=UNPROVED), NO_GAIN),
    "one process": report_of(
        cache("not verified", verified_speedup=estimate(5.21), decision="faster", blocks=1, why=ONCE)
    ),
    "undecided": report_of(
        cache("not verified", verified_speedup=estimate(1.3), decision="undecided", rounds=3, why=OPEN)
    ),
    "no time": report_of(NO_GAIN, cache("not verified", predicted_speedup=4.8, why="there was no time for it")),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_where_nothing_was_accepted_nothing_is_promised_anywhere(name: str) -> None:
    report = SITUATIONS[name]
    text = flat(screen(report))
    assert "after the fix as now: no fix was accepted" in text
    assert ("Keep it in memory: .cache() after this op." in text) is (name == "no gain")  # where no cache was tried
    assert "patch -p1" not in text
    again = "xttsbench optimize my_project/data.py:make --accelerator emulated:15 --budget 600"
    left = name in ("no time", "one process", "undecided")  # else the same command would end as this one did
    assert f"next {again if left else 'xttsbench explain cacheable'} report" in text
    for where, said in outputs(report).items():
        assert not re.search(r"(after the|with a) fix \d", said), where
        assert "MapDataset" not in said or where not in ("console, SUMMARY", "one line"), where


def test_what_would_help_and_what_stands_in_its_way_are_one_sentence() -> None:
    for name in ("not proved", "both"):
        text = flat(screen(SITUATIONS[name]))
        assert (
            "what to do A cache in memory after map (and shuffle moved behind it) would give 4.80x, from the second "
            "epoch on (estimated), but the data are not proved to stay the same: a cache would repeat the first pass: "
            "_pitch() at my_project/data.py:18 "
            "draws random numbers; put that behind the cache." in text
        )
        assert "a cache in memory after map 4.80x not proved estimated, rejected" in text


def test_other_data_are_those_that_were_seen() -> None:
    for where, text in outputs(SITUATIONS["not proved"]).items():
        assert "CHANGES THE DATA" not in text, where
        assert "OTHER DATA" not in text, where
        assert not re.search(r"\bNO\b", text), where
    text = flat(screen(SITUATIONS["other data"]))
    assert "but gives other data: the data differ: first at epoch 2, element 1, sample 1, audio." in text
    assert re.search(r"a cache in memory after map 4.80x \S+ to \S+ NO measured, rejected", text)


def test_where_no_fix_gains_anything_the_best_that_was_measured_is_said() -> None:
    text = flat(screen(SITUATIONS["no gain"]))
    assert "what to do Maps in parallel was tried: no faster by 1%: 1.01 times as fast." in text
    assert "yes, bit for bit tried, no gain" in text


def test_what_looks_faster_and_is_not_proved_is_not_called_without_a_gain() -> None:
    text = flat(screen(SITUATIONS["undecided"]))
    assert (
        "A cache in memory after map (and shuffle moved behind it) was tried and is not decided: 1.300x (1.261 to "
        "1.339) in 3 rounds, from the second epoch on. More time would decide it." in text
    )
    assert "tried, undecided" in text
    text = flat(screen(SITUATIONS["one process"]))
    assert "gave 5.21x (5.05 to 5.37) in one process, from the second epoch on; to be sure takes a second one" in text
    assert "tried, 1 of 2 processes" in text


def accepted() -> Report:
    patch = Patch(
        diff="--- a/my_project/data.py\n+++ b/my_project/data.py\n",
        edits=(Edit(fix="cache", file="/home/me/my_project/data.py", line=12, before="x", after="y"),),
        ran=True,
        equivalent=True,
        verified_speedup=estimate(1.85),
    )
    other = fix("parallel-map", "maps in parallel", "accepted", verified_speedup=estimate(9.0), semantics=SAME)
    own = cache("accepted", verified_speedup=estimate(1.9), semantics=SAME, chosen=True, patch=patch)
    return report_of(other, own)


def test_a_patch_that_was_not_run_is_said_to_be_such() -> None:
    report = accepted()
    (chosen,) = (one for one in report.fixes if one.patch is not None)
    for why, said in ((None, "was not run."), ("it needs servers", "was not run: it needs servers.")):
        update = {"ran": False, "equivalent": None, "verified_speedup": None, "why_not": why}
        patch = chosen.patch.model_copy(update=update)
        fixes = tuple(one if one is not chosen else one.model_copy(update={"patch": patch}) for one in report.fixes)
        assert f"the patched source itself {said}" in flat(screen(report.model_copy(update={"fixes": fixes})))


def test_a_fix_that_no_edit_can_write_says_why() -> None:
    report = accepted()
    why = "the line makes more behind it, so no .cache() can stand there; apply the saved plan."
    patch = Patch(unpatched={"cache": why})
    fixes = tuple(one if one.patch is None else one.model_copy(update={"patch": patch}) for one in report.fixes)
    told = {"identity": None, "speedup": None, "equivalent": True, "data": "", "proven": True}
    optimized = Optimized(run="reports/one", target="my_project.data:make", fixes=("cache",), **told)
    text = flat(screen(report.model_copy(update={"fixes": fixes, "optimized": optimized})))
    assert "by hand" not in text
    assert "what to do Load the plan, as the next command does: a cache in memory after map" in text
    assert f"xttsbench could not write it into the source: {why[:40]}" in text


def test_what_to_do_the_time_after_it_and_the_first_row_are_of_one_fix() -> None:
    lines = screen(accepted()).splitlines()
    text = flat("\n".join(lines))
    assert "after the fix 18.0 ms" in text
    assert "your line my_project/data.py:12" in text
    assert (
        "what to do Apply reports/one/patch.diff, in the directory of this command: a cache in memory after map (and "
        "shuffle moved behind it). The patched source, the same change, was run as well: the same data, and faster "
        in text
    )
    first = lines[next(at for at, line in enumerate(lines) if "what to change" in line) + 1]
    assert first.split()[:6] == ["a", "cache", "in", "memory", "after", "map"]
    assert "next patch -p1 < reports/one/patch.diff" in text


def test_what_is_hoped_for_is_of_one_fix_too() -> None:
    text = flat(screen(report_of(cache("not verified", predicted_speedup=2.4), kind="diagnose")))
    assert "with a fix 14.2 ms, 2.40x as fast, estimated by a model of the pipeline, from the second epoch on" in text
    assert "after the fix" not in text
    assert (
        "what to do Try it, and have it proved with the next command: a cache in memory after map (and shuffle moved "
        "behind it)." in text
    )


def test_the_next_command_proves_a_fix_only_where_it_does(every_report: dict[str, Report]) -> None:  # noqa: F811
    hoped = report_of(cache("not verified", predicted_speedup=2.4), kind="diagnose")
    bundled = hoped.model_copy(update={"command": "xttsbench diagnose", "target": hoped.target | {"name": "bundled"}})
    text = flat(screen(bundled))
    assert "what to do Try it: a cache in memory after map (and shuffle moved behind it)." in text
    for name, report in {**every_report, **SITUATIONS, "hoped": hoped, "bundled": bundled}.items():
        text = flat(screen(report))
        assert ("proved with the next command" in text) <= ("next xttsbench optimize" in text), name


def test_a_step_that_learns_something_else_is_not_said_to_get_other_data() -> None:
    """Its elements are the same: what differs is what the step returns."""
    said = "51 elements of 3 epochs are the same, bit for bit; the changed step returns other losses"
    other = Semantics(equivalent=False, how="different", sentence=said)
    xla = fix("step:xla", "the step through XLA", "rejected", why="it changes what is learnt", semantics=other)
    text = flat(screen(report_of(xla, findings=())))
    assert "what to do The step through XLA may help, but the changed step returns other losses" in text
    assert "gives other data" not in text
    assert re.search(r"the step through XLA not measured NO: other losses", text)


def test_rounds_that_would_decide_are_told_with_what_the_next_command_does() -> None:
    near = "undecided: 1.02 times as fast (0.80 to 1.30, 3 rounds): about 20 more rounds like these would (40 s)"
    text = flat(screen(report_of(cache("not verified", verified_speedup=estimate(1.02), rounds=3, why=near))))
    assert "is not decided: 1.020x (" in text
    assert "About 20 more rounds would decide it, and the next command has the time for them." in text
    assert "next xttsbench optimize my_project/data.py:make --accelerator emulated:15 --budget 420" in text


def test_no_word_of_a_screen_is_cut_off(every_report: dict[str, Report]) -> None:  # noqa: F811
    for name, report in {**every_report, **SITUATIONS, "accepted": accepted()}.items():
        if name != "overflowing" and not compares(report):
            assert not re.search(r"…(?!/)", screen(report)), name


def test_the_legend_of_the_bar_has_every_part_that_is_drawn(every_report: dict[str, Report]) -> None:  # noqa: F811
    for name, report in every_report.items():
        lines = screen(report).splitlines()
        bars = [at for at, line in enumerate(lines) if re.fullmatch(r"  [█▓▒░#=>%]{60,}", line)]
        for at in bars:
            assert set(lines[at].strip()) <= set("".join(lines[at + 1 : at + 3])), name


def test_a_line_is_named_once() -> None:
    text = flat(screen(stored(next(path for path in STORED if path.parent.name == "before"))))
    assert sorted(re.findall(r"data\.py:\d+", text)) == ["data.py:15"], "the call, not the function in it"
    assert "the most costly op" not in text, "the cause names the op"


def test_the_bundled_workload_is_one_sentence_with_what_its_configurations_are() -> None:
    report = stored(Path("reports/reference/bundled-workload/report.json"))
    text = flat(screen(report))
    assert (
        "Use packed (features from one packed file) in place of numpy_wav (WAV files, through NumPy): 1.301x (1.177 to "
        "1.439) as fast on this machine, and 3.88x (3.61 to 4.17) as fast behind an EMULATED accelerator, 10 ms a "
        "step; the batches are the same, which was checked." in text
    )
    assert "what to change" not in text
    assert "next xttsbench train tiny --set loader=packed" in text


def test_notes_are_not_on_the_screen() -> None:
    report = changed(optimized(), warnings=(), notes=("with cache@MapDataset/_3: the cache was filled before",))
    assert "filled before" not in screen(report)
    assert "filled before" in screen(report, view=View.DETAILED)
    for name in ("report.md", "report.html"):
        assert "filled before" in outputs(report)[name]


def test_the_log_of_what_the_target_printed_is_named() -> None:
    report = optimized()
    assert "reports/one/output.log" not in screen(report)
    named = changed(report, target={**report.target, "output": "output.log"})
    assert "output reports/one/output.log has what the target printed" in flat(screen(named))


def test_a_machine_that_was_quiet_is_not_called_disturbed() -> None:
    quiet = Disturbance(
        steal_share=0.0, foreign_share=0.0, throttled_share=None, rounds=7, invalid_rounds=1, sentence="quiet"
    )
    assert "disturbed" not in screen(changed(optimized(), disturbance=quiet))


def with_findings(report: Report, *rules: tuple[str, str], **more: Any) -> Report:
    (first,) = report.findings
    found = (first.model_copy(update={"rule": rule, "title": title}) for rule, title in rules)
    return changed(report, findings=tuple(found), **more)


WORKS = (
    "map takes 100.0 % of the time of all ops: it computes, 2 calls at once on 2 processors (TensorFlow runs it in "
    "parallel by itself)"
)
LOADS = (
    "python-function",
    "load() runs as numpy_function in MapDataset/_3, one call after another: it waits, 9 ms a call",
)


@pytest.mark.parametrize(
    ("rules", "cause"),
    [
        ([LOADS], "load() runs as numpy_function in map, one call after another: it waits, 9 ms a call"),
        (
            [("cacheable", "BatchDatasetV2/_4 makes its 10 elements anew each time through"), LOADS],
            "load() runs as numpy_function in map, one call after another: it waits, 9 ms a call; batch makes its 10 "
            "elements anew each time through",
        ),
        (
            [("cacheable", "BatchDatasetV2/_4 makes its 10 elements anew each time through")],
            f"{WORKS}; batch makes its 10 elements anew each time through",
        ),
        (
            [("stragglers", "2 of 65 steps are far slower")],  # which is first, and what the op adds
            f"2 of 65 steps are far slower. In every batch {WORKS}",
        ),
        (
            [("sequential-map", "MapDataset/_3 maps one element at a time"), LOADS],
            LOADS[1].replace("MapDataset/_3", "map"),
        ),
        (
            [("input-bound", "93% of the step is waiting for data; MapDataset/_3 sets the pace")],
            WORKS,
        ),
    ],
)
def test_the_cause_says_how_what_takes_the_time_works(rules: list[tuple[str, str]], cause: str) -> None:
    costly = op("MapDataset", 3, "ShuffleDatasetV3/_2", cardinality=90, cost_s=0.017, cpu_s=0.017)
    pipeline = PIPELINE.model_copy(update={"ops": (*PIPELINE.ops[:2], costly, PIPELINE.ops[3]), "cpus": 2})
    report = with_findings(report_of(NO_GAIN, pipeline=pipeline.model_dump(mode="json")), *rules)
    assert f"cause {cause} your line" in flat(screen(report))
    one_at_a_time = pipeline.model_copy(update={"autotune": False})
    report = changed(report, pipeline=one_at_a_time.model_dump(mode="json"))
    assert ("it computes, one element after another" in flat(screen(report))) is ("it computes, 2 calls" in cause)


def test_an_undecided_verdict_says_how_the_likely_cause_works() -> None:
    verdict = starving_run().report.verdict.model_copy(update={"bottleneck": "inconclusive", "summary": "Undecided."})
    text = flat(screen(report_of(verdict=verdict, findings=())))
    assert "likely cause map takes 100.0 % of the time of all ops your line" in text
    assert "your line my_project/data.py:13, in map" in text
    hoped = flat(screen(report_of(cache("not verified", predicted_speedup=2.4), kind="diagnose", verdict=verdict)))
    assert "Have it decided with the next command. Then worth a try: a cache in memory after map" in hoped
    accepted_ = changed(accepted(), verdict=verdict)
    assert "A fix was proved all the same; likely: waiting for input" in flat(screen(accepted_))


def test_the_line_of_a_generator_is_its_loop_and_a_library_s_is_not_the_user_s() -> None:
    at = Location(file="/home/me/my_project/data.py", line=30, op="MapDataset/_3")
    cut = GeneratorParts(file="/home/me/my_project/data.py", line=17)
    function = PythonFunction(token="t", kind="generator", name="made", location=at, parts=cut)
    pipeline = PIPELINE.model_copy(update={"python_functions": (function,)}).model_dump(mode="json")
    report = with_findings(report_of(NO_GAIN, pipeline=pipeline), LOADS)
    found = report.findings[0].model_copy(update={"location": at})
    text = flat(screen(changed(report, findings=(found,))))
    assert "your line my_project/data.py:17, the generator's loop, read at my_project/data.py:30" in text
    most = SlowLine(
        location=Location(file="/home/me/my_project/boxes.py", line=45), text="f(x)", share=0.7, ops_share=0.0
    )
    whole = {"python_functions": (function.model_copy(update={"parts": None, "slow_line": most}),)}
    pipeline = PIPELINE.model_copy(update=whole).model_dump(mode="json")
    text = flat(screen(changed(report, findings=(found,), pipeline=pipeline)))
    assert "your line my_project/boxes.py:45, in made() of my_project/data.py:30" in text
    for file in ("/env/lib/python3.11/site-packages/keras/adapter.py", "xttsbench/xtts/loaders/loader.py"):
        library = Location(file=file, line=280, op="MapDataset/_3")
        text = flat(screen(changed(report, findings=(found.model_copy(update={"location": library}),))))
        assert "your line my_project/data.py:13, in map" in text


def test_the_gain_of_a_cache_says_everywhere_when_it_comes() -> None:
    why = "likely faster, from the second epoch on; with the epoch that fills the cache, 2.78 times over 10 epochs"
    tried = cache(
        "not verified", verified_speedup=estimate(3.4, 0.8), decision="likely_faster", why=why, semantics=SAME
    )
    first = "from the second epoch on (with the epoch that fills the cache, 2.78 times over 10 epochs)"
    assert first in flat(screen(report_of(tried)))
    taken = changed(accepted(), fixes=(tried.model_copy(update={"outcome": "accepted", "chosen": True}),))
    assert first in flat(screen(taken))
    both = report_of(
        tried, cache("not verified", predicted_speedup=3.0).model_copy(update={"name": "cache@BatchDatasetV2/_4"})
    )
    assert "a cache in memory after map (from epoch 2 on)" in outputs(both)["console, SUMMARY"]
    page = outputs(report_of(cache("not verified", predicted_speedup=2.4), kind="diagnose"))["report.html"]
    assert "gain, estimated only 2.40x, from the second epoch on" in page


def test_a_script_that_ended_early_still_shows_the_fix_that_was_accepted() -> None:
    verdict = unmeasured_verdict("Nothing could be concluded: only 2 step(s) ended, which are warm-up.")
    text = flat(screen(changed(accepted(), verdict=verdict, findings=())))
    assert "with the fix 1.900x (95 % interval: 1.843 to 1.957) as fast, measured" in text
    assert "patch -p1 < reports/one/patch.diff" in text


def test_a_wait_that_no_change_is_known_for_has_a_best_case_and_no_fix() -> None:
    report = starving_run().report
    general = changed(report.findings[0], rule="input-bound", verified_speedup=None, limiting=True)
    text = flat(screen(changed(report, findings=(general,), fixes=())))
    assert "with a fix" not in text
    assert re.search(r"at best \S+ \S+ without the \S+ % of input", text)
