"""Batches of a loop that runs again: what of them is kept for their fingerprints."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from xttsbench.worker.script.again.own_batches import Kept, RunningElements, tensors_of
from xttsbench.worker.script.own_batches import joined, kind_of


def kept(passes: list[int], *, steps: int = 3, window_s: float = 100.0) -> Kept:
    """What is kept of passes of so many batches, each an array of the same memory."""
    found, memory = Kept(SimpleNamespace(steps=steps, epochs=2, window_s=window_s)), np.zeros([2, 3])
    for size in passes:
        for _ in range(size):
            memory += 1
            found.add((memory, memory[:, 0]))
        found.end_pass()
    return found


def test_each_pass_is_kept_from_its_begin_and_its_batches_are_copies():
    found = kept([2, 5])
    assert [[float(x[0, 0]) for x, _ in one] for one in found.passes[:2]] == [[1, 2], [3, 4, 5]]
    assert found._cut == {1}, "the second pass has more batches than are kept"
    assert [len(list(found)) for _ in range(2)] == [2, 3], "iterated pass by pass, as a dataset"


def test_no_more_is_kept_once_the_time_is_over_but_one_batch_always_is():
    found = kept([3], window_s=0.0)
    assert (found.enough, [len(one) for one in found.passes]) == (True, [1])
    assert found._cut == {0}


def test_lists_become_tuples_as_in_a_dataset():
    assert isinstance(tensors_of([np.zeros(2), np.ones(2)]), tuple)


def test_what_a_batch_is_made_of():
    arrays = np.zeros([2]), np.float32(1)
    assert (kind_of(arrays), kind_of([*arrays]), kind_of((arrays[0], "text"))) == ("arrays", "lists of arrays", None)
    assert kind_of(tensors_of(arrays)) == "tensors"
    assert kind_of((arrays[0], tensors_of(arrays[0]))) is None


def test_sizes_that_vary_are_left_open():
    one = "(tf.TensorSpec((None, 3, 8), tf.float32), tf.TensorSpec((None,), tf.int64))"
    assert joined(one, one.replace("3, 8", "5, 8")) == one.replace("3, 8", "None, 8")
    assert joined(one, one.replace("3, 8", "5")) is None
    assert joined(one, None) is None


def test_a_script_that_raises_before_there_is_enough_shows_nothing():
    trial = RunningElements.__new__(RunningElements)
    trial._kept, trial._failed, trial._read, trial._began = kept([1]), None, True, None
    assert trial.failure(None) is None
    assert "no such op" in trial.failure(ValueError("no such op"))["cause"]
    trial._failed, trial._kept.enough = None, True
    assert trial.failure(ValueError("no such op")) is None
