"""Which clips are spoken, with whose reference, and the batches of the held-out loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xttsbench.shipped import shipped
from xttsbench.xtts.data.batches import Batch, held_out_batches
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.evaluation.clips import as_reference, choose, mel_of, reference_clips
from xttsbench.xtts.evaluation.written import Evaluation, Heard, read_references, write_references
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
    assert chosen is not None
    assert again is not None
    assert chosen.ids == again.ids
    assert len(set(chosen.ids)) == 6
    assert sorted(chosen.speakers.tolist()) == [0, 0, 1, 1, 2, 2]
    clip = [data.id(n) for n in range(12)].index(chosen.ids[0])
    assert chosen.texts[0] == data.text(clip)
    assert np.array_equal(chosen.encoded[0], data.text_ids(clip))
    assert np.array_equal(chosen.mels[0], mel_of(data, clip, FEATURES))


def test_what_is_to_be_left_out_comes_only_where_there_is_nothing_else(data: SpeechData) -> None:
    rest = choose(data, FEATURES, TINY.batches, speakers=(0, 1, 2), but=range(10))
    assert rest is not None
    assert set(rest.ids) == {data.id(10), data.id(11)}
    everything = choose(data, FEATURES, TINY.batches, speakers=(0, 1, 2), but=range(12))
    assert everything is not None
    assert len(everything.ids) == 12


def test_clips_that_no_batch_holds_and_other_speakers_are_not_chosen(data: SpeechData) -> None:
    frames = data.samples // FEATURES.hop_samples
    edge = int(np.median(frames))
    settings = TINY.batches.model_copy(update={"frame_edges": (edge,)})
    short = choose(data, FEATURES, settings, speakers=(1,))
    assert short is not None
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


def test_references_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_references(tmp_path) == {}
    written = {"low": np.ones((3, 2), np.float32), "high voice/é": np.zeros((3, 2), np.float32)}
    write_references(tmp_path, written)
    found = read_references(tmp_path)
    assert list(found) == list(written)
    assert all(np.array_equal(found[name], mel) for name, mel in written.items())
    assert [path.name for path in (tmp_path / "evaluation").iterdir()] == ["references.npz"]


def test_the_numbers_of_an_evaluation_have_names() -> None:
    heard = Heard(clips=3, length_ratio=1.0, never_stopped=0.25, phone_error_rate=0.5)
    metrics = Evaluation(step=4, held_out=heard, training=heard).metrics()
    assert metrics["held_out/phone_error_rate"] == metrics["training/phone_error_rate"] == 0.5
    assert metrics["training/speaker_kept"] is None
    assert not any("clips" in name for name in metrics)
    assert not any(name.startswith("held_out") for name in Evaluation(step=4, held_out=None, training=heard).metrics())
