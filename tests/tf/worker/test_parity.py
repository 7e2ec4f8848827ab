"""The rung of parity: equal data are equal, other data are shown where they differ, and one arm's death is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.batches import ExhaustedError
from xttsbench.worker.parity import run_parity

TARGET = """
import random
import numpy as np
import tensorflow as tf


def make(offset=0.0, at=0, count=None, seed=None, width=3, act=None, tiny=0.0):
    if act == "once" and tf.__dict__.setdefault("_called_by_the_test", []):
        raise RuntimeError("can be set only once")
    if act == "once":
        tf._called_by_the_test.append(True)  # as thread settings: of the process, not of the module
    if act == "build":
        raise ValueError("no such file")

    def element(index):
        value = tf.cast(index, tf.float32) + tf.where(index == at, offset, 0.0) + tiny
        return {"id": tf.stack([index, index + 100]), "x": tf.fill([2, width], value)}

    dataset = tf.data.Dataset.range(1000 if count is None else count).map(element)
    if seed == "none":
        salt = random.SystemRandom().random()
        dataset = dataset.map(lambda e: e | {"x": e["x"] + salt})
    if seed == "global":
        dataset = dataset.shuffle(50).map(lambda e: e | {"x": e["x"] + tf.random.uniform([2, width])})
    if act == "read":
        dataset = dataset.map(lambda e: e | {"x": tf.debugging.check_numerics(e["x"] / 0.0, "broken")})
    return dataset
"""


@pytest.fixture
def parity(bench, tmp_path: Path):
    """``parity(kwargs, **others)``: what the rung says of them."""
    (tmp_path / "mine.py").write_text(TARGET)
    target = f"{tmp_path}/mine.py:make"

    def run(kwargs, *, steps=5, **others):
        import tensorflow as tf

        spec = TrialSpec(
            trial_id="0", rung="parity", target=target, kwargs=kwargs, others=others, arm="first", steps=steps
        )
        tf.keras.utils.set_random_seed(spec.seed)
        run_parity(spec, load_target(parse_target(target), kwargs), None, bench)
        return bench.channel.record().parity

    return run


def test_equal_data_are_the_same_to_within_the_tolerance(parity):
    found = parity({}, equal={}, rounded={"tiny": 5e-5})
    assert found.same == ("equal", "rounded")
    assert (found.batches, found.tolerance, found.reproducible) == (5, 1e-4, True)
    assert (found.differences, found.failed) == ({}, {})


def test_other_data_are_shown_with_clip_and_values(parity):
    found = parity({}, changed={"offset": 0.5, "at": 3}, wide={"width": 4}, later={"offset": 0.5, "at": 7})
    assert found.same == ("later",)  # only the first batches are compared
    assert found.differences["changed"].startswith("batch 3, x: row 0 (clip 3), position 0: 3 against 3.5")
    assert found.differences["wide"] == "batch 0, x: shape [2, 3] against [2, 4]"


def test_data_that_end_earlier_or_later_differ(parity):
    assert parity({}, short={"count": 3}).differences["short"].startswith("batch 3: the data end here")
    found = parity({"count": 3}, longer={}, equal={"count": 3})
    assert found.differences["longer"].startswith("batch 3: the data go on")
    assert (found.same, found.batches) == (("equal",), 3)


def test_seeded_randomness_is_the_same_in_each(parity):
    found = parity({"seed": "global"}, again={"seed": "global"}, other={"seed": "global", "offset": 9.0, "at": 0})
    assert found.reproducible
    assert found.same[0] == "again"


def test_data_that_differ_from_pass_to_pass_cannot_be_compared(parity):
    found = parity({"seed": "none"}, again={"seed": "none"})
    assert not found.reproducible
    assert found.why_not.startswith("batch 0, x: ")
    assert (found.same, found.differences) == ((), {})


def test_a_target_that_can_be_called_once_cannot_be_compared(parity):
    found = parity({"act": "once"}, other={})
    assert not found.reproducible
    assert "can be set only once" in found.why_not


def test_an_arm_that_fails_costs_only_itself(parity):
    found = parity({}, unbuilt={"act": "build"}, unread={"act": "read"}, misspelt={"ofset": 1}, fine={})
    assert found.same == ("fine",)
    assert "no such file" in found.failed["unbuilt"]
    assert "InvalidArgumentError" in found.failed["unread"]
    assert "ofset" in found.failed["misspelt"]
    assert found.differences == {}


def test_what_is_known_is_sent_after_each_arm(parity, bench):
    parity({}, one={}, two={}, three={})
    sent = [message["value"] for message in bench.channel.messages if message.get("part") == "parity"]
    assert [len(value["same"]) for value in sent] == [0, 1, 2, 3]
    phases = [message["phase"] for message in bench.channel.messages if "phase" in message]
    assert phases[0] == "reading first"
    assert "reading two" in phases


def test_a_baseline_without_data_is_told(parity):
    with pytest.raises(ExhaustedError):
        parity({"count": 0}, other={})
