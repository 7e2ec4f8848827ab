"""What one rank of a job adds to the graphs that it traces, and what it keeps of a long run."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from xttsbench.worker.script.ranks import Rank
from xttsbench.worker.script.sample_hashes import hashes, leaves_of


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def rank(notes: list[str], monkeypatch: pytest.MonkeyPatch) -> Rank:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 0}}')
    watched: Any = SimpleNamespace(note_once=notes.append, on_poll=None, on_epoch=None)
    patches: Any = SimpleNamespace(put=lambda *_: None)
    return Rank(watched, patches)


def test_a_graph_looks_at_a_batch_and_then_waits_as_long_as_its_share_asks(rank: Rank) -> None:
    batch = tf.random.normal([512, 2000]), tf.range(512)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        rank._traced((x, y))
        return tf.reduce_sum(x)

    for _ in range(3):
        step(*batch)
    rank._drain_looks()
    ((key, found),) = rank._passes.items()
    assert (key, found.batches, found.samples) == (("step", 0), 3, 3 * 512)
    assert found.looked in (512, 1024)  # once, or twice where this process was held up
    assert len(set(found.hashes)) == 512


def test_parts_of_a_ragged_batch_do_not_fail_the_step(rank: Rank, notes: list[str]) -> None:
    ragged = tf.RaggedTensor.from_row_lengths(tf.random.normal([7]), [3, 0, 4])
    batch = tf.random.normal([3, 5]), ragged

    @tf.function(input_signature=[tf.TensorSpec([None, 5]), tf.RaggedTensorSpec([None, None], tf.float32)])
    def step(x: tf.Tensor, y: tf.RaggedTensor) -> tf.Tensor:
        rank._traced((x, y))
        return tf.reduce_sum(x)

    step(*batch)
    rank._drain_looks()
    (found,) = rank._passes.values()
    assert (found.looked, notes) == (3, [])
    assert len(hashes(leaves_of(batch))) == 3


def test_what_fails_while_it_is_told_is_noted(rank: Rank, notes: list[str]) -> None:
    rank._looks.append(("f", None))  # type: ignore[arg-type]
    rank._watched.on_epoch()  # type: ignore[misc]
    assert "AttributeError" in notes[0]


def test_the_first_of_many_passes_keeps_its_hashes(rank: Rank) -> None:
    for number in range(100):
        rank._keep(("loop", number), hashes([tf.range(1000)]))
    assert rank._below == 1 << 52
    rank._keep(("loop", 100), hashes([tf.range(5000)]))
    assert rank._below == 1 << 51


def test_a_collective_that_ends_while_places_are_read_is_numbered_with_the_next(rank: Rank) -> None:
    now = time.perf_counter_ns()
    later = now, now + 3600 * 10**9, False
    rank._intervals = [later, (now, now, False)]
    assert (rank._drain(), rank._intervals) == ([(now, now, False)], [later])
