"""The training step: the same numbers in all modes, one trace, one compilation for a shape, and it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import shipped
from xttsbench.step.xla_metrics import XlaMetrics
from xttsbench.xtts import model
from xttsbench.xtts.recipe import Recipe, load_recipe
from xttsbench.xtts.text import VOCABULARY

TINY = load_recipe(shipped("training", "tiny"))
N_MELS = 5


def recipe(**optimizer: float) -> Recipe:
    """Return tiny's recipe with a model that compiles in seconds."""
    sizes = {"d_model": 16, "feed_forward": 32, "prenet": (16,), "latents": 3, "conditioning_layers": 0}
    sizes |= {"layers": 2, "guided_layers": 1}
    return TINY.model_copy(
        update={
            "features": TINY.features.model_copy(update={"n_mels": N_MELS}),
            "model": TINY.model.model_copy(update=sizes),
            "optimizer": TINY.optimizer.model_copy(update=optimizer),
        }
    )


def batch(steps: int = 6, seed: int = 0) -> dict[str, tf.Tensor]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 9, 3).astype(np.int32)
    arrays = {
        "id": np.arange(3, dtype=np.int32),
        "text": np.where(np.arange(8) < lengths[:, None], rng.integers(1, VOCABULARY, (3, 8)), 0).astype(np.int32),
        "text_length": lengths,
        "mel": rng.normal(-5, 2, (3, 4 * steps, N_MELS)).astype(np.float32),
        "mel_length": rng.integers(4 * steps - 6, 4 * steps + 1, 3).astype(np.int32),
        "reference": rng.normal(-5, 2, (3, 8, N_MELS)).astype(np.float32),
        "reference_start": np.array([-1, 3, -1], np.int32),
    }
    return {key: tf.constant(value) for key, value in arrays.items()}


SHORT, LONG = batch(6), batch(8, seed=1)


@pytest.fixture(scope="module")
def steps() -> dict[str, model.TrainStep]:
    return {mode: model.make_train_step(recipe(), mode, seed=7) for mode in model.MODES}


ORDER = (SHORT, SHORT, LONG, SHORT, LONG)


@pytest.fixture(scope="module")
def compilations() -> list[int]:
    """XLA's count of compilations before the first step of :func:`losses`, and after each."""
    return []


@pytest.fixture(scope="module")
def losses(steps: dict[str, model.TrainStep], compilations: list[int]) -> dict[str, list[float]]:
    found = {mode: [float(steps[mode](b)) for b in ORDER] for mode in ("eager", "graph")}
    metrics = XlaMetrics()
    compilations.append(metrics.read().compiles)
    found["xla"] = []
    for b in ORDER:
        found["xla"].append(float(steps["xla"](b)))
        compilations.append(metrics.read().compiles)
    return found


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_a_compiled_mode_takes_the_steps_of_eager(losses: dict[str, list[float]], mode: str) -> None:
    np.testing.assert_allclose(losses[mode], losses["eager"], atol=1e-4)
    assert len(set(losses["eager"])) == 5


def test_xla_leaves_the_weights_of_eager(steps: dict[str, Any], losses: dict[str, list[float]]) -> None:
    eager, xla = (np.concatenate([np.ravel(w) for w in steps[mode].model.weights]) for mode in ("eager", "xla"))
    start = np.concatenate([np.ravel(w) for w in model.build(recipe().model, N_MELS, VOCABULARY, seed=7).weights])
    assert losses
    assert np.linalg.norm(xla - eager) < 0.01 * np.linalg.norm(eager - start)


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_one_trace_serves_all_shapes(steps: dict[str, Any], losses: dict[str, list[float]], mode: str) -> None:
    assert losses
    assert steps[mode].function.experimental_get_tracing_count() == 1


def test_xla_compiles_a_new_shape_once(losses: dict[str, list[float]], compilations: list[int]) -> None:
    if not XlaMetrics().available:
        pytest.skip(XlaMetrics().reason)
    assert losses
    # Two parts of the conditioning, the decoder and Adam; then the decoder, for only its shape is new.
    assert np.diff(compilations).tolist() == [4, 0, 1, 0, 0]


def test_all_arithmetic_of_xla_is_compiled(steps: dict[str, Any], losses: dict[str, list[float]]) -> None:
    assert losses
    (trace,) = steps["xla"].function._list_all_concrete_functions()
    compiled = {node.name for node in trace.graph.as_graph_def().node if node.attr["_XlaMustCompile"].b}
    assert len(compiled) == 4
    arithmetic = {"MatMul", "BatchMatMulV2", "Softmax", "Sqrt", "Exp"}
    assert not arithmetic & {node.op for node in trace.graph.as_graph_def().node}


def test_the_loss_falls() -> None:
    step = model.make_train_step(recipe(learning_rate=1e-2), "graph", 0)
    found = [float(step(SHORT)) for _ in range(30)]
    assert np.mean(found[-3:]) < 0.6 * found[0]


def test_the_step_is_adams_of_the_clipped_gradients() -> None:
    clipped = recipe(learning_rate=1.0, clip_norm=0.1, epsilon=1.0, beta_1=0.0, beta_2=0.0)
    step = model.make_train_step(clipped, "eager", 3)
    before = [weight.numpy() for weight in step.model.trainable_variables]
    bits = step.model.draw_dropout(SHORT, tf.constant([3, 0]))
    found, gradients = model.losses_and_gradients(step.model, SHORT, clipped.loss, bits)
    assert float(step(SHORT)) == pytest.approx(float(found.total), rel=1e-6)
    norm = np.sqrt(sum(np.sum(np.square(gradient)) for gradient in gradients))
    assert norm > 0.1
    for weight, start, gradient in zip(step.model.trainable_variables, before, gradients, strict=True):
        g = gradient.numpy() * 0.1 / norm
        np.testing.assert_allclose(weight.numpy() - start, -g / (np.abs(g) + 1), rtol=1e-3, atol=1e-7)
    assert int(step.optimizer.iterations) == 1


def test_the_seed_decides_weights_and_dropout() -> None:
    def first(seed: int, step_number: int = 0) -> float:
        step = model.make_train_step(recipe(), "eager", seed)
        step.optimizer.iterations.assign(step_number)
        return float(step(SHORT))

    assert first(0) == first(0)
    assert first(0) != first(1)
    assert first(0) != first(0, step_number=1)  # the same weights and batch: dropout goes by the step's number


def test_an_eager_step_can_be_compiled_by_whoever_has_it() -> None:
    eager, given = (model.make_train_step(recipe(), "eager", 0) for _ in range(2))
    compiled = tf.function(given)
    assert eager.function is None
    assert [float(compiled(SHORT)) for _ in range(2)] == pytest.approx(
        [float(eager(SHORT)) for _ in range(2)], abs=1e-4
    )


def test_a_compiled_step_can_be_run_eagerly(steps: dict[str, Any], losses: dict[str, list[float]]) -> None:
    assert losses
    tf.config.run_functions_eagerly(True)
    try:
        assert np.isfinite(float(steps["xla"](SHORT)))
    finally:
        tf.config.run_functions_eagerly(False)


def test_a_spec_fixes_the_sizes_of_the_trace() -> None:
    spec = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in SHORT.items()}
    step = model.make_train_step(recipe(), "graph", 0, spec=spec | {"id": tf.TensorSpec([3], tf.int32)})
    assert np.isfinite(float(step(SHORT)))
    with pytest.raises(TypeError, match="mel"):
        step(LONG)


def test_what_cannot_be_made_is_named() -> None:
    with pytest.raises(InvalidInputError, match="mode: one of eager, graph, xla is expected, got 'jit'"):
        model.make_train_step(recipe(), "jit", 0)
    spec = {key: tf.TensorSpec(SHORT[key].shape, SHORT[key].dtype) for key in ("id", "mel", "text")}
    with pytest.raises(
        InvalidInputError, match="lack mel_length, reference, reference_start, text_length; they have id"
    ):
        model.make_train_step(recipe(), "graph", 0, spec=spec)
