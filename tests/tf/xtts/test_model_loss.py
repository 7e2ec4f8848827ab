"""The loss: each part in closed form, what counts for nothing, and its gradients against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.targets import configuration
from xttsbench.training.step import OneDeviceStep
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.model.loss import (
    CompiledGradients,
    guided_loss,
    losses,
    losses_and_gradients,
    mel_loss,
    squared_norm,
    stop_loss,
)
from xttsbench.xtts.model.speech_model import Prediction, SpeechModel, scale_mel, use_precision
from xttsbench.xtts.recipe import Recipe, load_recipe

TINY = load_recipe(shipped("training", "tiny"))
SMALL = TINY.model.model_copy(update={"d_model": 16, "feed_forward": 24, "prenet": (12, 12), "latents": 3})
WEIGHTS = TINY.loss
N_MELS, GROUP, STEPS, CHARACTERS = 3, SMALL.frames_per_step, 5, 7


def example(**changes: Any) -> dict[str, tf.Tensor]:
    """Return two clips of 18 and 13 frames; the reference of the second is its own frames 2 to 9."""
    rng = np.random.default_rng(2)
    batch = {
        "text": rng.integers(1, VOCABULARY, (2, CHARACTERS)).astype(np.int32),
        "text_length": np.array([7, 4], np.int32),
        "mel": rng.normal(-5, 2, (2, STEPS * GROUP, N_MELS)),
        "mel_length": np.array([18, 13], np.int32),
        "reference": rng.normal(-5, 2, (2, 8, N_MELS)),
        "reference_start": np.array([-1, 2], np.int32),
    }
    return {key: tf.constant(value) for key, value in (batch | changes).items()}


def said(batch: dict[str, tf.Tensor], error: float = 0.0, attention: float = 0.0) -> Prediction:
    """Return a prediction that is off by ``error`` everywhere, undecided about the stop, with even attention."""
    width = SMALL.latents + CHARACTERS
    return Prediction(
        scale_mel(batch["mel"], SMALL) + error,
        tf.zeros([2, STEPS], tf.float64),
        (tf.fill([2, 2, STEPS, width], tf.constant(attention, tf.float64)),) if attention else (),
    )


def test_the_total_is_the_weighted_sum() -> None:
    batch = example()
    found = losses(batch, said(batch, error=0.5, attention=0.1), SMALL, WEIGHTS)
    expected = found.mel + WEIGHTS.stop_weight * found.stop + WEIGHTS.guided_weight * found.guided
    assert float(found.total) == pytest.approx(float(expected), rel=1e-12)
    assert min(float(part) for part in found) > 0
    assert (WEIGHTS.stop_weight, WEIGHTS.stop_positive_weight, WEIGHTS.guided_weight) == (0.2, 5, 5)


def test_mel_loss_is_the_closed_form() -> None:
    target, is_target = tf.zeros([2, 8, 3]), np.arange(8) < np.array([[5], [8]])
    predicted = np.full((2, 8, 3), -2, np.float32)  # L1 is 2 and L2 is 4 on each number
    predicted[1, 0] = 1  # 2 on each of these three of 39
    predicted[0, 5:] = 1e6  # padding counts for nothing
    found = mel_loss(target, tf.constant(predicted), tf.constant(is_target), 13)
    assert float(found) == pytest.approx((36 * 6 + 3 * 2) / 39, rel=1e-6)


def test_a_batch_without_a_frame_to_predict_has_no_mel_loss() -> None:
    batch = example(mel_length=np.zeros(2, np.int32))
    assert float(losses(batch, said(batch, error=3.0), SMALL, WEIGHTS).mel) == 0


@pytest.mark.parametrize(
    ("row", "frame", "counts"),
    [
        *((0, 0, True), (0, 3, True), (0, 17, True), (0, 18, False)),
        *((1, 1, True), (1, 2, False), (1, 9, False), (1, 10, True), (1, 12, True), (1, 13, False)),
    ],
)
def test_only_real_frames_that_the_reference_does_not_show_count(row: int, frame: int, counts: bool) -> None:
    batch = example()
    mel = batch["mel"].numpy()
    mel[row, frame] += 3
    changed = losses(example(mel=mel), said(batch), SMALL, WEIGHTS).mel
    assert (float(changed) > 0) == counts
    if counts:  # 18 + 13 real frames, 8 of them shown
        assert float(changed) == pytest.approx((3 / SMALL.mel_std + (3 / SMALL.mel_std) ** 2) / (18 + 13 - 8), rel=1e-9)


def test_stop_loss_is_the_closed_form() -> None:
    logits = tf.constant([[0.0, 0.0, 0.0], [0.0, 0.0, 9e9]])  # steps: 3 and 2; what is beyond counts for nothing
    found = stop_loss(logits, tf.constant([3, 2]), 5.0, 5)
    assert float(found) == pytest.approx(np.log(2) * (2 + 5 + 1 + 5) / 5, rel=1e-6)


@pytest.mark.parametrize(("frames", "last"), [(1, 0), (4, 0), (5, 1), (18, 4)])
def test_speech_ends_in_the_step_of_its_last_frame(frames: int, last: int) -> None:
    batch = example(mel_length=np.array([frames, frames], np.int32))
    logits = np.where(np.arange(STEPS) == last, 30.0, -30.0) * np.ones((2, 1))
    assert float(losses(batch, said(batch)._replace(stop_logits=logits), SMALL, WEIGHTS).stop) < 1e-9


def test_guided_loss_is_tachibanas_formula() -> None:
    rng = np.random.default_rng(0)
    lengths, steps, latents = (7, 4), (5, 3), 2
    attention = rng.uniform(size=(2, 3, 2, STEPS, latents + CHARACTERS))  # two layers, three heads
    attention[..., :latents] = 0
    attention[:, :, 1, :, latents + 4 :] = 0
    total = pairs = 0.0
    for row, (characters, real) in enumerate(zip(lengths, steps, strict=True)):
        for t in range(real):
            for n in range(characters):
                distance = 1 - np.exp(-((n / characters - t / real) ** 2) / (2 * 0.2**2))
                total += distance * attention[:, :, row, t, latents + n].sum()
        pairs += 2 * 3 * real * characters
    layers = tuple(tf.constant(layer) for layer in attention)
    found = guided_loss(layers, tf.constant(lengths), tf.constant(steps), latents, 0.2, pairs / 6)
    assert float(found) == pytest.approx(total / pairs, rel=1e-12)


def test_without_guided_weight_or_heads_there_is_no_guided_loss() -> None:
    batch = example()
    off = WEIGHTS.model_copy(update={"guided_weight": 0.0})
    assert float(losses(batch, said(batch, attention=0.1), SMALL, off).guided) == 0
    assert float(losses(batch, said(batch), SMALL, WEIGHTS).guided) == 0


def test_padding_changes_no_loss() -> None:
    small = SpeechModel(SMALL, N_MELS, VOCABULARY, dtype="float64")
    batch = example()
    rng = np.random.default_rng(3)
    text = batch["text"].numpy()
    text[1, 4:] = 9
    mel = np.concatenate([batch["mel"], np.zeros((2, 2 * GROUP, N_MELS))], 1)
    for row, length in enumerate(batch["mel_length"]):
        mel[row, int(length) :] = rng.normal(size=mel[row, int(length) :].shape)
    wider = example(text=np.pad(text, ((0, 0), (0, 3)), constant_values=5), mel=mel)
    for one, two in zip(*(losses(b, small(b), SMALL, WEIGHTS) for b in (batch, wider)), strict=True):
        assert float(one) == pytest.approx(float(two), rel=1e-9)


@pytest.fixture(scope="module")
def trained() -> SpeechModel:
    small = SpeechModel(SMALL, N_MELS, VOCABULARY, seed=1, dtype="float64")
    rng = np.random.default_rng(4)
    for bias in small.prenet.biases:  # the first step reads zeros: without a bias it sits on the kink of the rectifier
        bias.assign(rng.uniform(0.1, 0.5, bias.shape))
    return small


def test_gradients_are_those_of_finite_differences(trained: SpeechModel) -> None:
    batch, rng, h = example(), np.random.default_rng(5), 1e-6  # so small that it crosses no corner of a rectifier
    heavy = WEIGHTS.model_copy(update={"guided_weight": 50.0, "stop_weight": 2.0})  # no part hides behind another
    found, gradients = losses_and_gradients(trained, batch, heavy, None)
    assert min(float(part) for part in found) > 0.1
    value = tf.function(lambda: losses(batch, trained(batch), SMALL, heavy).total)

    def slope(variables: list[Any], directions: list[np.ndarray]) -> float:
        before, ends = [variable.numpy() for variable in variables], []
        for sign in (1, -1):
            for variable, start, direction in zip(variables, before, directions, strict=True):
                variable.assign(start + sign * h * direction)
            ends.append(float(value()))
        for variable, start in zip(variables, before, strict=True):
            variable.assign(start)
        return (ends[0] - ends[1]) / (2 * h)

    everywhere = [rng.normal(size=variable.shape) for variable in trained.trainable_variables]
    expected = sum(float(np.sum(g * d)) for g, d in zip(gradients, everywhere, strict=True))
    assert slope(trained.trainable_variables, everywhere) == pytest.approx(expected, rel=1e-6)
    for variable, gradient, direction in zip(trained.trainable_variables, gradients, everywhere, strict=True):
        exact = gradient.numpy()
        assert np.abs(exact).max() > 1e-6, variable.path
        assert slope([variable], [direction]) == pytest.approx(np.sum(exact * direction), rel=1e-4, abs=1e-8), (
            variable.path
        )
        for weight in (np.abs(exact).argmax(), rng.integers(exact.size)):
            single = np.zeros(exact.size)
            single[weight] = 1
            assert slope([variable], [single.reshape(exact.shape)]) == pytest.approx(
                exact.flat[weight], rel=1e-4, abs=1e-8
            ), variable.path


def test_the_gradients_in_parts_are_those_at_once(trained: SpeechModel) -> None:
    batch = example()
    bits = trained.draw_dropout(batch, tf.constant([1, 1]))
    found, expected = losses_and_gradients(trained, batch, WEIGHTS, bits)
    tf.config.run_functions_eagerly(True)  # the parts alone; that XLA computes them is shown with the step
    try:
        parts, gradients = CompiledGradients(trained, WEIGHTS)(batch, bits)
    finally:
        tf.config.run_functions_eagerly(False)
    np.testing.assert_allclose(parts, found, rtol=1e-12)
    for gradient, exact, variable in zip(gradients, expected, trained.trainable_variables, strict=True):
        np.testing.assert_allclose(gradient, exact, rtol=1e-9, atol=1e-12, err_msg=variable.path)


def test_the_norm_is_that_of_all_gradients_together() -> None:
    gradients = [tf.constant([[3.0, 0.0]]), tf.constant([0.0, 4.0])]
    assert float(squared_norm(gradients)) == 25


MELS, TRAINED_STEPS = 5, 20
SIXTEEN = ("mixed_bfloat16", "mixed_float16")


def recipe(**optimizer: float) -> Recipe:
    """Return tiny's recipe with a model that compiles in seconds."""
    sizes = {"d_model": 16, "feed_forward": 16, "prenet": (8,), "latents": 2, "conditioning_layers": 0, "layers": 1}
    return TINY.model_copy(
        update={
            "features": TINY.features.model_copy(update={"n_mels": MELS}),
            "model": TINY.model.model_copy(update=sizes | {"guided_layers": 1}),
            "optimizer": TINY.optimizer.model_copy(update={"learning_rate": 1e-2} | optimizer),
        }
    )


@pytest.fixture(scope="module")
def batch() -> dict[str, tf.Tensor]:
    rng = np.random.default_rng(0)
    lengths = np.array([5, 8, 6], np.int32)
    arrays = {
        "text": np.where(np.arange(8) < lengths[:, None], rng.integers(1, VOCABULARY, (3, 8)), 0).astype(np.int32),
        "text_length": lengths,
        "mel": rng.normal(-5, 2, (3, 24, MELS)).astype(np.float32),
        "mel_length": np.array([24, 20, 23], np.int32),
        "reference": rng.normal(-5, 2, (3, 8, MELS)).astype(np.float32),
        "reference_start": np.array([-1, 3, -1], np.int32),
    }
    return {key: tf.constant(value) for key, value in arrays.items()}


def trained_in(
    batch: dict[str, tf.Tensor], mode: str, precision: str, steps: int = TRAINED_STEPS
) -> tuple[OneDeviceStep, list[float]]:
    step = OneDeviceStep(recipe(), mode=mode, precision=precision)
    return step, [float(step(batch)) for _ in range(steps)]


@pytest.fixture(scope="module")
def exact(batch: dict[str, tf.Tensor]) -> list[float]:
    return trained_in(batch, "graph", "float32")[1]


@pytest.mark.parametrize("mode", [pytest.param("eager", marks=pytest.mark.slow), "graph"])
@pytest.mark.parametrize("precision", SIXTEEN)
def test_sixteen_bits_learn_what_float32_does(
    batch: dict[str, tf.Tensor], exact: list[float], precision: str, mode: str
) -> None:
    step, losses = trained_in(batch, mode, precision)
    np.testing.assert_allclose(losses, exact, rtol=0.05)
    assert losses != exact
    assert np.mean(losses[-3:]) < 0.8 * losses[0]
    assert {variable.dtype for variable in step.state.model.variables} == {"float32"}
    assert step.state.optimizer()["updates"] == TRAINED_STEPS  # none was left out
    assert trained_in(batch, mode, precision, steps=3)[1] == losses[:3]


@pytest.mark.parametrize("precision", SIXTEEN)
def test_gradients_are_float32_finite_and_about_those_of_float32(batch: dict[str, tf.Tensor], precision: str) -> None:
    found = {}
    for policy, scale in (("float32", None), (precision, tf.constant(1024.0))):
        built = SpeechModel(recipe().model, MELS, VOCABULARY, seed=1, dtype=policy)
        _, gradients = losses_and_gradients(built, batch, recipe().loss, None, scale)
        assert {gradient.dtype for gradient in gradients} == {tf.float32}
        found[policy] = np.concatenate([np.ravel(gradient) for gradient in gradients]) / (1024 if scale else 1)
    assert np.isfinite(found[precision]).all()
    apart = np.linalg.norm(found[precision] - found["float32"]) / np.linalg.norm(found["float32"])
    assert 0 < apart < 0.05


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[pytest.mark.slow] if mode == "xla" else []) for mode in configuration.MODES]
)
def test_an_overflow_costs_a_step_and_half_of_the_scale(batch: dict[str, tf.Tensor], mode: str) -> None:
    step = OneDeviceStep(recipe(), mode=mode, precision="mixed_float16")
    first, before = float(step(batch)), step.state.weights()
    scale = step.state.replicas[0].loss_scale
    assert scale is not None
    scale.scale.assign(2.0**60)  # gradients overflow float16
    skipped = float(step(batch))
    assert np.isfinite(skipped)
    for name, weight in step.state.weights().items():
        np.testing.assert_array_equal(weight, before[name])
    assert step.state.loss_scale == 2.0**59
    assert step.state.optimizer()["updates"] == 1
    scale.scale.assign(2.0**15)
    assert float(step(batch)) == skipped  # the same step again, since none was taken
    assert float(step(batch)) < first
    assert step.state.optimizer()["updates"] == 3


def test_clipping_sees_gradients_without_the_scale(batch: dict[str, tf.Tensor]) -> None:
    # Nothing of Adam's normalisation is left, so that the size of an update is that of the clipped gradient.
    plain = {"learning_rate": 1.0, "clip_norm": 0.1, "epsilon": 1.0, "beta_1": 0.0, "beta_2": 0.0}
    moved = []
    for scale in (2.0**3, 2.0**12):
        step = OneDeviceStep(recipe(**plain), mode="eager", precision="mixed_float16")
        before, held = step.state.weights(), step.state.replicas[0].loss_scale
        assert held is not None
        held.scale.assign(scale)
        step(batch)
        moved.append(np.concatenate([np.ravel(weight - before[name]) for name, weight in step.state.weights().items()]))
    assert 0.05 < np.linalg.norm(moved[0]) <= 0.1
    np.testing.assert_allclose(moved[0], moved[1], atol=1e-3)


@pytest.mark.parametrize("precision", configuration.PRECISIONS)
def test_only_float32_itself_computes_products_with_all_of_its_bits(precision: str) -> None:
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        policy = use_precision(precision)
        assert tf.config.experimental.tensor_float_32_execution_enabled() == (precision != "float32")
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
    assert policy == {"tf32": "float32"}.get(precision, precision)
