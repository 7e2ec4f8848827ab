"""The measured step is the trainer's, to the bit; it can be traced by others, and XLA compiles no shape twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.step.modes import XlaMetrics, in_mode
from xttsbench.targets.configuration import MODES
from xttsbench.training.step import OneDeviceStep
from xttsbench.xtts.model.loss import batch_counts

SEED = 7
Batch = dict[str, tf.Tensor]


@pytest.fixture(scope="module")
def batches(make_batch: Callable[..., dict[str, np.ndarray]]) -> list[Batch]:
    """Two short ones and a longer one; what the step does not need is left alone."""
    sizes = [(0, 24), (1, 24), (2, 32)]
    arrays = [make_batch(seed, frames=frames) | {"id": np.arange(8)} for seed, frames in sizes]
    return [{key: tf.constant(value) for key, value in batch.items()} for batch in arrays]


@pytest.fixture(scope="module")
def steps(make_recipe: Any) -> dict[str, OneDeviceStep]:
    return {mode: OneDeviceStep(make_recipe(ema_decay=0.25), mode=mode, seed=SEED) for mode in MODES}


@pytest.fixture(scope="module")
def compilations() -> list[int]:
    """XLA's count of compilations before the first step of :func:`losses`, and after each."""
    return []


ORDER = (0, 0, 2, 1, 2)


@pytest.fixture(scope="module")
def losses(steps: dict[str, OneDeviceStep], batches: list[Batch], compilations: list[int]) -> dict[str, list[float]]:
    found = {mode: [float(steps[mode](batches[number])) for number in ORDER] for mode in ("eager", "graph")}
    metrics = XlaMetrics()
    compilations.append(metrics.read().compiles)
    found["xla"] = []
    for number in ORDER:
        found["xla"].append(float(steps["xla"](batches[number])))
        compilations.append(metrics.read().compiles)
    return found


@pytest.mark.parametrize("mode", ["eager", "graph", pytest.param("xla", marks=pytest.mark.slow)])
def test_it_takes_the_steps_of_the_trainer_to_the_bit(
    trainer_of: Any, make_batch: Any, make_recipe: Any, assert_same: Callable[..., None], mode: str
) -> None:
    trainer = trainer_of(mode)
    measured = OneDeviceStep(make_recipe(ema_decay=0.25, accumulation=3), mode=mode, seed=SEED)
    for number in range(3):
        batch = make_batch(number)
        loss = float(measured({key: tf.constant(value) for key, value in batch.items()}))
        assert loss == trainer(batch, number)[0]
    assert_same(trainer.arrays(), measured.state.weights() | measured.state.optimizer())


def test_counts_of_tensors_are_those_of_the_plan(make_batch: Any, make_recipe: Any, counts_of: Any) -> None:
    for seed in range(4):
        batch = make_batch(seed)
        found = batch_counts({key: tf.constant(value) for key, value in batch.items()}, make_recipe().model)
        assert tuple(float(count) for count in found) == tuple(counts_of(batch))


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_all_modes_take_the_same_steps_with_one_trace(
    steps: dict[str, OneDeviceStep], losses: dict[str, list[float]], mode: str
) -> None:
    np.testing.assert_allclose(losses[mode], losses["eager"], atol=1e-4)
    assert len(set(losses["eager"])) == len(ORDER)  # dropout goes by the step
    assert steps[mode].function.experimental_get_tracing_count() == 1


def test_xla_compiles_a_new_shape_once(losses: dict[str, list[float]], compilations: list[int]) -> None:
    if not XlaMetrics().available:
        pytest.skip(XlaMetrics().reason)
    assert losses
    # Two parts of the conditioning, the decoder and the update; then the decoder, for only its shape is new.
    assert np.diff(compilations).tolist() == [4, 0, 1, 0, 0]


def test_all_arithmetic_of_xla_is_compiled(steps: dict[str, Any], losses: dict[str, list[float]]) -> None:
    assert losses
    (trace,) = steps["xla"].function._list_all_concrete_functions()
    graph = trace.graph.as_graph_def()
    compiled = {function.signature.name for function in graph.library.function if function.attr["_XlaMustCompile"].b}
    outside = [function for function in graph.library.function if function.signature.name not in compiled]
    nodes = [*graph.node, *(node for function in outside for node in function.node_def)]
    assert sum(node.attr["_XlaMustCompile"].b for node in nodes) == 4
    arithmetic = {"MatMul", "BatchMatMulV2", "Softmax", "Sqrt", "Exp", "ResourceApplyAdam"}
    assert not arithmetic & {node.op for node in nodes}


@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=pytest.mark.slow)])
def test_whoever_has_an_eager_step_can_compile_it(
    make_recipe: Any, batches: list[Batch], losses: dict[str, list[float]], mode: str
) -> None:
    eager = OneDeviceStep(make_recipe(ema_decay=0.25), mode="eager", seed=SEED)
    compiled = in_mode(eager, mode)
    assert eager.function is None
    np.testing.assert_allclose([float(compiled(batches[0])) for _ in range(2)], losses["eager"][:2], atol=1e-4)


def test_a_compiled_step_can_be_run_eagerly(
    steps: dict[str, Any], batches: list[Batch], losses: dict[str, list[float]]
) -> None:
    assert losses
    tf.config.run_functions_eagerly(True)
    try:
        assert np.isfinite(float(steps["xla"](batches[0])))
    finally:
        tf.config.run_functions_eagerly(False)


def test_the_seed_decides_weights_and_dropout(make_recipe: Any, batches: list[Batch]) -> None:
    def first(seed: int, updates: int = 0) -> float:
        step = OneDeviceStep(make_recipe(), mode="eager", seed=seed)
        step.state.replicas[0].updates.assign(updates)
        return float(step(batches[0]))

    assert first(0) == first(0)
    assert first(0) != first(1)
    assert first(0) != first(0, updates=1)  # the same weights and batch: dropout goes by the step's number


def test_the_loss_falls(make_recipe: Any, batches: list[Batch]) -> None:
    step = OneDeviceStep(make_recipe(optimizer={"learning_rate": 1e-2}), mode="graph")
    found = [float(step(batches[0])) for _ in range(30)]
    assert np.mean(found[-3:]) < 0.6 * found[0]
