"""The trial that runs an input on one and more workers of a real service on this machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.records.scale import Workers
from xttsbench.records.trial import TrialSpec
from xttsbench.worker.service_workers import run_on_workers


def spec(most: int, window_s: float) -> TrialSpec:
    workers = Workers(most=most, cores=0.25)
    return TrialSpec(trial_id="000-workers", kind="workers", target="t:t", window_s=window_s, workers=workers)


def waits(number: tf.Tensor) -> tf.Tensor:
    from tensorflow.python.data.experimental.ops import testing

    return tf.data.Dataset.from_tensors(number).apply(testing.sleep(20_000))


def test_each_round_has_each_number_of_workers_and_an_input_that_waits_comes_faster_from_two(bench) -> None:
    # Three elements an epoch: the window outlasts it by far.
    loaded = SimpleNamespace(dataset=tf.data.Dataset.range(3).flat_map(waits).prefetch(2))
    run_on_workers(spec(2, 8.0), loaded, None, bench)
    rates = bench.channel.record().workers
    assert [sorted(one.workers for one in rates[at : at + 2]) for at in range(0, len(rates), 2)] == 4 * [[1, 2]]
    assert all(one.wall_s >= 0.9 and one.batches >= 4 for one in rates)
    drawn = {count: sum(one.batches for one in rates if one.workers == count) for count in (1, 2)}
    assert drawn[2] > 1.3 * drawn[1]


@pytest.mark.parametrize("part", [lambda data: data, lambda data: tf.data.Dataset.range(4).cache().batch(2)])
def test_an_input_of_which_a_part_cannot_leave_is_refused(bench, part) -> None:
    held = tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_signature=tf.TensorSpec([], tf.int32))
    with pytest.raises(InvalidInputError, match="does not apply"):
        run_on_workers(spec(1, 1.0), SimpleNamespace(dataset=part(held)), None, bench)
