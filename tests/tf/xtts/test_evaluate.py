"""What is measured of a model's speech: on models whose behaviour is known because they were built to have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.xtts.clips import Clips, as_reference, learn
from xttsbench.xtts.data.metadata import VOCABULARY, encode
from xttsbench.xtts.data.synthesis import letters_at, utterance
from xttsbench.xtts.evaluate import Evaluation, Heard, Listener, diagonality
from xttsbench.xtts.features import log_mel
from xttsbench.xtts.model.generator import Generated
from xttsbench.xtts.model.speech_model import SpeechModel
from xttsbench.xtts.recipe import load_recipe

TINY = load_recipe(shipped("training", "tiny"))
FEATURES = TINY.features
MADE = (4, 1.0, 1.6, 2)
CLIPS = [utterance(n, *MADE) for n in range(24)]
MELS = [log_mel(clip.samples, FEATURES) for clip in CLIPS]
VOICES = np.array([n % 2 for n in range(24)], np.int32)


def letters(n: int) -> np.ndarray:
    places = (np.arange(len(MELS[n])) + 0.5) * FEATURES.hop_samples
    return np.array(list(CLIPS[n].text))[letters_at(places, n, *MADE)]


TEMPLATES = learn([(MELS[n], letters(n), n % 2) for n in range(24)], 2)
REFERENCES = {n: as_reference(MELS[n], FEATURES, TINY.batches.reference_frames) for n in (0, 1)}


def clips(*numbers: int) -> Clips:
    return Clips(
        tuple(CLIPS[n].id for n in numbers),
        tuple(CLIPS[n].text for n in numbers),
        tuple(encode(CLIPS[n].text) for n in numbers),
        VOICES[list(numbers)],
        tuple(MELS[n] for n in numbers),
    )


class Parrot:
    """Speaks clips as they were recorded; asked for with another reference, it keeps the voice, or takes it."""

    def __init__(self, numbers: tuple[int, ...], *, follows: bool, cut: int = 0) -> None:
        self.numbers, self.follows, self.cut = numbers, follows, cut

    def __call__(self, texts: Any, references: np.ndarray) -> Generated:
        mels = []
        for n, reference in zip(self.numbers, references, strict=True):
            voice = next(v for v, known in REFERENCES.items() if np.array_equal(known, reference))
            mel = MELS[n] if voice == n % 2 or not self.follows else MELS[(n + 1) % 24]
            mels.append(mel[: len(mel) - self.cut])
        shape = (len(mels[0]) // 4, len(texts[0]))
        return Generated(mels, np.array([True] + [False] * (len(mels) - 1)), [np.ones(shape, np.float32)] * len(mels))


@pytest.fixture(scope="module")
def listener() -> Listener:
    small = TINY.model_copy(
        update={"model": TINY.model.model_copy(update={"d_model": 16, "feed_forward": 16, "layers": 2})}
    )
    made = SpeechModel(small.model, FEATURES.n_mels, VOCABULARY, dtype="float32")
    return Listener(made, small, REFERENCES, TEMPLATES)


@pytest.mark.parametrize("follows", [True, False])
def test_what_says_the_clips_is_heard_to_say_them(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    numbers = (2, 3, 4, 5)
    monkeypatch.setattr(listener, "generator", Parrot(numbers, follows=follows))
    spoken = listener(clips(*numbers))
    heard = spoken.heard
    assert heard.clips == 4
    assert heard.phone_error_rate == heard.phone_error_rate_truth
    assert heard.phone_error_rate is not None
    assert heard.phone_error_rate < 0.1
    assert heard.phone_error_rate_sound == pytest.approx(heard.phone_error_rate, abs=0.05)
    assert heard.length_ratio == 1
    assert heard.never_stopped == 0.75
    assert heard.speaker_kept == 1
    assert heard.speaker_swapped == (1 if follows else 0)
    assert [len(sound) for sound in spoken.sounds] == [len(MELS[n]) * FEATURES.hop_samples for n in numbers]


def test_a_speaker_that_breaks_off_has_errors_and_a_shorter_length(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = (2, 3)
    monkeypatch.setattr(listener, "generator", Parrot(numbers, follows=True, cut=30))
    heard = listener(clips(*numbers)).heard
    assert heard.phone_error_rate is not None
    assert heard.phone_error_rate_truth is not None
    assert heard.phone_error_rate > heard.phone_error_rate_truth + 0.1
    assert heard.length_ratio == pytest.approx(np.mean([1 - 30 / len(MELS[n]) for n in numbers]))


def test_a_model_that_does_not_read_loses_nothing_by_the_wrong_text(listener: Listener) -> None:
    for block in listener.model.blocks:  # nothing is read from any position: each token stays with itself
        block.out.assign(tf.zeros_like(block.out))
    assert listener._wrong_over_right(clips(2, 3, 4)) == pytest.approx(1, abs=1e-6)


def test_the_right_text_is_that_of_the_clip(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, np.ndarray]] = []

    def forward(batch: dict[str, tf.Tensor]) -> float:
        seen.append({key: np.asarray(value) for key, value in batch.items()})
        return float(len(seen))

    monkeypatch.setattr(listener, "_forward", forward)
    assert listener._wrong_over_right(clips(2, 3)) == 0.5
    wrong, right = seen
    for row, n in enumerate((2, 3)):
        for batch, other in ((right, n), (wrong, 5 - n)):
            ids = encode(CLIPS[other].text)
            assert batch["text_length"][row] == len(ids)
            assert batch["text"][row, : len(ids)].tolist() == ids.tolist()
        assert np.array_equal(right["mel"][row, : len(MELS[n])], MELS[n])
        assert right["mel_length"][row] == len(MELS[n])
    assert right["mel"].shape[1] % 4 == 0
    assert (right["reference_start"] == -1).all()


def test_without_templates_there_is_no_rate_and_the_rest_is_measured(listener: Listener) -> None:
    deaf = Listener(listener.model, listener.recipe, REFERENCES, None)
    heard = deaf(clips(2)).heard
    assert heard.phone_error_rate is None
    assert heard.speaker_kept is None
    assert heard.wrong_over_right is None  # one clip has no other's text
    assert heard.length_ratio > 0
    assert heard.diagonality is not None


def test_diagonality_is_the_share_near_the_diagonal() -> None:
    assert diagonality([np.eye(20, dtype=np.float32)]) == pytest.approx(1)
    assert diagonality([np.eye(20, dtype=np.float32)[::-1]]) == pytest.approx(0.2, abs=0.05)
    # Of a flat attention that is the band's share of the square: 1 - 0.8 ** 2.
    assert diagonality([np.ones((200, 200), np.float32)]) == pytest.approx(0.36, abs=0.01)
    assert diagonality([np.eye(20, dtype=np.float32), np.ones((200, 200), np.float32)]) == pytest.approx(0.68, abs=0.01)


def test_the_numbers_of_an_evaluation_have_names() -> None:
    heard = Heard(clips=3, length_ratio=1.0, never_stopped=0.25, phone_error_rate=0.5)
    metrics = Evaluation(step=4, held_out=heard, training=heard).metrics()
    assert metrics["held_out/phone_error_rate"] == metrics["training/phone_error_rate"] == 0.5
    assert metrics["training/speaker_kept"] is None
    assert not any("clips" in name for name in metrics)
    assert not any(name.startswith("held_out") for name in Evaluation(step=4, held_out=None, training=heard).metrics())
