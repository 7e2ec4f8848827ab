"""The recogniser: what it reads, and how many letters were missed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import shipped
from xttsbench.xtts.audio.features import griffin_lim, log_mel
from xttsbench.xtts.audio.synthesis import PHONES, utterance
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.evaluation.clips import (
    CHANGE_COST,
    Templates,
    edit_distance,
    learn,
    letters_of,
    made_of,
    mel_of,
    nearest_path,
    phone_error_rate,
)
from xttsbench.xtts.recipe import load_recipe

FEATURES = load_recipe(shipped("training", "tiny")).features


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    directory = tmp_path_factory.mktemp("made") / "speech"
    make_data(directory, 40, 3, 1.5, 2.5, speakers=2)
    return read_speech_data(directory, sample_rate_hz=22_050, split="all")


@pytest.fixture(scope="module")
def templates(data: SpeechData) -> Templates:
    made = made_of(data.directory)
    assert made is not None
    # The first 32 clips: the others are unseen.
    clips = [(mel_of(data, n, FEATURES), letters_of(data, n, made, FEATURES), int(data.speakers[n])) for n in range(32)]
    return learn(clips, 2)


def test_the_nearest_path_weighs_distance_against_changes() -> None:
    near, far = 0.0, CHANGE_COST
    # One frame off is cheaper than two changes; two frames off cost as much, three more.
    brief = np.array([[near, far]] * 4 + [[far * 1.9, near]] + [[near, far]] * 4)
    path, cost = nearest_path(brief)
    assert path.tolist() == [0] * 9
    assert cost == pytest.approx(far * 1.9)
    lasting = np.array([[near, far]] * 4 + [[far, near]] * 3 + [[near, far]] * 4)
    path, cost = nearest_path(lasting)
    assert path.tolist() == [0] * 4 + [1] * 3 + [0] * 4
    assert cost == pytest.approx(2 * CHANGE_COST)


def test_the_nearest_path_is_the_best_of_all() -> None:
    distances = np.random.default_rng(0).gamma(1.0, 1.5, (6, 3))
    paths = np.stack(np.meshgrid(*[range(3)] * 6), -1).reshape(-1, 6)
    costs = distances[np.arange(6), paths].sum(1) + CHANGE_COST * (np.diff(paths, axis=1) != 0).sum(1)
    path, cost = nearest_path(distances)
    assert cost == pytest.approx(costs.min())
    assert path.tolist() == paths[costs.argmin()].tolist()


def test_letters_are_those_of_the_text_in_their_order(data: SpeechData) -> None:
    made = made_of(data.directory)
    assert made is not None
    for clip in range(len(data)):
        said = letters_of(data, clip, made, FEATURES)
        assert len(said) == len(mel_of(data, clip, FEATURES))
        runs = said[np.flatnonzero(np.append(True, said[1:] != said[:-1]))]
        # The clip may end within its last letter, before the middle of a frame of it.
        assert data.text(clip).startswith("".join(runs))
        assert len(runs) >= len(data.text(clip)) - 1


def test_letters_lie_where_they_sound(data: SpeechData) -> None:
    # The energy of a blank is far below that of a vowel, unless letters were frames off.
    made = made_of(data.directory)
    assert made is not None
    loud = {letter: [] for letter in PHONES}
    for clip in range(len(data)):
        for letter, frame in zip(letters_of(data, clip, made, FEATURES), mel_of(data, clip, FEATURES), strict=True):
            loud[letter].append(frame.mean())
    assert np.median(loud["a"]) > np.median(loud[" "]) + 2
    assert np.quantile(loud["a"], 0.1) > np.median(loud[" "]) + 1


def test_unseen_clips_are_read_and_their_speakers_known(data: SpeechData, templates: Templates) -> None:
    pairs, again = [], []
    for clip in range(32, 40):
        mel, speaker = mel_of(data, clip, FEATURES), int(data.speakers[clip])
        pairs.append((data.text(clip), templates.read(mel, speaker)))
        assert templates.speaker(mel) == speaker
        if clip < 36:
            sounded = log_mel(griffin_lim(mel, FEATURES), FEATURES)
            again.append((data.text(clip), templates.read(sounded, speaker)))
    # Not 0: a clip may end within its last letter.
    assert phone_error_rate(pairs) < 0.06
    assert phone_error_rate(again) < 0.08
    # And a recogniser that hears what it should hear is none.
    texts = [text for text, _ in pairs]
    assert phone_error_rate(zip(texts[1:] + texts[:1], [heard for _, heard in pairs], strict=True)) > 0.6


def test_templates_need_each_letter_of_each_speaker() -> None:
    mel = np.zeros((4, 80))
    said = np.array(list("aass"))
    with pytest.raises(ValueError, match="speaker 1 never says 's'"):
        learn([(mel, said, 0), (mel[:2], said[:2], 1)], 2)
    with pytest.raises(ValueError, match="none"):
        learn([], 1)


def test_letters_are_known_of_made_data_alone(tmp_path: Path, data: SpeechData) -> None:
    assert made_of(tmp_path) is None
    (tmp_path / "made.json").write_text("{")
    with pytest.raises(InvalidInputError, match="run 'xttsbench data make' again"):
        made_of(tmp_path)


def test_fewer_speakers_take_turns() -> None:
    assert [utterance(n, 0, 0.3, 0.4, 2).id.split("-")[0] for n in range(4)] == ["low", "middle", "low", "middle"]
    with pytest.raises(ValueError, match="speakers"):
        utterance(0, 0, 0.3, 0.4, 5)


@pytest.mark.parametrize(
    ("said", "heard", "edits"),
    [
        ("", "", 0),
        ("sol", "sol", 0),
        ("sol", "", 3),
        ("", "sol", 3),
        ("sol", "sul", 1),
        ("sol", "sl", 1),
        ("sol", "sool", 1),
        ("kitten", "sitting", 3),
        ("abcdef", "fabcde", 2),
    ],
)
def test_edit_distance_is_the_fewest_edits(said: str, heard: str, edits: int) -> None:
    assert edit_distance(said, heard) == edits
    assert edit_distance(heard, said) == edits


def test_errors_are_counted_over_all_letters_and_blanks_are_none() -> None:
    assert phone_error_rate([("so li", "soli"), ("fu", "fa")]) == pytest.approx(1 / 6)
    assert phone_error_rate([("fu", "fumumu")]) == pytest.approx(2)


@pytest.mark.parametrize("pairs", [[], [(" ", "s")]])
def test_a_rate_of_nothing_is_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="none"):
        phone_error_rate(pairs)
