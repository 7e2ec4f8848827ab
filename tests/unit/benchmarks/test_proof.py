"""What the proof rests on: its gates, met and missed, and its control's texts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import gates
import pytest
import speech

from xttsbench.xtts.data.speech_data import read_speech_data

GOOD = {
    "phone_error_rate": 0.07,
    "phone_error_rate_sound": 0.12,
    "wrong_over_right": 5.0,
    "length_ratio": 1.02,
    "speaker_swapped": 0.95,
    "phone_error_rate_truth": 0.0,
}
UNREAD = GOOD | {"phone_error_rate": 1.03, "phone_error_rate_sound": 1.1, "wrong_over_right": 1.0}


def both(training: Mapping[str, float | None], held_out: Mapping[str, float | None]) -> dict[str, Mapping[str, float]]:
    return {"training": training, "held_out": held_out}


def missed(found: list[gates.Gate]) -> list[str]:
    return [gate.name for gate in found if gate.is_gate and not gate.met]


def test_a_fall_is_from_the_first_steps_loss_to_the_mean_of_the_twenty_that_end_there():
    losses = {1: 8.0, 180: 100.0, 201: 100.0} | {step: 1.0 + (step % 2) * 2 for step in range(181, 201)}
    assert gates.fall(losses, 200) == 8.0 / 2.0
    assert gates.fall(losses | {200: 1000.0}, 200) < 1
    del losses[182], losses[183]  # left out by the trainer
    assert gates.fall(losses, 200) == pytest.approx(8.0 / 2.0)


@pytest.mark.parametrize("losses", [{}, {1: 3.0}, {step: 1.0 for step in range(2, 201)}])
def test_without_the_first_loss_or_the_last_ones_nothing_fell(losses):
    assert gates.fall(losses, 200) is None
    assert not gates.early_gate(losses).met


@pytest.mark.parametrize(("fallen", "early", "late"), [(3.4, False, False), (3.5, True, False), (10.0, True, True)])
def test_the_loss_is_judged_by_another_goal_at_each_end(fallen, early, late):
    losses = {step: 1.0 for step in range(2, 1201)} | {1: fallen}
    assert (gates.early_gate(losses).met, gates.late_gate(losses, 1200).met) == (early, late)


@pytest.mark.parametrize(
    ("goal", "value", "holds"),
    [
        (gates.Goal(low=4.0), 4.0, True),
        (gates.Goal(low=4.0), 3.99, False),
        (gates.Goal(high=0.15), 0.15, True),
        (gates.Goal(high=0.15), 0.151, False),
        (gates.Goal(low=0.9, high=1.1), 0.89, False),
        (gates.Goal(low=0.9, high=1.1), 1.11, False),
        (gates.Goal(low=0.9, high=1.1), 1.0, True),
    ],
)
def test_a_goal_holds_up_to_its_bounds_and_the_control_has_to_be_beyond(goal, value, holds):
    assert gates.Gate("", value, goal).met is holds
    assert gates.Gate("", value, goal, must_miss=True).met is not holds


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("must_miss", [False, True])
def test_what_was_not_measured_meets_nothing_not_even_for_the_control(value, must_miss):
    gate = gates.Gate("", value, gates.Goal(low=4.0), must_miss=must_miss)
    assert not gate.met
    assert json.loads(json.dumps(gate.shown(), allow_nan=False))["value"] is None


def test_a_model_that_reads_meets_all_and_its_control_none():
    assert not missed(gates.heard_gates(both(GOOD, GOOD)))
    assert not missed(gates.control_gates(both(UNREAD, UNREAD)))
    assert gates.all_met([*gates.heard_gates(both(GOOD, GOOD)), *gates.control_gates(both(UNREAD, UNREAD))])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("phone_error_rate", 0.16),
        ("phone_error_rate_sound", 0.16),
        ("length_ratio", 0.85),
        ("length_ratio", 1.15),
        ("speaker_swapped", 0.85),
    ],
)
@pytest.mark.parametrize("side", ["training", "held_out"])
def test_each_figure_of_each_side_is_a_gate_of_its_own(side, name, value):
    found = gates.heard_gates(both(GOOD, GOOD) | {side: GOOD | {name: value}})
    assert missed(found) == [f"{gates.WORDS[name]}, {gates.SIDES[side]}"]
    assert not gates.all_met(found)


def test_wrong_over_right_is_a_gate_on_training_clips_and_reported_of_the_others():
    poor = GOOD | {"wrong_over_right": 3.0}
    assert len(missed(gates.heard_gates(both(poor, GOOD)))) == 1
    found = gates.heard_gates(both(GOOD, poor))
    assert not missed(found)
    (reported,) = [gate for gate in found if not gate.is_gate and not gate.met]
    assert (reported.value, reported.met, reported.shown()["gate"]) == (3.0, False, False), "and it does not hide"
    assert any("NO  (reported" in line for line in gates.table(found).splitlines())


@pytest.mark.parametrize("name", gates.CONTROL)
def test_a_control_that_reads_fails_the_proof(name):
    found = gates.control_gates(both(UNREAD | {name: GOOD[name]}, UNREAD))
    assert missed(found) == [f"control: {gates.WORDS[name]}, training clips"]


def test_no_text_of_the_control_is_where_it_was_and_none_is_lost():
    texts = [f"text {number}" for number in range(128)]
    found = speech.permuted(texts)
    assert sorted(found) == sorted(texts)
    assert all(own != other for own, other in zip(texts, found, strict=True))
    assert speech.permuted(["a", "b"]) == ["b", "a"]
    shifts = {(texts.index(text) - place) % 128 for place, text in enumerate(found)}
    assert len(shifts) > 10, "they are permuted, and not moved on by one"


@pytest.mark.parametrize("texts", [[], ["one"], ["twice", "twice", "once"]])
def test_texts_that_cannot_all_move_are_refused(texts):
    with pytest.raises(ValueError, match="takes different texts"):
        speech.permuted(texts)


def test_the_controls_clips_are_the_same_but_for_the_texts_that_are_trained_on(tmp_path: Path):
    speech.made(tmp_path / "data", speech.Work(clips=10, held_out=3, min_s=0.5, max_s=0.8))
    before = (tmp_path / "data" / "metadata.csv").read_bytes()
    speech.with_other_texts(tmp_path / "data", tmp_path / "control")
    assert (tmp_path / "data" / "metadata.csv").read_bytes() == before
    for split, clips in (("train", 7), ("eval", 3)):
        true, other = (
            read_speech_data(tmp_path / name, sample_rate_hz=22_050, split=split) for name in ("data", "control")
        )
        assert len(true) == len(other) == clips
        assert true.speaker_names == other.speaker_names
        assert len(true.speaker_names) == 2
        for clip in range(clips):
            assert true.id(clip) == other.id(clip)
            assert true.speakers[clip] == other.speakers[clip]
            assert true.wav(clip).samefile(other.wav(clip))
            assert (true.text(clip) == other.text(clip)) is (split == "eval")
    assert [true.id(clip)[-1] for clip in range(3)] == ["7", "8", "9"], "the last ones are held out"
