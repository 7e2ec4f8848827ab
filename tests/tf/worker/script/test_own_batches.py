"""Batches that a script makes without a dataset: the loop is seen, its waits are told, and what makes them is named."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.worker.script.own_batches import signature_of


@pytest.mark.parametrize(
    ("how", "text", "maker"),
    [
        ("class", "for x, y in", "Clips.__next__"),
        ("generator", "for x, y in", "generated"),
        ("queue", "x, y = ready.get()", "fill"),
        ("index", "features = make(step)[0]", "make"),
        ("inline", "make(step)", "make"),
    ],
)
def test_batches_of_the_script_s_own_are_told(watched, how, text, maker):
    ran = watched("own_batches.py", how, afterwards=False, steps=20, window_s=3.0)
    script = ran.part("script")
    own = script["own_batches"]
    assert own["text"].startswith(text)
    assert (own["maker_name"], own["elsewhere"]) == (maker, how == "queue")
    assert own["signature"] == "(tf.TensorSpec((None, 32), tf.float32), tf.TensorSpec((None, 1), tf.float32))"
    assert script["trains"]
    assert script["ended"] == "stopped"
    assert script["iterations"] == [f"{own['text']} (no tf.data.Dataset)"]
    assert len(ran.column("as_is", "wait_ns")) >= 10
    assert 15.0 < ran.median_ms("as_is", "wait_ns") < 10 * 20.0
    assert set(ran.column("as_is", "batch_size")) == {16}


def test_a_dataset_in_a_generator_of_the_script_s_is_told_by_its_own_requests(watched):
    script = watched("own_batches.py", "dataset", afterwards=False, steps=20, window_s=3.0).part("script")
    assert script["own_batches"] is None
    assert script["iterations"] == ["next()"]
    assert script["data"] is not None


def test_what_a_loader_raises_reaches_the_script_as_it_is(watched):
    ran = watched("own_batches.py", "raises", afterwards=False)
    (cause,) = [message["cause"] for message in ran.messages if message.get("status") == "raised"]
    assert cause.startswith("ValueError: clip 3 cannot be read")
    assert ran.code == 1


@pytest.mark.parametrize(
    ("batch", "signature"),
    [
        (np.zeros([2, 3]), "tf.TensorSpec((None, 3), tf.float64)"),
        ([np.zeros([2], np.int32)], "(tf.TensorSpec((None,), tf.int32),)"),
        ({"a": tf.zeros([2, 1]), "b": np.float32(1)}, "{'a': tf.TensorSpec((None, 1), tf.float32), "
         "'b': tf.TensorSpec((), tf.float32)}"),
        ((np.zeros([2]), "text"), None),
    ],
)  # fmt: skip
def test_the_signature_of_a_batch_is_code_that_a_generator_takes(batch, signature):
    found = signature_of(batch)
    assert found == signature
    if found is not None:
        given = eval(found, {"tf": tf})
        dataset = tf.data.Dataset.from_generator(
            lambda: iter([tuple(batch) if isinstance(batch, list) else batch]), output_signature=given
        )
        assert len(list(dataset)) == 1
