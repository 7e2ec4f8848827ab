"""The trial that measures what a batch costs on its way through a real service on this machine."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.records.scale import Served
from xttsbench.records.trial import TrialSpec
from xttsbench.service import loopback
from xttsbench.throughput.calibration import calibrated
from xttsbench.worker.failure import ExhaustedError
from xttsbench.worker.service_costs import imitated, run_service


def spec(served: Served | None) -> TrialSpec:
    return TrialSpec(trial_id="000-service", kind="service", target="t:t", window_s=1.0, service=served)


def test_costs_of_both_ways_and_of_splits_are_measured_and_can_be_fitted(bench) -> None:
    batch = {"x": tf.zeros([64, 1000]), "n": tf.constant(7), "r": tf.ragged.constant([[1], [2, 3]])}
    with loopback(1) as cluster:
        served = Served(target=cluster.target, dispatcher=cluster.dispatcher, worker=cluster.workers[0])
        loaded = SimpleNamespace(dataset=tf.data.Dataset.from_tensors(batch))
        run_service(spec(served), loaded, None, bench)
    costs = bench.channel.record().service
    assert {(one.compressed, one.splits, one.paced) for one in costs} == {
        (False, False, False),
        (True, False, False),
        (False, False, True),
        (True, False, True),
        (False, True, False),
    }
    whole = next(one for one in costs if one.paced and not one.compressed)
    assert whole.bytes == 64 * 4000 + 4 + 3 * 4 + 3 * 8
    assert whole.wall_s > 0.02
    small = next(one for one in costs if one.compressed and one.bytes == whole.bytes)
    assert small.wire_bytes < whole.bytes / 4  # zeros
    assert min(min(one.wall_s, one.client_cpu_s, one.worker_cpu_s, one.batches) for one in costs) > 0
    split = next(one for one in costs if one.splits)
    assert split.dispatcher_cpu_s > 3 * min(one.dispatcher_cpu_s for one in costs)
    plain = [one for one in costs if not one.compressed]
    said = calibrated(plain, whole.bytes, 20, np.random.default_rng(0))
    assert 1e-5 < said.worker_cpu_s[0] < 0.1
    assert 1e-5 < said.request_s[0] < 0.1


def test_a_dataset_without_a_batch_has_no_costs(bench) -> None:
    with pytest.raises(ExhaustedError, match="no batch"):
        run_service(spec(None), SimpleNamespace(dataset=tf.data.Dataset.range(0)), None, bench)


def test_an_imitated_batch_has_the_size_of_a_scripts() -> None:
    (batch,) = imitated(4000)
    assert batch.shape[0] * batch.dtype.size == 4000
