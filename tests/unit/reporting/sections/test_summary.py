"""The screen: what it says, and that it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.unit.reporting.conftest import Run, changed, estimate, fix, starving_run
from xttsbench.records.base import Estimate, Location
from xttsbench.records.fix import Optimized, Patch, Semantics
from xttsbench.records.report import Attribution, Disturbance, Finding, Report
from xttsbench.records.training import CheckpointEntry, Ended, Training, WatchedInterval
from xttsbench.reporting import console, markdown
from xttsbench.reporting.console import MOST_LINES
from xttsbench.reporting.document import View
from xttsbench.reporting.sections import answer, compares
from xttsbench.reporting.sections.report import report_document
from xttsbench.reporting.sections.summary import headline, refused, training_facts
from xttsbench.reporting.sections.summary import parity_sentences as sentences

SAME = {"same": True, "tolerance": 1e-4, "batches": 4, "baseline": "numpy_wav", "arms": ["tf_wav", "packed"]}


def said(run, parity: dict[str, Any] | None) -> tuple[str, ...]:
    return sentences(changed(run.report, parity=parity))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "All 3 loaders give the same batches: 4 batches compared, mels within 1e-4."),
        ({"batches": 1}, "All 3 loaders give the same batches: 1 batch compared, mels within 1e-4."),
        (
            {"arms": ["numpy_wav", "tf_wav"], "tolerance": 0.005},
            "All 2 loaders give the same batches: 4 batches compared, mels within 5e-3.",
        ),
        (
            {"baseline": "x", "arms": ["y"]},
            "All 2 configurations give the same batches: 4 batches compared, numbers within 1e-4.",
        ),
    ],
)
def test_the_same_batches(comparing, changes, sentence: str) -> None:
    assert said(comparing, SAME | changes) == (sentence,)


def test_a_refusal_names_the_arm_the_place_and_who_is_left(comparing) -> None:
    assert sentences(comparing.report) == (
        "REFUSED: tf_fast does not give the batches of numpy_wav: batch 0, mel: row 3 (clip 12), frame 5, band 7: -1.2 "
        "against -1.3. packed and tf_wav do: 8 batches compared, mels within 1e-4.",
        "Not known of ram (its data could not be read: out of memory).",
    )


def test_two_refusals_have_two_places(comparing) -> None:
    found = said(comparing, SAME | {"same": False, "differences": {"tf_wav": "batch 0, id: 1", "packed": "batch 2"}})
    assert found == (
        "REFUSED: tf_wav and packed do not give the batches of numpy_wav: tf_wav: batch 0, id: 1; packed: batch 2.",
    )


def test_a_refusal_without_arms_is_of_all(comparing) -> None:
    found = said(comparing, SAME | {"same": False, "difference": "batch 1, text: shape [8, 3] against [8, 4]"})
    assert found == ("REFUSED: the loaders do not give the same batches: batch 1, text: shape [8, 3] against [8, 4].",)
    (bare,) = said(comparing, {"same": False})
    assert bare == "REFUSED: the configurations do not give the same batches: where was not recorded."


def test_what_was_not_compared_says_why(comparing) -> None:
    why = "it differs from the baseline only in its step"
    assert said(comparing, SAME | {"skipped": {"xla": why, "eager": why}})[1:] == (
        f"Not compared: xla and eager ({why}).",
    )


def test_nothing_compared_nothing_said(comparing) -> None:
    assert said(comparing, None) == ()
    assert not refused(changed(comparing.report, parity=None))


def test_the_headline_is_the_first_sentence_and_a_refusal_stands_right_below(comparing) -> None:
    head = headline(comparing.report)
    assert head.sentence == comparing.report.comparison[0]
    assert head.below[0].text.startswith("REFUSED: tf_fast")
    assert [said.tone for said in head.below].count("refused") == 1
    assert head.below[-1].text == comparing.report.comparison[1]
    same = headline(changed(comparing.report, parity=SAME))
    assert same.below[0].text == comparing.report.comparison[1]
    assert same.below[1].text.startswith("All 3 loaders give the same batches")


def test_a_diagnosis_keeps_its_bottleneck_whatever_it_compared(starving, comparing) -> None:
    assert compares(comparing.report)
    assert not compares(starving.report)
    assert not compares(changed(comparing.report, kind="diagnose"))
    without = headline(changed(comparing.report, comparison=()))
    assert without.sentence == "Arms were compared."
    (sure,) = headline(starving.report).below
    assert sure.text == "This verdict has probability over 99 %, given what was measured"


STORED = sorted(Path("reports/reference").glob("**/report.json"))


def optimized() -> Report:
    """A run that proposes a fix with its patch, and has tried others."""
    report = starving_run().report
    checked = {"elements": 64, "epochs": 2, "rows": 334, "rows_of": 6000, "timed_batches": 78, "timed_of": 517}
    same = Semantics(equivalent=True, how="identical", sentence="The same elements.", **checked)
    other = Semantics(equivalent=False, how="different", sentence="Element 3 differs.", elements=64, epochs=2)
    fixes = (
        fix(
            "parallel-map:2",
            "maps in parallel (2 calls) after Map/_2",
            "accepted",
            "faster",
            predicted_speedup=2.02,
            verified_speedup=estimate(1.94, 0.02),
            semantics=same,
            chosen=True,
            patch=Patch(diff="--- a/x.py\n+++ b/x.py\n"),
        ),
        fix(
            "any-order",
            "elements in any order",
            "rejected",
            "it changes the data",
            predicted_speedup=1.3,
            verified_speedup=estimate(1.2),
            semantics=other,
        ),
        fix("cache", "a cache in memory", "not verified", "its first pass takes 300 s", predicted_speedup=2.11),
        fix("prefetch", "a prefetch", "not verified", "useless"),
    )
    quiet = Disturbance(
        steal_share=0.0, foreign_share=0.01, throttled_share=None, rounds=4, invalid_rounds=0, sentence="quiet"
    )
    return changed(report, fixes=fixes, disturbance=quiet)


def undecided() -> Report:
    """A run beside neighbours, of which nothing can be named."""
    report = starving_run().report
    verdict = changed(
        report.verdict,
        bottleneck="inconclusive",
        confidence=0.676,
        summary="No bottleneck can be named: others used 39% of the processor; measure again later.",
    )
    return changed(report, verdict=verdict, findings=(), arms=())


def near() -> Report:
    """One whose loss lies about the threshold."""
    said = "At the threshold: CPU contention 9% (7% to 12%) of the step, worth at most 1.14 times."
    report = optimized()
    verdict = changed(report.verdict, bottleneck="compute", confidence=0.676, at_threshold=True, summary=said)
    return changed(report, verdict=verdict, fixes=(), arms=())


def noisy() -> Report:
    """One whose verdict neighbours hid."""
    said = "others used 42 % of the processor throughout; 11 of 16 rounds were disturbed and do not count"
    taken = Disturbance(
        steal_share=0.0, foreign_share=0.42, throttled_share=None, rounds=16, invalid_rounds=11, sentence=said
    )
    return changed(undecided(), disturbance=taken)


def overflowing() -> Report:
    """Everything at once, each of it too long."""
    long = "words that go on and on, " * 40
    report = optimized()
    findings = tuple(
        changed(one, title=long, remedy=long, location=Location(file=f"/{'d/' * 90}x.py", line=1))
        for one in report.findings
    )
    fixes = tuple(changed(one, what=long, why=long, chosen=False) for one in report.fixes)
    return changed(
        report,
        command=f"xttsbench diagnose {long}",
        verdict=changed(report.verdict, summary=long),
        findings=findings,
        fixes=fixes * 4,
        warnings=(long, long, long),
        disturbance=changed(report.disturbance, sentence=long) if report.disturbance else None,
        environment={"cpu": {"allowed_cpus": 2.0}, "gpus": [{"name": long}]},
    )


def stored(path: Path) -> Report:
    return Report.model_validate_json(path.read_text())


@pytest.fixture(scope="session")
def every_report(every_run: dict[str, Run]) -> dict[str, Report]:
    made = {"optimized": optimized(), "undecided": undecided(), "noisy": noisy(), "near": near()}
    made |= {"overflowing": overflowing()}
    return {name: run.report for name, run in every_run.items()} | made | {str(path): stored(path) for path in STORED}


def screen(report: Report, *, width: int = 100, view: View = View.SUMMARY, place: str = "reports/one") -> str:
    return console.render(report_document(report, place), width=width, color=False, view=view)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_it_fits_25_lines_of_100_columns_whatever_a_report_holds(every_report: dict[str, Report]) -> None:
    for name, report in every_report.items():
        lines = screen(report).splitlines()
        assert len(lines) <= MOST_LINES, name
        assert max(map(cell_len, lines)) <= 100, name


@pytest.mark.parametrize("view", View)
def test_a_verdict_at_the_threshold_says_so_and_gives_its_word_no_probability(view: View) -> None:
    document = report_document(near(), "reports/one")
    for text in (screen(near(), view=view), markdown.render(document)):
        assert near().verdict.summary in flat(text)
        assert "68 %" not in text


def test_the_verdict_is_said_first_and_the_report_last(every_report: dict[str, Report]) -> None:
    for name, report in every_report.items():
        lines = screen(report).splitlines()
        said = report_document(report).summary[0]
        assert flat(said.word.upper() or said.sentence)[:30] in flat(" ".join(lines[1:3])), name
        assert lines[-1].split() == ["report", "reports/one/report.html"], name


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (Location(file="my_project/data.py", line=42, op="Map/_2"), "my_project/data.py:42, in map"),
        (Location(file="my_project/data.py", line=8, op="Map/_2"), "my_project/data.py:8, called by map at data.py:42"),
        (Location(file="my_project/data.py", line=8, op="Prefetch/_3"), "my_project/data.py:8, in prefetch"),
        (Location(file="my_project/step.py", line=8), "my_project/step.py:8"),
        (Location(file="my_project/step.py"), "my_project/step.py"),
    ],
)
def test_a_line_stands_with_the_call_that_it_is_in_or_that_calls_it(at: Location, said: str) -> None:
    report = starving_run().report
    found = changed(report.findings[0], location=at)
    assert answer.line_of(found, report).replace("at my_project/", "at ") == said


def test_the_gain_is_that_of_the_patch_though_another_fix_is_faster_once_its_cache_is_full() -> None:
    report = optimized()
    faster = changed(
        report.fixes[0],
        name="cache@Map/_2",
        fixes=("cache@Map/_2",),
        what="a cache in memory after Map/_2",
        verified_speedup=estimate(9.0, 0.02),
        chosen=False,
        patch=None,
    )
    both = changed(report, fixes=(faster, *report.fixes))
    assert answer.gain(both) == answer.gain(report)
    assert [one.gain.estimate for one in answer.options(both)[:2] if one.gain] == [1.94, 9.0]


def test_the_time_after_a_fix_is_as_uncertain_as_the_time_now_and_the_gain_together() -> None:
    now, bare = Estimate(estimate=0.1, low=0.09, high=0.1 / 0.9), changed(optimized(), accelerator={"kind": "real"})
    assert answer.after(now, Estimate(estimate=2.0, low=1.999, high=2.001), bare) == "50.0 ms (45.0 to 55.6)"
    assert answer.after(now, Estimate(estimate=2.0, low=1.8, high=2 / 0.9), bare) == "50.0 ms (43.1 to 58.0)"
    assert answer.after(now, Estimate(estimate=2.0, low=2.0, high=2.0), bare) == "50.0 ms"  # what a model says
    emulated = changed(bare, accelerator={"kind": "emulated", "mean_step_ms": 48.0})
    assert answer.after(now, Estimate(estimate=2.0, low=1.8, high=2 / 0.9), emulated) == "50.0 ms (48.0 to 58.0)"


def test_what_the_fix_gives_stands_with_the_time_before_and_after() -> None:
    text = flat(screen(changed(optimized(), warnings=()), width=120))
    for said in (
        "a step now 34.2 ms (95 % interval: 33.2 to 35.2)",
        "after the fix 17.6 ms (17.0 to 18.3), computed from the measured speed-up, 1.940x (1.901 to 1.979)",
        "your line my_project/data.py:42",
        "maps in parallel (2 calls) after map 1.940x (1.901 to 1.979) yes, bit for bit measured",
        "a cache in memory (from epoch 2 on) 2.11x not checked estimated",
        "elements in any order 1.200x (1.164 to 1.236) NO measured, rejected",
        "next patch -p1 < reports/one/patch.diff",
        "machine quiet",
        "INPUT The step waits 17.9 ms of 34.2 ms",
        "(this verdict: probability over 99 %)",
        "█ input 52.3 %",
        "▒ compute 44.4 %",
    ):
        assert said in text


@pytest.mark.parametrize("achieved", [0.64, 2.5])
def test_what_was_tried_and_did_not_come_is_hoped_for_no_more(achieved: float) -> None:
    report = optimized()
    same = report.fixes[0].semantics
    tried = changed(report.fixes[1], verified_speedup=estimate(achieved), semantics=same)
    text = flat(screen(changed(report, fixes=(tried,))))
    assert "16.9 ms" not in text
    assert "elements in any order" in text


def test_the_undecided_say_so_first_and_what_is_likely_all_the_same() -> None:
    lines = screen(undecided()).splitlines()
    assert lines[2].startswith("UNDECIDED  No bottleneck can be named: others used 39%")
    assert "Most likely: waiting for input, 52.3 % of a step as measured." in lines
    assert "probability" not in "\n".join(lines)
    again = "next xttsbench diagnose my_project/data.py:make_dataset --accelerator emulated:15 --budget 600"
    assert again in flat("\n".join(lines))


def test_what_the_machine_did_comes_first_where_it_kept_the_verdict() -> None:
    lines = screen(noisy()).splitlines()
    said = flat("\n".join(lines))
    assert lines[2].startswith("UNDECIDED  The machine disturbed the measurement: others used 42 % of the processor")
    assert lines[4].startswith("Most likely: waiting for input, 52.3 % of a step")
    assert "undecided No bottleneck can be named: others used 39% of the processor" in said
    assert "next xttsbench diagnose my_project/data.py:make_dataset --accelerator emulated:15 --budget 600" in said
    assert said.count("11 of 16 rounds") == 1
    assert answer.disturbed(undecided()) == answer.disturbed(optimized()) == ""


def test_checkpoints_that_are_gone_again_are_counted_as_written() -> None:
    sums = dict.fromkeys(("weights_sha256", "optimizer_sha256", "samples_sha256"), "")
    one = CheckpointEntry(step=1, epoch=0, batch=0, files=(), state_sha256="", **sums)
    training = Training(recipe="tiny", checkpoints=(one, one), ended=Ended(reason="steps", step=2, **sums))
    text = flat(screen(changed(starving_run().report, training=training)))
    assert "ended steps after step 2; 2 checkpoints written" in text


@pytest.mark.parametrize(("kind", "learns"), [("real", True), ("emulated", False)])
def test_behind_an_emulated_accelerator_nothing_is_learnt(kind: str, learns: bool) -> None:
    parts = dict.fromkeys(("loss", "mel", "stop", "guided", "gradient_norm"), 0.0)
    counts = {"session": 0, "first_step": 1, "steps": 9, "skipped": 0, "epoch": 0, "samples": 9}
    own = WatchedInterval(learning_rate=0.1, valid_frames=9, frames=9, wall_s=1.0, **counts, **parts)
    report = changed(
        starving_run().report,
        kind="train",
        training=Training(recipe="tiny", intervals=(own,)),
        accelerator={"kind": kind},
    )
    assert any(fact.label == "loss" for fact in training_facts(report)) is learns


def test_a_dataset_alone_has_batches_and_no_step() -> None:
    report = starving_run().report
    alone = changed(report, target={"name": "x.py:make", "kind": "dataset"}, accelerator={})
    assert "a batch now 34.2 ms" in flat(screen(alone))
    assert "a step now" not in screen(alone, view=View.FULL)
    assert "batch time, mean 34.2 ms" in flat(screen(alone, view=View.FULL))
    emulated = changed(alone, accelerator={"kind": "emulated", "label": "emulated"})
    assert "a step now" in screen(emulated)


def test_a_step_that_computes_has_its_costliest_line_and_what_is_left_to_do(starving) -> None:
    parts = dict.fromkeys(Attribution.model_fields, 0.0) | {"compute": 0.033, "input": 0.0012}
    verdict = changed(
        starving.report.verdict,
        bottleneck="compute",
        attribution_s=Attribution(**parts),
        summary="The device is the limit.",
    )
    line = {"file": "/x/model.py", "line": 7, "function": "step", "phase": "forward", "ops": 3, "share": 0.9}
    step = {"ops": {"phases": {"forward": 1.0}, "lines": [line]}}
    report = changed(starving.report, verdict=verdict, findings=(), step=step)
    text = flat(screen(report))
    assert "at best 33.0 ms, without the 3.5 % that is not compute; less with a cheaper step" in text
    assert "your line model.py:7 step, 90.0 % of the time of the step's ops" in text
    assert "what to do Make the step itself cheaper: XLA" in text
    emulated = changed(
        report, step=None, accelerator={"kind": "emulated", "label": "emulated accelerator, 30 ms a step"}
    )
    assert "what to do Nothing: this input keeps an accelerator of that speed busy." in flat(screen(emulated))


def test_files_are_called_as_the_command_line_calls_them(starving) -> None:
    def of(name: str, *files: str) -> Report:
        found = tuple(changed(starving.report.findings[0], location=Location(file=file, line=1)) for file in files)
        return changed(starving.report, target={"name": name}, findings=found, pipeline=None)

    assert answer.short("/a/b/c/data.py", of("data.py:make", "/a/b/c/data.py")) == "data.py"
    assert answer.short("/a/b/c/train.py", of("./c/train.py", "/a/b/c/train.py")) == "c/train.py"
    assert answer.short("/a/b/c/data.py", of("other.py:make", "/a/b/c/data.py")) == "…/b/c/data.py"
    assert answer.short("/a/b/c/data.py", of("package.data:make", "/a/b/c/data.py")) == "…/b/c/data.py"
    two = of("data.py:make", "/a/b/c/data.py", "/a/z/y/data.py")
    assert answer.short("/a/b/c/data.py", two) == "…/b/c/data.py"


def test_what_is_likely_follows_the_rule_of_the_verdict() -> None:
    report = undecided()
    parts = dict.fromkeys(Attribution.model_fields, 0.0) | {"compute": 0.031, "host": 0.0032}
    verdict = changed(report.verdict, attribution_s=Attribution(**parts))
    found = answer.likely(changed(report, verdict=verdict))
    assert found is not None
    assert found[0] == "compute"
    assert answer.likely(optimized()) is None
    anew = Finding(rule="call-per-batch", severity="critical", limiting=True, title="fit() is called for each batch")
    made_anew = changed(report, findings=(anew,))
    assert answer.likely(made_anew) is None, "what waits then waits for a dataset made anew"
    assert "this verdict: probability" not in flat(screen(made_anew))


def test_without_a_known_gain_it_says_what_is_at_best(eager) -> None:
    bare = changed(eager.report, findings=())
    assert "at best 39.0 ms, without the 83.9 % of launch overhead" in flat(screen(bare))
    assert "at best" not in screen(optimized())
    assert "at best" not in screen(undecided())


def test_an_emulated_accelerator_is_said_in_the_first_lines(starving, comparing) -> None:
    assert "EMULATED" in "".join(screen(starving.report).splitlines()[:2])
    text = screen(comparing.report)
    assert "loaders: EMULATED accelerator" in text
    assert "modes: THIS CPU" in text


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"kind": "diagnose", "command": "xttsbench diagnose a.py:f --set n=1 --steps 9", "name": "a.py:f"}, "n=1"),
        ({"kind": "diagnose", "command": "xttsbench diagnose t.py -- -x", "name": "t.py"}, "optimize t.py -- -x"),
        ({"kind": "optimize", "command": "xttsbench optimize a.py:f", "name": "a.py:f"}, "explain python-function"),
    ],
)
def test_the_next_command_applies_proves_or_explains(changes: dict[str, Any], command: str) -> None:
    report = optimized()
    left = tuple(changed(one, chosen=False, outcome="not verified") for one in report.fixes[2:])
    target = {"name": changes.pop("name")}
    said = answer.next_command(report.model_copy(update={"fixes": left, "target": target} | changes), "reports/one")
    assert command in said
    assert said.startswith("xttsbench optimize a.py:f --set") == (command == "n=1")


def test_a_plan_without_a_patch_is_applied_in_python() -> None:
    report = optimized()
    bare = tuple(changed(one, patch=None) for one in report.fixes)
    plan = Optimized(
        run="reports/one",
        target="data.py:make",
        fixes=("parallel-map:2",),
        identity=None,
        speedup=None,
        equivalent=True,
        data="",
        proven=True,
    )
    said = answer.next_command(changed(report, fixes=bare, optimized=plan), "reports/one")
    assert "xttsbench.optimize('data.py:make', plan='reports/one/optimized.yaml')" in said


def test_everything_stands_under_vv_and_more_than_under_v(every_report: dict[str, Report]) -> None:
    for name, report in every_report.items():
        document = report_document(report)
        everything = flat(console.render(document, width=400, color=False, view=View.FULL))
        for finding in report.findings:
            assert f"[{finding.rule}]" in everything, name
        for title in (block.title for block in document.shown(View.FULL) if hasattr(block, "title")):
            assert flat(title) in everything, (name, title)
        some = {block.title for block in document.shown(View.DETAILED) if hasattr(block, "title")}
        assert some <= {block.title for block in document.shown(View.FULL) if hasattr(block, "title")}, name


def test_v_adds_findings_experiments_and_the_pipeline(starving) -> None:
    text = screen(starving.report, view=View.DETAILED)
    for said in ("Findings", "[gpu-invisible]", "Isolation experiments", "Pipeline, its end first"):
        assert said in text
        assert said not in screen(starving.report)
    for said in ("Not measured", "In time", "Details"):
        assert f"\n{said}\n" not in text
        assert f"\n{said}\n" in screen(starving.report, view=View.FULL)


def test_hostile_names_stay_text_and_ops_are_called_what_they_are(hostile) -> None:
    text = screen(hostile.report)
    assert not set(text) & set("\x00\x07\x1b\r\u202e")
    assert answer.with_calls("Map/_2 and Prefetch/_3 of TensorSlice/_1", hostile.report) == (
        "map and prefetch of from_tensor_slices"
    )
