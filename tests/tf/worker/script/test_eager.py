from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from xttsbench.worker.script.eager import PythonStep


def _looked(batch: Any, loop: Callable[[], Any]) -> list[tuple[Callable[[Any], Any], str]]:
    found: list[tuple[Callable[[Any], Any], str]] = []
    looking = PythonStep(lambda step, place: found.append((step, place)))
    looking.begin(batch)
    try:
        loop()
    finally:
        looking.end()
    assert sys.getprofile() is None
    return found


def _pair() -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])


class Model:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def train(self, inputs: Any, *, targets: Any, rate: float = 0.5) -> Any:
        return tf.reduce_sum(inputs * self.weight + targets * rate)


def _ways() -> dict[str, Callable[[Any], Any]]:
    model = Model(10.0)
    offset = tf.constant(100.0)

    def closure(batch: Any) -> Any:
        inputs, targets = batch
        return tf.reduce_sum(inputs + targets) + offset

    def outer(batch: Any) -> Any:
        return inner(*batch) + 1.0

    def inner(inputs: Any, targets: Any) -> Any:
        return tf.reduce_sum(inputs - targets)

    def several(*parts: Any, **named: Any) -> Any:
        return tf.add_n([tf.reduce_sum(part) for part in parts]) * named["scale"]

    return {
        "closure": closure,
        "method": lambda batch: model.train(batch[0], targets=batch[1]),
        "outermost": outer,
        "stars": lambda batch: several(*batch, scale=2.0),
    }


@pytest.mark.parametrize("way", _ways())
def test_the_function_that_takes_the_batch_is_found_and_runs_on_another_one(way: str) -> None:
    call = _ways()[way]
    batch = _pair()
    ((step, place),) = _looked(batch, lambda: call(batch))
    assert __file__ in place
    other = (tf.constant([5.0, 6.0]), tf.constant([-1.0, 0.5]))
    assert float(step(other)) == float(call(other))
    if way == "outermost":
        assert place.startswith("outer (")


def test_a_function_that_takes_a_part_of_the_batch_is_not_the_step() -> None:
    batch = _pair()

    def part(inputs: Any) -> Any:
        return tf.reduce_sum(inputs)

    assert _looked(batch, lambda: part(batch[0])) == []


def test_what_the_function_raises_is_the_script_s(recwarn: pytest.WarningsRecorder) -> None:
    batch = _pair()

    def raises(_: Any) -> None:
        raise ValueError("by the step")

    with pytest.raises(ValueError, match="by the step"):
        _looked(batch, lambda: raises(batch))


def test_a_profiler_of_the_script_s_own_is_left_alone() -> None:
    seen = []

    def own(frame: Any, event: str, _: Any) -> None:
        seen.append(event)

    def takes(batch: Any) -> Any:
        return batch

    found: list[Any] = []
    looking = PythonStep(lambda *args: found.append(args))
    sys.setprofile(own)
    try:
        looking.begin(_pair())
        takes(_pair())
        looking.end()
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)
    assert found == []
    assert seen
