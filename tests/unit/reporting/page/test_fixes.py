from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.reporting.conftest import estimate, starving_run
from xttsbench.records.fix import FixResult, Patch
from xttsbench.records.report import Arm
from xttsbench.reporting.document import Fold, Section
from xttsbench.reporting.html import render
from xttsbench.reporting.page.document import page_document
from xttsbench.reporting.page.fixes import FixCard, section


def fix(name: str, outcome: str, **given: Any) -> FixResult:
    return FixResult.model_validate(
        {"name": name, "fixes": (name,), "what": f"does {name}", "outcome": outcome, "why": "", **given}
    )


def drawn(*fixes: FixResult) -> Section:
    (found,) = section(starving_run().report.model_copy(update={"fixes": fixes}))
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
    assert [(card.rank, card.name) for card in cards(found)] == [(1, "best"), (2, "good"), (3, "hoped")]
    (folded,) = [block for block in found.blocks if isinstance(block, Fold)]
    assert [block.name for block in folded.blocks if isinstance(block, FixCard)] == ["idle", "bad"]


def test_colour_is_the_effect_and_hatching_the_doubt() -> None:
    found = drawn(
        fix("sure", "accepted", verified_speedup=estimate(2.0), decision="clearly_faster"),
        fix("open", "accepted", verified_speedup=estimate(1.01, 0.2), decision="undecided"),
        fix("hoped", "not verified", predicted_speedup=3.0),
    )
    gains = {card.name: card.gain for card in cards(found)}
    assert {name: (gain.tone, gain.sure) for name, gain in gains.items() if gain} == {
        "sure": ("better", True),
        "open": ("none", False),
        "hoped": ("better", False),
    }
    for gain in gains.values():
        assert gain is not None
        assert 0 <= gain.low <= gain.at <= gain.high <= 1
        assert 0 <= gain.one <= 1
    assert {gain.one for gain in gains.values() if gain} == {gains["sure"].one if gains["sure"] else None}


def test_what_one_trial_measured_is_worth_more_than_a_model(make_arm: Callable[..., Arm]) -> None:
    report = starving_run().report.model_copy(
        update={
            "fixes": (
                fix("parallel-map:8", "not verified", predicted_speedup=1.2),
                fix("prefetch", "not verified", predicted_speedup=9),
                fix("step:xla", "not verified"),
            ),
            "arms": (make_arm("fix:parallel-map:8", 0.01, group="", effect=estimate(3.0)),),
        }
    )
    (found,) = section(report)
    assert [(card.rank, card.name, card.basis, card.gain and card.gain.sure) for card in cards(found)] == [
        (1, "parallel-map:8", "measured in one trial", False),
        (2, "prefetch", "estimated", False),
    ]
    assert [card.outcome for card in cards(found)] == ["not proven", "not measured"]


def test_the_basis_of_a_gain_is_said() -> None:
    found = drawn(fix("hoped", "not verified", predicted_speedup=3.0), fix("none", "not verified"))
    (card,) = cards(found)
    assert (card.basis, card.gain and card.gain.text) == ("estimated", "3.00x")


@pytest.mark.parametrize("at", [0.0, -1.0])
def test_a_gain_of_nothing_is_drawn_at_the_edge(at: float) -> None:
    (card,) = cards(drawn(fix("odd", "accepted", verified_speedup={"estimate": at, "low": at, "high": at})))
    assert card.gain is not None
    assert card.gain.at == 0


def test_a_patch_is_there_to_be_copied() -> None:
    patch = Patch(diff="--- a\n+++ b\n-old\n+new & <b>\n")
    report = starving_run().report.model_copy(
        update={"fixes": (fix("best", "accepted", verified_speedup=estimate(1.4), chosen=True, patch=patch),)}
    )
    page = render(page_document(report), {})
    assert (
        '<pre class="copied" data-language="diff" tabindex="0">--- a\n+++ b\n-old\n+new &amp; &lt;b&gt;</pre>' in page
    )
