"""The model: its sizes, who sees whom, what padding changes (nothing), the parts in closed form, Keras's tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.model.attention import attend, attend_and_show, normalise
from xttsbench.xtts.model.parts import MASKED
from xttsbench.xtts.model.speech_model import SpeechModel
from xttsbench.xtts.recipe import load_recipe

TINY = load_recipe(shipped("training", "tiny")).model
SMALL = TINY.model_copy(update={"d_model": 16, "feed_forward": 24, "prenet": (12, 12), "latents": 3})
N_MELS, GROUP = 5, SMALL.frames_per_step
STEPS, CHARACTERS = 6, 9
LENGTHS = (9, 6)
FLOOR = np.log(1e-5)


@pytest.fixture(scope="module")
def small() -> SpeechModel:
    return SpeechModel(SMALL, N_MELS, VOCABULARY, dtype="float64")


def example(**changes: Any) -> dict[str, np.ndarray]:
    """Return two clips; the text of the second is shorter."""
    rng = np.random.default_rng(1)
    batch = {
        "text": rng.integers(1, VOCABULARY, (2, CHARACTERS)).astype(np.int32),
        "text_length": np.array(LENGTHS, np.int32),
        "mel": rng.normal(-5, 2, (2, STEPS * GROUP, N_MELS)),
        "reference": rng.normal(-5, 2, (2, 3 * GROUP, N_MELS)),
    }
    batch["text"][1, LENGTHS[1] :] = 0
    return batch | changes


def tensors(batch: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {key: tf.constant(value) for key, value in batch.items()}


def moved(small: SpeechModel, after: dict[str, np.ndarray], before: dict[str, np.ndarray] | None = None) -> Any:
    """Return how far each step of each row moved, mels, stop and guided heads together: ``[rows, steps]``."""
    found = [small(tensors(batch)) for batch in (before or example(), after)]
    parts = [
        (np.reshape(p.scaled_mel, [2, STEPS, -1]), np.expand_dims(p.stop_logits, -1), *_by_step(p.attention))
        for p in found
    ]
    return np.max([np.abs(a - b).max(-1) for a, b in zip(*parts, strict=True)], axis=0)


def _by_step(attention: tuple[tf.Tensor, ...]) -> list[np.ndarray]:
    return [np.moveaxis(weights, 0, 2).reshape(2, STEPS, -1) for weights in attention]


@pytest.mark.parametrize("group", range(STEPS))
def test_frames_move_later_steps_only_and_all_of_those(small: SpeechModel, group: int) -> None:
    mel = example()["mel"]
    mel[:, group * GROUP : (group + 1) * GROUP] += 1
    far = moved(small, example(mel=mel))
    assert (far[:, : group + 1] == 0).all()
    assert (far[:, group + 1 :] > 1e-6).all()


@pytest.mark.parametrize("character", [0, 5, 8])
def test_every_step_sees_every_real_character_and_no_padding(small: SpeechModel, character: int) -> None:
    text = example()["text"]
    text[:, character] = text[:, character] % (VOCABULARY - 1) + 1
    far = moved(small, example(text=text))
    for row, length in enumerate(LENGTHS):
        assert (far[row] > 1e-6).all() if character < length else (far[row] == 0).all()


def test_every_frame_of_the_reference_counts(small: SpeechModel) -> None:
    for frame in range(3 * GROUP):
        reference = example()["reference"]
        reference[:, frame, 0] += 1
        assert (moved(small, example(reference=reference)) > 1e-7).all()


def test_wider_padding_of_the_text_changes_nothing(small: SpeechModel) -> None:
    assert moved_where_both_are(small, example(text=np.pad(example()["text"], ((0, 0), (0, 4))))) < 1e-12


def test_wider_padding_of_the_mel_changes_no_real_step(small: SpeechModel) -> None:
    mel = np.concatenate([example()["mel"], np.full((2, 2 * GROUP, N_MELS), FLOOR)], 1)
    assert moved_where_both_are(small, example(mel=mel)) < 1e-12


def moved_where_both_are(small: SpeechModel, after: dict[str, np.ndarray]) -> float:
    one, two = small(tensors(example())), small(tensors(after))
    return max(
        np.abs(one.scaled_mel - two.scaled_mel[:, : STEPS * GROUP]).max(),
        np.abs(one.stop_logits - two.stop_logits[:, :STEPS]).max(),
        *(np.abs(a - b[:, :, :STEPS, : a.shape[-1]]).max() for a, b in zip(one.attention, two.attention, strict=True)),
    )


@pytest.mark.parametrize("padding", [GROUP, 2 * GROUP + 1])
def test_padding_of_the_reference_changes_nothing(small: SpeechModel, padding: int) -> None:
    short = example()["reference"][:, : 2 * GROUP - 1]  # not whole groups either
    padded = np.concatenate([short, np.full((2, padding, N_MELS), FLOOR)], 1)
    assert moved(small, example(reference=padded), before=example(reference=short)).max() < 1e-12


def test_guided_heads_lead_to_real_characters_alone(small: SpeechModel) -> None:
    for weights in small(tensors(example())).attention:  # no key is speech, and these add up to one without it
        np.testing.assert_allclose(np.sum(weights, -1), 1, rtol=1e-12)
        assert (weights[..., : SMALL.latents].numpy() == 0).all()
        for row, length in enumerate(LENGTHS):
            assert (weights[:, row, :, SMALL.latents + length :].numpy() == 0).all()
            assert (weights[:, row, :, SMALL.latents : SMALL.latents + length].numpy() > 0).all()


def test_no_guided_layers_is_a_choice() -> None:
    plain = SpeechModel(SMALL.model_copy(update={"guided_layers": 0, "layers": 1}), N_MELS, VOCABULARY, dtype="float64")
    assert plain(tensors(example())).attention == ()


def test_dropout_drops_by_the_rate_and_keeps_the_mean(small: SpeechModel) -> None:
    batch = tensors(example(mel=np.zeros((50, 40 * GROUP, N_MELS))))
    bits = small.draw_dropout(batch, tf.constant([1, 2]))
    np.testing.assert_array_equal(bits, small.draw_dropout(batch, tf.constant([1, 2])))
    assert (bits != small.draw_dropout(batch, tf.constant([1, 3]))).numpy().mean() > 0.99
    for kept, units in zip(small.prenet._kept(bits), SMALL.prenet, strict=True):
        assert kept.shape == (2000, units)
        assert set(np.unique(kept)) == {0, 1 / (1 - SMALL.prenet_dropout)}
        assert np.mean(kept) == pytest.approx(1, abs=0.03)


def numbers(*shape: int, seed: int = 0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def test_attention_and_its_gradients_are_the_textbooks() -> None:
    inputs = [numbers(2, 3, 4, 6, seed=1), numbers(2, 3, 5, 6, seed=2), numbers(2, 3, 5, 6, seed=3)]
    bias = tf.constant(np.where(np.arange(5) <= np.arange(4)[:, None] + 1, 0, MASKED))
    of_read, of_weights = numbers(2, 3, 4, 6, seed=4), numbers(2, 3, 4, 5, seed=5)

    def plain(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / np.sqrt(6) + bias)
        return tf.matmul(weights, v), weights

    def slopes(attention: Any, upstream: list[tf.Tensor]) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = attention(*inputs, bias)
        found = [found] if tf.is_tensor(found) else list(found)
        return found, tape.gradient(found[: len(upstream)], inputs, output_gradients=upstream)

    read, weights = plain(*inputs, bias)
    assert (weights.numpy()[..., 0, 2:] == 0).all()
    for attention, upstream in ((attend, [of_read]), (attend_and_show, [of_read, of_weights])):
        found, gradients = slopes(attention, upstream)
        _, expected = slopes(plain, upstream)
        for value, exact in zip([*found, *gradients], [read, weights][: len(found)] + expected, strict=True):
            np.testing.assert_allclose(value, exact, rtol=1e-10, atol=1e-12)


def test_normalisation_and_its_gradient_are_the_textbooks() -> None:
    x, upstream = numbers(4, 6, seed=1), numbers(4, 6, seed=2)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        found = normalise(x)
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        expected = (x - mean) / tf.sqrt(variance + 1e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    slopes = [tape.gradient(y, x, output_gradients=upstream) for y in (found, expected)]
    np.testing.assert_allclose(*slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_sixteen_bits_are_close_to_thirty_two(policy: str) -> None:
    batch = {
        key: tf.cast(value, tf.float32 if value.dtype.kind == "f" else tf.int32) for key, value in example().items()
    }
    exact, short = (SpeechModel(SMALL, N_MELS, VOCABULARY, dtype=dtype) for dtype in ("float32", policy))
    assert {weight.dtype for weight in short.weights} == {"float32"}
    found, expected = short(batch), exact(batch)
    assert found.scaled_mel.dtype == found.stop_logits.dtype == tf.float32
    assert np.abs(found.scaled_mel - expected.scaled_mel).max() < 0.1
    assert np.abs(found.scaled_mel - expected.scaled_mel).max() > 0
    assert (found.attention[0][..., : SMALL.latents].numpy() == 0).all()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras 3.15's own, with NumPy 2
def test_keras_saves_and_loads_it(small: SpeechModel, tmp_path: Path) -> None:
    small.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.settings == SMALL
    np.testing.assert_array_equal(loaded(tensors(example())).scaled_mel, small(tensors(example())).scaled_mel)


@pytest.mark.parametrize(("name", "millions"), [("tiny", 0.56), ("small", 7.0), ("base", 51.0)])
def test_parameters(name: str, millions: float) -> None:
    path = shipped("training", name)
    recipe = load_recipe(path)
    model = SpeechModel(recipe.model, recipe.features.n_mels, VOCABULARY, seed=0)
    count = sum(int(variable.shape.num_elements()) for variable in (weight.value for weight in model.weights))
    assert count == pytest.approx(1e6 * millions, rel=0.03)
    said = re.search(r"^model: # ([0-9.]+) million parameters$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert said is not None
    assert float(said[1]) == millions
