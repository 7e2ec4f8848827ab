from __future__ import annotations

from typing import Any

import pytest

from xttsbench.reporting.groups import compares
from xttsbench.reporting.sections.headline import headline, refused
from xttsbench.reporting.sections.headline import parity_sentences as sentences

SAME = {"same": True, "tolerance": 1e-4, "batches": 4, "baseline": "numpy_wav", "arms": ["tf_wav", "packed"]}


def said(run, parity: dict[str, Any] | None) -> tuple[str, ...]:
    return sentences(run.report.model_copy(update={"parity": parity}))


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
    assert not refused(comparing.report.model_copy(update={"parity": None}))


def test_the_headline_is_the_first_sentence_and_a_refusal_stands_right_below(comparing) -> None:
    head = headline(comparing.report)
    assert head.sentence == comparing.report.comparison[0]
    assert head.below[0].text.startswith("REFUSED: tf_fast")
    assert [said.tone for said in head.below].count("refused") == 1
    assert head.below[-1].text == comparing.report.comparison[1]
    same = headline(comparing.report.model_copy(update={"parity": SAME}))
    assert same.below[0].text == comparing.report.comparison[1]
    assert same.below[1].text.startswith("All 3 loaders give the same batches")


def test_a_diagnosis_keeps_its_bottleneck_whatever_it_compared(starving, comparing) -> None:
    assert compares(comparing.report)
    assert not compares(starving.report)
    assert not compares(comparing.report.model_copy(update={"kind": "diagnose"}))
    without = headline(comparing.report.model_copy(update={"comparison": ()}))
    assert without.sentence == "Arms were compared."
    (sure,) = headline(starving.report).below
    assert sure.text == "Probability over 99 %, given what was measured"
