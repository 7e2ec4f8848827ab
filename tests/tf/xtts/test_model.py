"""The decoder: no step sees what it has to say, padding counts for nothing, and the loss is the closed form."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.xtts import model
from xttsbench.xtts.recipe import load_recipe
from xttsbench.xtts.text import VOCABULARY

SETTINGS = load_recipe(shipped("training", "tiny")).model
N_MELS = 80
GROUP = SETTINGS.frames_per_step
FRAMES = 6 * GROUP


@pytest.fixture(scope="module")
def decoder() -> model.SpeechDecoder:
    keras.utils.set_random_seed(0)
    return model.build(SETTINGS, N_MELS, VOCABULARY)


def example(characters: int = 9) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "text": rng.integers(1, VOCABULARY, (2, characters)).astype(np.int32),
        "mel": rng.normal(-5, 2, (2, FRAMES, N_MELS)).astype(np.float32),
    }


def test_shapes_and_size(decoder: model.SpeechDecoder) -> None:
    mel, stop = decoder(example())
    assert mel.shape == (2, FRAMES, N_MELS)
    assert stop.shape == (2, FRAMES // GROUP)
    assert 350_000 < decoder.count_params() < 550_000


@pytest.mark.parametrize("changed_group", [0, 2, 5])
def test_a_group_of_frames_changes_later_steps_only(decoder: model.SpeechDecoder, changed_group: int) -> None:
    before = example()
    after = {**before, "mel": before["mel"].copy()}
    after["mel"][:, changed_group * GROUP : (changed_group + 1) * GROUP] += 3
    moved = np.abs(decoder(before)[0].numpy() - decoder(after)[0].numpy()).max(axis=(0, 2)).reshape(-1, GROUP).max(1)
    stop_moved = np.abs(decoder(before)[1].numpy() - decoder(after)[1].numpy()).max(0)
    assert (moved[: changed_group + 1] == 0).all()
    assert (stop_moved[: changed_group + 1] == 0).all()
    assert (moved[changed_group + 1 :] > 1e-3).all()


def test_every_step_reads_the_text(decoder: model.SpeechDecoder) -> None:
    before = example()
    after = {**before, "text": before["text"][:, ::-1]}
    moved = np.abs(decoder(before)[0].numpy() - decoder(after)[0].numpy()).max(axis=(0, 2))
    assert (moved > 1e-4).all()


def test_padding_of_the_text_changes_nothing(decoder: model.SpeechDecoder) -> None:
    plain = example()
    padded = {**plain, "text": np.pad(plain["text"], ((0, 0), (0, 7)))}
    np.testing.assert_allclose(decoder(plain)[0], decoder(padded)[0], atol=2e-5)


def test_dropout_acts_in_training_only(decoder: model.SpeechDecoder) -> None:
    batch = example()
    np.testing.assert_array_equal(decoder(batch)[0], decoder(batch)[0])
    assert np.abs(decoder(batch, training=True)[0].numpy() - decoder(batch, training=True)[0].numpy()).max() > 1e-3


def test_loss_is_the_closed_form() -> None:
    lengths = [5, 8]  # two groups each; the first row's second group is ragged
    mel = np.zeros((2, 8, 3), np.float32)
    predicted = mel + 2 * SETTINGS.mel_std  # L1 is 2 and L2 is 4 on each real number
    logits = np.zeros((2, 2), np.float32)  # each cross-entropy is log 2, five times for the group that ends
    predicted[0, 5:] = 1e6  # padding counts for nothing
    value = model.loss(tf.constant(mel), tf.constant(lengths), tf.constant(predicted), tf.constant(logits), SETTINGS)
    assert float(value) == pytest.approx(2 + 4 + 0.2 * np.log(2) * (1 + 5) / 2, rel=1e-5)


def test_loss_rewards_stopping_in_the_last_group() -> None:
    mel = tf.zeros([1, 16, 3])

    def stop(where: int) -> float:
        logits = np.full((1, 4), -4, np.float32)
        logits[0, where] = 4
        return float(model.loss(mel, tf.constant([12]), mel, tf.constant(logits), SETTINGS))

    assert stop(2) < min(stop(0), stop(1))
    assert stop(2) == pytest.approx(0.2 * np.log1p(np.exp(-4)) * (1 + 1 + 5) / 3, rel=1e-4)


def test_positions_are_sines_and_cosines() -> None:
    found = model.positions(5, 6).numpy()
    assert found.shape == (5, 6)
    assert found[3, 1] == pytest.approx(np.sin(3 / 10_000 ** (2 / 6)), rel=1e-5)
    assert found[3, 5] == pytest.approx(np.cos(3 / 10_000 ** (4 / 6)), rel=1e-5)
