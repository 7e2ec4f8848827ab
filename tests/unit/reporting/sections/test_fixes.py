"""The section on fixes: what is proposed comes first, nothing unverified looks like a result, and text stays text."""

from __future__ import annotations

from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.unit.reporting.conftest import HOSTILE, changed, estimate, one, starving_run, words
from tests.unit.reporting.conftest import fix as result
from xttsbench.records.fix import Edit, FixResult, Optimized, Patch, Semantics
from xttsbench.records.report import Report
from xttsbench.reporting import console, markdown
from xttsbench.reporting.document import Code, Facts, Fold, Paragraph, Section, Table, View
from xttsbench.reporting.page import page_document, render_page
from xttsbench.reporting.sections import fixes
from xttsbench.reporting.sections.fixes import FixCard, as_cards
from xttsbench.reporting.sections.report import report_document

DIFF = """--- a/my_project/data.py
+++ b/my_project/data.py
@@ -41,2 +41,2 @@
-    ds = ds.map(load)
+    ds = ds.map(load, num_parallel_calls=tf.data.AUTOTUNE)
"""


def report(*fixes: FixResult, optimized: Optimized | None = None) -> Report:
    return changed(starving_run().report, fixes=fixes, optimized=optimized)


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
    return result(name, **given | fields)


def other(name: str, outcome: Any, why: str, **fields: Any) -> FixResult:
    return result(name, "", outcome, why, **fields)


def section(given: Report) -> Section:
    (found,) = fixes.section(given)
    return found


def facts(section: Section, lead: str) -> list[tuple[str, str]]:
    (found,) = (block for block in section.blocks if isinstance(block, Facts) and block.lead == lead)
    return [(fact.label, fact.value) for fact in found.facts]


def paragraphs(section: Section) -> list[str]:
    return [block.text for block in section.blocks if isinstance(block, Paragraph)]


def codes(section: Section) -> dict[str, tuple[str, ...]]:
    return {block.language: block.lines for block in section.blocks if isinstance(block, Code)}


def on_console(given: Report, width: int = 80) -> str:
    return console.render(report_document(given), width=width, color=False, view=View.FULL)


def in_markdown(given: Report) -> str:
    return markdown.render(report_document(given))


def on_page(given: Report) -> str:
    return render_page(report_document(given), {})


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
    assert list(fixes.section(report())) == []
    for text in (on_console(report()), in_markdown(report())):
        assert "Fixes" not in text
    assert "<h2>Fixes</h2>" not in on_page(report())


def test_what_is_proposed_comes_first_with_its_interval_and_its_data() -> None:
    said = section(full())
    assert paragraphs(said)[0] == (
        "Proposed: maps in parallel; elements fetched ahead, 1.940x (1.901 to 1.979) as fast in "
        "8 processes. Data: 48 elements of 3 epochs are the same, bit for bit."
    )
    assert words(one(said, Table))[:3] == [
        (
            "maps in parallel; elements fetched ahead",
            "2.02x",
            "1.940x (1.901 to 1.979)",
            "the same, bit for bit",
            "proposed: 1.94 times as fast (1.90 to 1.98, 8 blocks)",
        ),
        (
            "cache@Map",
            "not estimated",
            "not measured",
            "OTHER DATA",
            "rejected: it changes the data: The order was frozen.",
        ),
        ("thread-pool:8", "1.100x", "1.000x (0.970 to 1.030)", "not compared", "rejected: no faster"),
    ]


def test_the_diff_the_edits_by_hand_and_the_call_are_said() -> None:
    said = section(full())
    assert codes(said)["diff"] == tuple(DIFF.strip().splitlines())
    assert [(fix, what.partition(":")[0]) for fix, what in facts(said, "By hand:")] == [
        ("prefetch", "the dataset is returned through a helper")
    ]
    assert codes(said)["python"] == (
        "import xttsbench",
        "dataset, report = xttsbench.optimize('my_project/data.py:make_dataset', "
        "plan='reports/2026-01-02-data/optimized.yaml')",
    )
    assert words(one(said, Table))[-1][-1] == "not tried: only when asked for"


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        (Patch(diff=DIFF), "The source with this patch was not run."),
        (Patch(diff=DIFF, why_not="no time"), "The source with this patch was not run: no time."),
        (
            Patch(diff=DIFF, equivalent=True, verified_speedup=estimate(1.9, 0.02)),
            "The source with this patch was run; it yields the same data and is 1.900x (1.862 to 1.938) as fast, "
            "timed by itself.",
        ),
        (
            Patch(diff=DIFF, equivalent=False, why_not="epoch 1 differs"),
            "The source with this patch was run; it gives OTHER DATA: epoch 1 differs",
        ),
        (Patch(), ""),
        (None, ""),
    ],
)
def test_a_patch_says_whether_it_was_run(patch: Patch | None, sentence: str) -> None:
    assert paragraphs(section(report(chosen(patch=patch))))[1:] == ([sentence] if sentence else [])


@pytest.mark.parametrize(
    ("tried", "start"),
    [
        ((), "There was no fix to try"),
        ((other("prefetch", "not verified", "no time"),), "No fix was tried: the pipeline stays as it is."),
        ((other("prefetch", "rejected", "no faster"),), "No fix was accepted: the pipeline stays as it is."),
    ],
)
def test_nothing_accepted_is_said_plainly_and_offers_no_call(tried: tuple[FixResult, ...], start: str) -> None:
    said = section(report(*tried, optimized=optimized(fixes=(), speedup=None, proven=False)))
    assert paragraphs(said)[0].startswith(start)
    assert codes(said) == {}


def test_a_long_diff_is_cut_on_a_terminal_only() -> None:
    long = chosen(patch=Patch(diff=DIFF + "".join(f"+line{number}\n" for number in range(200))))
    assert "more lines in the run's patch.diff" in on_console(report(long))
    assert "+line199" not in on_console(report(long))
    assert "+line199" in in_markdown(report(long))
    assert "+line199" in on_page(report(long))


def test_every_report_says_how_much_of_the_data_was_compared() -> None:
    same = Semantics(equivalent=True, how="identical", sentence="The same.", epochs=1, rows=1, rows_of=None)
    found = report(chosen(semantics=same))
    for text in (on_console(found, 160), in_markdown(found), on_page(found)):
        assert "checked 1 row of a dataset of unknown length, over 1 epoch" in " ".join(text.split())


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
    shown = on_console(evil)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]" in shown
    page = on_page(evil)
    assert "<script>alert" not in page
    assert page.count("<section") == page.count("</section>")
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(in_markdown(evil))
    assert "<script" not in rendered
    assert "<strong>b</strong>" not in rendered


def fix(name: str, outcome: str, **given: Any) -> FixResult:
    return result(name, f"does {name}", outcome, **given)


def drawn(*fixes: FixResult) -> Section:
    (found,) = as_cards(changed(starving_run().report, fixes=fixes))
    return found


def cards(found: Section) -> list[FixCard]:
    return [block for block in found.blocks if isinstance(block, FixCard)]


def test_the_proposed_comes_first_then_what_gave_most_then_what_may_give_most() -> None:
    found = drawn(
        fix("hoped", "not verified", predicted_speedup=9.0),
        fix("good", "accepted", verified_speedup=estimate(1.5), decision="faster"),
        fix("bad", "rejected", verified_speedup=estimate(0.7), decision="slower"),
        fix("best", "accepted", verified_speedup=estimate(1.4), decision="faster", chosen=True),
        fix("idle", "not verified", predicted_speedup=1.0),
    )
    assert [(card.rank, card.what) for card in cards(found)] == [(1, "does best"), (2, "does good"), (3, "does hoped")]
    (folded,) = [block for block in found.blocks if isinstance(block, Fold)]
    assert [block.what for block in folded.blocks if isinstance(block, FixCard)] == ["does idle", "does bad"]


@pytest.mark.parametrize("at", [0.0, -1.0])
def test_a_gain_of_nothing_is_drawn_at_the_edge(at: float) -> None:
    (card,) = cards(drawn(fix("odd", "accepted", verified_speedup={"estimate": at, "low": at, "high": at})))
    assert card.gain is not None
    assert card.gain.at == 0


def test_a_patch_is_there_to_be_copied() -> None:
    patch = Patch(diff="--- a\n+++ b\n-old\n+new & <b>\n")
    report = changed(
        starving_run().report,
        fixes=(fix("best", "accepted", verified_speedup=estimate(1.4), chosen=True, patch=patch),),
    )
    page = render_page(page_document(report), {})
    assert (
        '<pre class="copied" data-language="diff" tabindex="0">--- a\n+++ b\n-old\n+new &amp; &lt;b&gt;</pre>' in page
    )


def test_cards_are_numbered_as_they_stand() -> None:
    found = drawn(
        fix("undecided", "not verified", verified_speedup=estimate(0.86), why="undecided: 0.86"),
        fix("hoped", "not verified", predicted_speedup=1.4, why="there was no time"),
    )
    shown = [block for block in found.blocks if isinstance(block, FixCard)]
    (fold,) = (block for block in found.blocks if isinstance(block, Fold))
    assert [(card.rank, card.what) for card in (*shown, *fold.blocks)] == [(1, "does hoped"), (2, "does undecided")]
    assert [card.outcome for card in shown] == ["not tried: there was no time"]
    assert "not worth" not in fold.title
