"""The rung of fingerprints with a fix of the step: what it trains, and what speaks against one graph of it."""

from __future__ import annotations

import itertools

import pytest
import tensorflow as tf

from xttsbench.records.trial import TrialSpec
from xttsbench.samedata.judge import judge
from xttsbench.targets.load import Loaded
from xttsbench.worker.fingerprint import run_elements
from xttsbench.worker.ladder import fixed

pytestmark = pytest.mark.tf


@pytest.fixture
def take(bench):
    """``take(step, fix)``: the record of one run of a step with a fix."""

    def run(step, fix):
        dataset = tf.data.Dataset.range(64).map(lambda i: tf.cast(i, tf.float32)).batch(4)
        spec = TrialSpec(
            trial_id="0", rung="elements", target="t:t", fix=fix, steps=50, epochs=1, window_s=30.0, source_limit=40
        )
        loaded, changed = fixed(Loaded("dataset+step", dataset, step), step, spec)
        run_elements(spec, loaded, changed, bench, dataset)
        return bench.channel.record().elements

    return run


def test_a_log_that_a_graph_would_lose_speaks_against_it_though_the_losses_are_the_same(take) -> None:
    log = []

    def step(batch):
        log.append(1)
        return tf.reduce_mean(batch)

    given = take(step, None)
    changed = take(step, "step:graph")
    assert given.losses == changed.losses
    assert given.objections == ()
    (why,) = changed.objections
    assert "once, while it is traced" in why
    assert "append() of the captured list 'log'" in why
    assert take(step, "prefetch").objections == ()
    assert take(step, "prefetch + step:xla").objections == (why,)


def test_a_graph_that_would_keep_the_first_learning_rate_trains_otherwise(take) -> None:
    def made():
        weight, rates = tf.Variable(1.0), iter(0.1 / number for number in itertools.count(1))

        def step(batch):
            weight.assign_sub(next(rates))
            return weight * tf.reduce_mean(batch)

        return step

    given, changed = take(made(), None), take(made(), "step:graph")
    assert given.losses == take(made(), None).losses
    assert changed.losses[0] == given.losses[0]
    found = judge([given, given, given], changed)
    assert found.equivalent is False, found


def test_variables_speak_against_nothing(take) -> None:
    weight = tf.Variable(1.0)

    def step(batch):
        weight.assign_sub(0.1)
        return weight * tf.reduce_mean(batch)

    assert take(step, "step:graph").objections == ()


def test_what_is_a_graph_already_has_lost_its_log_before_any_fix(take) -> None:
    log = []

    @tf.function
    def step(batch):
        log.append(1)
        return tf.reduce_mean(batch)

    assert take(step, "step:xla").objections == ()
