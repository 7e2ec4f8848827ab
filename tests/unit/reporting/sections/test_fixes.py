"""The section on fixes: what is proposed comes first, nothing unverified looks like a result, and text stays text."""

from __future__ import annotations

from typing import Any

import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len

from tests.unit.reporting.conftest import HOSTILE, estimate, starving_run
from xttsbench.records.fix import Edit, FixResult, Optimized, Patch, Semantics
from xttsbench.records.report import Report
from xttsbench.reporting import console, html, markdown
from xttsbench.reporting.sections.fixes import fixes_text

DIFF = """--- a/my_project/data.py
+++ b/my_project/data.py
@@ -41,2 +41,2 @@
-    ds = ds.map(load)
+    ds = ds.map(load, num_parallel_calls=tf.data.AUTOTUNE)
"""


def report(*fixes: FixResult, optimized: Optimized | None = None) -> Report:
    return starving_run().report.model_copy(update={"fixes": fixes, "optimized": optimized})


def chosen(name: str = "parallel-map + prefetch", **fields: Any) -> FixResult:
    given: dict[str, Any] = {
        "what": "maps in parallel; elements fetched ahead",
        "outcome": "accepted",
        "why": "1.94 times as fast (1.90 to 1.98, 8 blocks)",
        "predicted_speedup": 2.02,
        "verified_speedup": estimate(1.94, 0.02),
        "decision": "faster",
        "evidence": 1234.5,
        "blocks": 8,
        "semantics": Semantics(
            equivalent=True, how="identical", sentence="48 elements of 3 epochs are the same, bit for bit.", elements=48
        ),
        "patch": Patch(
            edits=(Edit(fix="parallel-map", file="my_project/data.py", line=41, before="a", after="b"),),
            diff=DIFF,
            unpatched={"prefetch": "the dataset is returned through a helper: append .prefetch(tf.data.AUTOTUNE)"},
        ),
        "chosen": True,
    }
    return FixResult(name=name, fixes=tuple(name.split(" + ")), **{**given, **fields})


def other(name: str, outcome: Any, why: str, **fields: Any) -> FixResult:
    return FixResult(name=name, fixes=(name,), what="", outcome=outcome, why=why, **fields)


def optimized(**fields: Any) -> Optimized:
    given: dict[str, Any] = {
        "run": "reports/2026-01-02-data",
        "target": "my_project/data.py:make_dataset",
        "fixes": ("parallel-map", "prefetch"),
        "identity": None,
        "speedup": estimate(1.94, 0.02),
        "equivalent": True,
        "data": "the same",
        "proven": True,
    }
    return Optimized(**{**given, **fields})


def full() -> Report:
    changed = Semantics(equivalent=False, how="different", sentence="The order was frozen.")
    return report(
        chosen(),
        other("cache@Map", "rejected", "it changes the data: The order was frozen.", semantics=changed),
        other("thread-pool:8", "rejected", "no faster", verified_speedup=estimate(1.0), predicted_speedup=1.1),
        other("any-order", "not verified", "only when asked for"),
        optimized=optimized(),
    )


def test_without_fixes_there_is_no_section() -> None:
    assert fixes_text(report()) is None
    for text in (console.render(report(), width=80, color=False), markdown.serialize(report())):
        assert "Fixes" not in text
    assert "<h2>Fixes</h2>" not in html.serialize(report(), {})


def test_what_is_proposed_comes_first_with_its_interval_and_its_data() -> None:
    said = fixes_text(full())
    assert said is not None
    assert said.proposal == (
        "Proposed: parallel-map + prefetch (maps in parallel; elements fetched ahead), 1.940x (1.901 to 1.979) as fast "
        "in 8 blocks. Data: 48 elements of 3 epochs are the same, bit for bit."
    )
    assert said.table is not None
    assert said.table.rows == (
        (
            "parallel-map + prefetch",
            "2.02x",
            "1.940x (1.901 to 1.979)",
            "the same, bit for bit",
            "proposed: 1.94 times as fast (1.90 to 1.98, 8 blocks)",
        ),
        (
            "cache@Map",
            "not predicted",
            "not measured",
            "CHANGED",
            "rejected: it changes the data: The order was frozen.",
        ),
        ("thread-pool:8", "1.100x", "1.000x (0.970 to 1.030)", "not compared", "rejected: no faster"),
    )


def test_the_diff_the_edits_by_hand_and_the_call_are_said() -> None:
    said = fixes_text(full())
    assert said is not None
    assert said.patch == tuple(DIFF.strip().splitlines())
    assert [(line.label, line.value.partition(":")[0]) for line in said.by_hand] == [
        ("prefetch", "the dataset is returned through a helper")
    ]
    assert said.call == (
        "import xttsbench",
        "dataset, report = xttsbench.optimize('my_project/data.py:make_dataset', "
        "plan='reports/2026-01-02-data/optimized.yaml')",
    )
    assert [(line.label, line.value) for line in said.not_verified] == [("any-order", "only when asked for")]


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        (Patch(diff=DIFF), "The source with this patch was not run."),
        (Patch(diff=DIFF, why_not="no time"), "The source with this patch was not run: no time."),
        (
            Patch(diff=DIFF, equivalent=True, verified_speedup=estimate(1.9, 0.02)),
            "The source with this patch was run; it yields the same data and is 1.900x (1.862 to 1.938) as fast.",
        ),
        (
            Patch(diff=DIFF, equivalent=False, why_not="epoch 1 differs"),
            "The source with this patch was run; it CHANGES THE DATA: epoch 1 differs",
        ),
        (Patch(), ""),
        (None, ""),
    ],
)
def test_a_patch_says_whether_it_was_run(patch: Patch | None, sentence: str) -> None:
    said = fixes_text(report(chosen(patch=patch)))
    assert said is not None
    assert said.patched == sentence


@pytest.mark.parametrize(
    ("fixes", "start"),
    [
        ((), "There was no fix to try"),
        ((other("prefetch", "not verified", "no time"),), "No fix was verified"),
        ((other("prefetch", "rejected", "no faster"),), "None of the 1 that were tried was accepted"),
    ],
)
def test_nothing_accepted_is_said_plainly_and_offers_no_call(fixes: tuple[FixResult, ...], start: str) -> None:
    said = fixes_text(report(*fixes, optimized=optimized(fixes=(), speedup=None, proven=False)))
    assert said is not None
    assert said.proposal.startswith(start)
    assert said.call == ()


def test_all_outputs_say_all_of_it() -> None:
    rendered = {
        "console": " ".join(console.render(full(), width=120, color=False).split()),
        "markdown": markdown.serialize(full()),
        "html": html.serialize(full(), {}),
    }
    for name, text in rendered.items():
        for words in ("Fixes", "Proposed: parallel-map + prefetch", "CHANGED", "any-order", "only when asked for"):
            assert words in text, (name, words)
        assert "ds.map(load, num_parallel_calls=tf.data.AUTOTUNE)" in text, name
        assert "xttsbench.optimize(" in text, name


def test_a_long_diff_is_cut_on_a_terminal_only() -> None:
    long = chosen(patch=Patch(diff=DIFF + "".join(f"+line{number}\n" for number in range(200))))
    assert "more lines in the run's patch.diff" in console.render(report(long), width=80, color=False)
    assert "+line199" not in console.render(report(long), width=80, color=False)
    assert "+line199" in markdown.serialize(report(long))
    assert "+line199" in html.serialize(report(long), {})


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_line_fits_the_terminal(width: int) -> None:
    assert max(map(cell_len, console.render(full(), width=width, color=False).splitlines())) <= width


def test_the_text_of_a_target_stays_text() -> None:
    """Where a target's names and lines hold markup and terminal escapes."""
    evil = report(
        chosen(
            name=HOSTILE,
            what=HOSTILE,
            why=HOSTILE,
            patch=Patch(diff=f"--- a\n+++ b\n+{HOSTILE}\n+```\n", unpatched={HOSTILE: HOSTILE}),
            semantics=Semantics(equivalent=True, how="rounding", sentence=HOSTILE),
        ),
        other(HOSTILE, "not verified", HOSTILE),
        optimized=optimized(target=HOSTILE, run=HOSTILE),
    )
    shown = console.render(evil, width=80, color=False)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]" in shown
    page = html.serialize(evil, {})
    assert "<script" not in page
    assert page.count("<section") == page.count("</section>")
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown.serialize(evil))
    assert "<script" not in rendered
    assert "<strong>b</strong>" not in rendered
