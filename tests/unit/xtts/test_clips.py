"""Which clips are spoken, with whose reference, and the recogniser: what it reads, and how many letters were missed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import shipped
from xttsbench.xtts.clips import (
    CHANGE_COST,
    Templates,
    as_reference,
    choose,
    edit_distance,
    learn,
    letters_of,
    made_of,
    mel_of,
    nearest_path,
    phone_error_rate,
    reference_clips,
)
from xttsbench.xtts.data.batches import Batch, held_out_batches
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.features import Floats, griffin_lim, log_mel
from xttsbench.xtts.recipe import BatchSettings, load_recipe

TINY = load_recipe(shipped("training", "tiny"))
FEATURES = TINY.features


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    directory = tmp_path_factory.mktemp("made") / "speech"
    make_data(directory, 12, 0, 0.4, 0.8, speakers=3)
    return read_speech_data(directory, sample_rate_hz=22_050, split="all")


def test_speakers_take_turns_and_the_choice_is_the_same_each_time(data: SpeechData) -> None:
    chosen = choose(data, FEATURES, TINY.batches, speakers=(0, 1, 2), count=6)
    again = choose(data, FEATURES, TINY.batches, speakers=(0, 1, 2), count=6)
    assert chosen.ids == again.ids
    assert len(set(chosen.ids)) == 6
    assert sorted(chosen.speakers.tolist()) == [0, 0, 1, 1, 2, 2]
    clip = [data.id(n) for n in range(12)].index(chosen.ids[0])
    assert chosen.texts[0] == data.text(clip)
    assert np.array_equal(chosen.encoded[0], data.text_ids(clip))
    assert np.array_equal(chosen.mels[0], mel_of(data, clip, FEATURES))


def test_what_is_to_be_left_out_comes_only_where_there_is_nothing_else(data: SpeechData) -> None:
    rest = choose(data, FEATURES, TINY.batches, speakers=(0, 1, 2), but=range(10))
    assert set(rest.ids) == {data.id(10), data.id(11)}
    everything = choose(data, FEATURES, TINY.batches, speakers=(0, 1, 2), but=range(12))
    assert len(everything.ids) == 12


def test_clips_that_no_batch_holds_and_other_speakers_are_not_chosen(data: SpeechData) -> None:
    frames = data.samples // FEATURES.hop_samples
    edge = int(np.median(frames))
    settings = TINY.batches.model_copy(update={"frame_edges": (edge,)})
    short = choose(data, FEATURES, settings, speakers=(1,))
    assert all(len(mel) <= edge for mel in short.mels)
    assert set(short.speakers.tolist()) == {1}
    assert choose(data, FEATURES, TINY.batches.model_copy(update={"frame_edges": (1,)}), speakers=(0, 1, 2)) is None


def test_the_reference_is_the_beginning_of_the_longest_clip_padded_with_silence(data: SpeechData) -> None:
    clips = reference_clips(data, (0, 2, 7))
    assert set(clips) == {0, 2}
    for speaker, clip in clips.items():
        assert data.speakers[clip] == speaker
        assert data.samples[clip] == data.samples[data.speakers == speaker].max()
    mel = mel_of(data, clips[0], FEATURES)
    reference = as_reference(mel, FEATURES, len(mel) + 3)
    assert np.array_equal(reference[: len(mel)], mel)
    assert (reference[len(mel) :] == np.log(np.float32(FEATURES.log_floor))).all()
    assert np.array_equal(as_reference(mel, FEATURES, 5), mel[:5])


@pytest.mark.parametrize(
    ("size", "most"), [({"batch_size": 4}, 4), ({"batch_size": None, "tokens_per_batch": 512}, 2), ({"parts": 3}, 16)]
)
def test_each_held_out_clip_is_in_one_batch(size: dict[str, int | None], most: int) -> None:
    settings = BatchSettings(**(TINY.batches.model_dump() | size))
    rng = np.random.default_rng(0)
    frames, texts = rng.integers(100, 500, 21), rng.integers(5, 60, 21)
    speakers = rng.integers(0, 3, 21)
    batches = held_out_batches(frames, texts, speakers, settings, seed=5)
    assert sorted(np.concatenate([batch.clips for batch in batches]).tolist()) == list(range(21))
    for batch in batches:
        assert isinstance(batch, Batch)
        assert len(batch.clips) <= most
        assert frames[batch.clips].max() <= batch.frames
        assert texts[batch.clips].max() <= batch.characters
        assert (speakers[batch.references] == speakers[batch.clips]).all()
    assert batches == held_out_batches(frames, texts, speakers, settings, seed=5)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    directory = tmp_path_factory.mktemp("made") / "speech"
    make_data(directory, 40, 3, 1.5, 2.5, speakers=2)
    return read_speech_data(directory, sample_rate_hz=22_050, split="all")


@pytest.fixture(scope="module")
def spoken(pair: SpeechData) -> list[tuple[Floats, npt.NDArray[np.str_], int]]:
    """Of each clip its features, the letter of each frame, and the speaker."""
    made = made_of(pair.directory)
    assert made is not None
    return [
        (mel_of(pair, clip, FEATURES), letters_of(pair, clip, made, FEATURES), int(pair.speakers[clip]))
        for clip in range(len(pair))
    ]


@pytest.fixture(scope="module")
def templates(spoken: list[tuple[Floats, npt.NDArray[np.str_], int]]) -> Templates:
    return learn(spoken[:32], 2)  # the others are unseen


def test_the_nearest_path_is_the_best_of_all() -> None:
    distances = np.random.default_rng(0).gamma(1.0, 1.5, (6, 3))
    paths = np.stack(np.meshgrid(*[range(3)] * 6), -1).reshape(-1, 6)
    costs = distances[np.arange(6), paths].sum(1) + CHANGE_COST * (np.diff(paths, axis=1) != 0).sum(1)
    path, cost = nearest_path(distances)
    assert cost == pytest.approx(costs.min())
    assert path.tolist() == paths[costs.argmin()].tolist()


def test_letters_are_those_of_the_text_in_their_order(pair: SpeechData, spoken) -> None:
    for clip, (mel, said, _) in enumerate(spoken):
        assert len(said) == len(mel)
        runs = said[np.flatnonzero(np.append(True, said[1:] != said[:-1]))]
        # The clip may end within its last letter, before the middle of a frame of it.
        assert pair.text(clip).startswith("".join(runs))
        assert len(runs) >= len(pair.text(clip)) - 1


def test_unseen_clips_are_read_and_their_speakers_known(pair: SpeechData, spoken, templates: Templates) -> None:
    texts = [pair.text(clip) for clip in range(32, 40)]
    heard = [templates.read(mel, speaker) for mel, _, speaker in spoken[32:]]
    assert [templates.speaker(mel) for mel, _, _ in spoken[32:]] == [speaker for _, _, speaker in spoken[32:]]
    again = [
        templates.read(log_mel(griffin_lim(mel, FEATURES), FEATURES), speaker) for mel, _, speaker in spoken[32:36]
    ]
    # Not 0: a clip may end within its last letter.
    assert phone_error_rate(zip(texts, heard, strict=True)) < 0.06
    assert phone_error_rate(zip(texts[:4], again, strict=True)) < 0.08
    # And a recogniser that hears what it should hear is none.
    assert phone_error_rate(zip(texts[1:] + texts[:1], heard, strict=True)) > 0.6


def test_templates_need_each_letter_of_each_speaker() -> None:
    mel = np.zeros((4, 80))
    said = np.array(list("aass"))
    with pytest.raises(ValueError, match="speaker 1 never says 's'"):
        learn([(mel, said, 0), (mel[:2], said[:2], 1)], 2)
    with pytest.raises(ValueError, match="none"):
        learn([], 1)


def test_letters_are_known_of_made_data_alone(tmp_path: Path, pair: SpeechData) -> None:
    assert made_of(tmp_path) is None
    (tmp_path / "made.json").write_text("{")
    with pytest.raises(InvalidInputError, match="run 'xttsbench data make' again"):
        made_of(tmp_path)


@pytest.mark.parametrize(
    ("said", "heard", "edits"),
    [
        ("", "", 0),
        ("sol", "", 3),
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
