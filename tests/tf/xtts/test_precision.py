"""Training in sixteen bits: float32 weights, about the losses of float32, and an overflow that costs one step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.targets import configuration
from xttsbench.training.step import OneDeviceStep
from xttsbench.xtts import model
from xttsbench.xtts.recipe import Recipe, load_recipe
from xttsbench.xtts.text import VOCABULARY

TINY = load_recipe(shipped("training", "tiny"))
N_MELS, STEPS = 5, 20
SIXTEEN = ("mixed_bfloat16", "mixed_float16")


def recipe(**optimizer: float) -> Recipe:
    """Return tiny's recipe with a model that compiles in seconds."""
    sizes = {"d_model": 16, "feed_forward": 16, "prenet": (8,), "latents": 2, "conditioning_layers": 0, "layers": 1}
    return TINY.model_copy(
        update={
            "features": TINY.features.model_copy(update={"n_mels": N_MELS}),
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
        "mel": rng.normal(-5, 2, (3, 24, N_MELS)).astype(np.float32),
        "mel_length": np.array([24, 20, 23], np.int32),
        "reference": rng.normal(-5, 2, (3, 8, N_MELS)).astype(np.float32),
        "reference_start": np.array([-1, 3, -1], np.int32),
    }
    return {key: tf.constant(value) for key, value in arrays.items()}


def trained(
    batch: dict[str, tf.Tensor], mode: str, precision: str, steps: int = STEPS
) -> tuple[OneDeviceStep, list[float]]:
    step = OneDeviceStep(recipe(), mode=mode, precision=precision)
    return step, [float(step(batch)) for _ in range(steps)]


@pytest.fixture(scope="module")
def exact(batch: dict[str, tf.Tensor]) -> list[float]:
    return trained(batch, "graph", "float32")[1]


@pytest.mark.parametrize("mode", [pytest.param("eager", marks=pytest.mark.slow), "graph"])
@pytest.mark.parametrize("precision", SIXTEEN)
def test_sixteen_bits_learn_what_float32_does(
    batch: dict[str, tf.Tensor], exact: list[float], precision: str, mode: str
) -> None:
    step, losses = trained(batch, mode, precision)
    np.testing.assert_allclose(losses, exact, rtol=0.05)
    assert losses != exact
    assert np.mean(losses[-3:]) < 0.8 * losses[0]
    assert {variable.dtype for variable in step.state.model.variables} == {"float32"}
    assert step.state.optimizer()["updates"] == STEPS  # none was left out
    assert trained(batch, mode, precision, steps=3)[1] == losses[:3]


@pytest.mark.parametrize("precision", SIXTEEN)
def test_gradients_are_float32_finite_and_about_those_of_float32(batch: dict[str, tf.Tensor], precision: str) -> None:
    found = {}
    for policy, scale in (("float32", None), (precision, tf.constant(1024.0))):
        built = model.SpeechModel(recipe().model, N_MELS, VOCABULARY, seed=1, dtype=policy)
        _, gradients = model.losses_and_gradients(built, batch, recipe().loss, None, scale)
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


def test_precisions_are_those_of_the_configuration() -> None:
    assert configuration.PRECISIONS == model.PRECISIONS


@pytest.mark.parametrize("precision", model.PRECISIONS)
def test_only_float32_itself_computes_products_with_all_of_its_bits(precision: str) -> None:
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        policy = model.use_precision(precision)
        assert tf.config.experimental.tensor_float_32_execution_enabled() == (precision != "float32")
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
    assert policy == {"tf32": "float32"}.get(precision, precision)
