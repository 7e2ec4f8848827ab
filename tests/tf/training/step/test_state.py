"""The state as arrays: every variable by one name, restored bit for bit, and refused where it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError

Numbers = dict[str, np.ndarray]


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
