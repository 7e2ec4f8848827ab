"""One replica's step: the numbers of Keras's Adam in all modes, parts that add up, and steps that are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.targets.configuration import MODES
from xttsbench.training.step import Shape
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.model.loss import losses_and_gradients
from xttsbench.xtts.model.speech_model import SpeechModel

Numbers = dict[str, np.ndarray]


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_all_modes_take_the_same_steps(
    trainer_of: Any, run_three: Any, one_replica: Any, assert_same: Callable[..., None], mode: str
) -> None:
    said, weights = run_three(trainer_of(mode))
    np.testing.assert_allclose(said, one_replica[0], rtol=1e-5)
    assert_same(one_replica[1], weights, atol=5e-6)


@pytest.mark.parametrize(
    "training",
    [
        pytest.param({"accumulation": 4}, id="accumulation 4"),
        pytest.param({"accumulation": 8}, id="accumulation 8", marks=pytest.mark.slow),
        pytest.param({"gradient_checkpointing": True}, id="gradient checkpointing"),
    ],
)
def test_neither_division_nor_computing_again_changes_the_step(
    make_trainer: Any, run_three: Any, one_replica: Any, assert_same: Callable[..., None], training: dict[str, Any]
) -> None:
    said, weights = run_three(make_trainer(**training))
    np.testing.assert_allclose(said, one_replica[0], rtol=1e-6, atol=1e-6)
    assert_same(one_replica[1], weights, atol=1e-6)


def test_the_steps_are_those_of_keras_adam(trainer_of: Any, make_batch: Any, make_recipe: Any) -> None:
    trainer, recipe = trainer_of("graph"), make_recipe()
    settings, n_mels = recipe.optimizer, recipe.features.n_mels
    theirs = SpeechModel(recipe.model, n_mels, VOCABULARY, seed=7)
    adam = keras.optimizers.Adam(settings.learning_rate, settings.beta_1, settings.beta_2, settings.epsilon)

    @tf.function(autograph=False)
    def keras_step(batch: dict[str, tf.Tensor], number: tf.Tensor) -> tf.Tensor:
        bits = theirs.draw_dropout(batch, tf.stack([7, number]))
        found, gradients = losses_and_gradients(theirs, batch, recipe.loss, bits)
        clipped, _ = tf.clip_by_global_norm(gradients, settings.clip_norm)
        adam.apply(clipped, theirs.trainable_variables)
        return found.total

    for number in range(4):
        batch = make_batch(number)
        loss = float(keras_step({key: tf.constant(value) for key, value in batch.items()}, tf.constant(number)))
        assert trainer(batch, number)[0] == pytest.approx(loss, rel=1e-6)
    for ours, other in zip(trainer.state.model.trainable_variables, theirs.trainable_variables, strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=1e-6)


def test_the_gradient_is_clipped_by_its_norm_over_all_parts(make_trainer: Any, make_batch: Any, counts_of: Any) -> None:
    # Nothing of Adam's normalisation is left, so that the size of an update is that of the clipped gradient.
    plain = {"clip_norm": 0.1, "epsilon": 1.0, "beta_1": 0.0, "beta_2": 0.0}
    trainer, batch = make_trainer(accumulation=2, optimizer=plain), make_batch(0)
    start = trainer.state.weights()
    whole = {key: tf.constant(value) for key, value in batch.items()}
    bits = trainer.state.model.draw_dropout(whole, tf.constant([7, 0]))
    _, gradients = losses_and_gradients(trainer.state.model, whole, trainer.recipe.loss, bits)
    norm = np.sqrt(sum(np.sum(np.square(gradient)) for gradient in gradients))
    assert norm > 0.1
    assert trainer(batch, 0, rate=1.0)[4] == pytest.approx(norm, rel=1e-5)
    for (name, before), gradient in zip(start.items(), gradients, strict=True):
        g = gradient.numpy() * 0.1 / norm
        moved = trainer.state.weights()[name] - before
        np.testing.assert_allclose(moved, -g / (np.abs(g) + 1), rtol=1e-3, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_whose_gradient_is_no_number_changes_nothing(
    trainer_of: Any, make_batch: Any, assert_same: Callable[..., None], mode: str
) -> None:
    trainer = trainer_of(mode)
    trainer(make_batch(0), 0)
    before = trainer.arrays()
    for value in (np.nan, np.inf):
        spoilt = make_batch(1)
        spoilt["mel"][-1, 2, 3] = value
        *said, applied = trainer(spoilt, 1)
        assert not applied
        assert not np.isfinite(said[0])
        assert_same(before, trainer.arrays())
    assert trainer(make_batch(2), 2)[-1] == 1
    assert trainer.arrays()["updates"] == 2


@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=pytest.mark.slow)])
def test_a_warm_up_traces_all_shapes_and_changes_nothing(
    trainer_of: Any, make_batch: Any, assert_same: Callable[..., None], mode: str
) -> None:
    trainer = trainer_of(mode)
    trainer(make_batch(0), 0)
    before = trainer.arrays()
    shapes = [trainer.shape, Shape(4, 16, 8, 8)]
    assert trainer.step.warm_up(shapes) > 0
    assert_same(before, trainer.arrays())
    assert trainer.step.function.experimental_get_tracing_count() == 1
    said = trainer(make_batch(1), 1, learn=False)
    assert_same(before, trainer.arrays())
    assert trainer(make_batch(1), 1)[:-1] == said[:-1]  # the same step, taken


def test_an_overflow_halves_the_loss_scale_and_good_steps_double_it(
    make_trainer: Any, make_batch: Any, one_replica: Any, assert_same: Callable[..., None]
) -> None:
    trainer = make_trainer(precision="mixed_float16")
    assert trainer.state.loss_scale == 2.0**15
    before = trainer.arrays()
    trainer.step.warm_up([trainer.shape])
    assert_same(before, trainer.arrays())

    def after(number: int, **counters: float) -> tuple[float, float | None, int]:
        optimizer = trainer.state.optimizer()
        changed = {name: optimizer[name].dtype.type(value) for name, value in counters.items()}
        trainer.state.restore(trainer.state.weights(), optimizer | {k: np.asarray(v) for k, v in changed.items()})
        applied = trainer(make_batch(number), number)[-1]
        return applied, trainer.state.loss_scale, int(trainer.state.optimizer()["good_steps"])

    said = trainer(make_batch(0), 0)
    assert said[4] == pytest.approx(one_replica[0][0, 4], rel=1e-2)  # the norm is without the scale
    trainer.reset()
    assert after(0) == (1, 2.0**15, 1)
    assert after(1, loss_scale=2.0**60) == (0, 2.0**59, 0)
    assert after(2, loss_scale=2.0**15) == (1, 2.0**15, 1)
    assert after(3, good_steps=1998) == (1, 2.0**15, 1999)
    assert after(4) == (1, 2.0**16, 0)
    assert trainer.state.optimizer()["updates"] == 4


def test_the_average_is_the_closed_form(trainer_of: Any, make_batch: Any, assert_same: Callable[..., None]) -> None:
    trainer = trainer_of("graph")
    expected = trainer.state.weights()
    for number in range(3):
        trainer(make_batch(number), number)
        decay = min(0.25, (2 + number) / (11 + number))  # 0.18, 0.25 and 0.25
        weights = trainer.state.weights()
        expected = {name: decay * value + (1 - decay) * weights[name] for name, value in expected.items()}
    found = {name: trainer.state.optimizer()[f"average/{name}"] for name in expected}
    assert_same(expected, found, atol=1e-6)
    with trainer.state.averaged():
        assert_same(found, trainer.state.weights())
    assert_same(weights, trainer.state.weights())


def test_every_weight_has_a_name_and_the_optimizer_has_the_rest(make_trainer: Any) -> None:
    state = make_trainer(mode="eager", ema_decay=0.9, precision="mixed_float16").state
    weights, optimizer = state.weights(), state.optimizer()
    assert len(weights) == len(state.model.trainable_variables) == len(state.model.variables)
    for array, variable in zip(weights.values(), state.model.trainable_variables, strict=True):
        np.testing.assert_array_equal(array, variable)
    assert {"block_0/feed_forward/expand", "block_1/feed_forward/expand", "conditioning/perceiver_0/out"} <= set(
        weights
    )
    slots = {f"{slot}/{name}" for slot in ("first_moment", "second_moment", "average") for name in weights}
    assert set(optimizer) == slots | {"updates", "loss_scale", "good_steps"}


@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=pytest.mark.slow)])
def test_a_restored_run_goes_on_bit_for_bit(
    trainer_of: Any, make_batch: Any, assert_same: Callable[..., None], mode: str
) -> None:
    trainer = trainer_of(mode)
    for number in range(2):
        trainer(make_batch(number), number)
    kept = trainer.state.weights(), trainer.state.optimizer()
    said = [trainer(make_batch(number), number) for number in (2, 3)]
    whole = trainer.arrays()
    trainer.reset()
    trainer.state.restore(*kept)
    assert [trainer(make_batch(number), number) for number in (2, 3)] == said
    assert_same(whole, trainer.arrays())


def test_another_state_that_is_restored_goes_on_bit_for_bit(
    make_trainer: Any, make_batch: Any, assert_same: Callable[..., None]
) -> None:
    whole, resumed = (make_trainer(mode="eager", precision="mixed_float16", seed=seed) for seed in (7, 8))
    resumed.step.seed = whole.step.seed
    whole(make_batch(0), 0)
    resumed.state.restore(whole.state.weights(), whole.state.optimizer())
    assert resumed(make_batch(1), 1) == whole(make_batch(1), 1)
    assert_same(whole.arrays(), resumed.arrays())


def without(arrays: Numbers, name: str) -> Numbers:
    return {key: value for key, value in arrays.items() if key != name}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w, o: (without(w, "heads/stop"), o), "weights lacks heads/stop"),
        (lambda w, o: (w | {"other": w["heads/stop"]}, o), "weights has too much: other"),
        (
            lambda w, o: (w | {"heads/stop": w["heads/stop"].T}, o),
            r"heads/stop as float32\[1, 16\], .* float32\[16, 1\]",
        ),
        (lambda w, o: (w, o | {"updates": np.float32(1)}), r"updates as float32\[\], .* int64\[\]"),
        (lambda w, o: (w, without(o, "updates")), "optimizer lacks updates"),
        (lambda w, o: (w, o | {"loss_scale": np.float32(1)}), "optimizer has too much: loss_scale"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(
    make_trainer: Any, assert_same: Callable[..., None], change: Any, sentence: str
) -> None:
    state = make_trainer(mode="eager").state
    before = state.weights() | state.optimizer()
    other = {name: array + 1 for name, array in state.weights().items()}
    with pytest.raises(InvalidInputError, match=sentence):
        state.restore(*change(other, state.optimizer()))
    assert_same(before, state.weights() | state.optimizer())


def test_without_averages_the_model_keeps_its_weights(make_trainer: Any, assert_same: Callable[..., None]) -> None:
    state = make_trainer(mode="eager").state
    weights = state.weights()
    with state.averaged():
        assert_same(weights, state.weights())
    assert state.loss_scale is None


def test_an_error_inside_gives_the_weights_back(
    trainer_of: Any, make_batch: Any, assert_same: Callable[..., None]
) -> None:
    trainer = trainer_of("eager")
    trainer(make_batch(0), 0)
    before = trainer.arrays()
    with pytest.raises(ZeroDivisionError), trainer.state.averaged():
        raise ZeroDivisionError
    assert_same(before, trainer.arrays())
