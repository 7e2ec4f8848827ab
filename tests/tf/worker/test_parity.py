"""The kind of parity: equal data are equal, other data are shown where they differ, and one arm's death is its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
import yaml

from xttsbench.planning import parity_arms, parity_trial
from xttsbench.records.plan import Comparison, PlannedVariant
from xttsbench.records.trial import Parity, TrialSpec
from xttsbench.shipped import shipped
from xttsbench.targets.load import load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.failure import ExhaustedError
from xttsbench.worker.parity import run_parity
from xttsbench.worker.trial import step_of
from xttsbench.xtts.data.make import make_data

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


def judged(bench, spec: TrialSpec) -> Parity:
    """What the kind says of a trial."""
    tf.keras.utils.set_random_seed(spec.seed)
    loaded = load_target(parse_target(spec.target), spec.kwargs)
    run_parity(spec, loaded, step_of(loaded), bench)
    return bench.channel.record().parity


@pytest.fixture
def of_source(bench, tmp_path: Path):
    """``of_source(text, kwargs, others, **fields)``: what the kind says of a target of one's own."""

    def run(source: str, kwargs, others, **fields) -> Parity:
        (tmp_path / "mine.py").write_text(source)
        own = {"target": f"{tmp_path}/mine.py:make", "kwargs": kwargs, "others": others, "arm": "first"}
        return judged(bench, TrialSpec(trial_id="0", kind="parity", **own, **fields))

    return run


@pytest.fixture
def parity(of_source):
    """``parity(kwargs, **others)``: what is said of data alone."""
    return lambda kwargs, **others: of_source(TARGET, kwargs, others, steps=5)


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


TRAINING_TARGET = """
import itertools
import random
import numpy as np
import tensorflow as tf

calls = itertools.count()


def make(rate=0.1, seed=0, kind="tensor", start="seeded", raises=False, precision="float32", step_seed=None):
    # The data draw from the global generator, as many a user's do, and the arms draw differently often.
    dataset = tf.data.Dataset.range(100).map(lambda i: tf.fill([4], tf.cast(i, tf.float32) + 1.0))
    if start == "any":
        weight = tf.Variable(random.SystemRandom().random() + 1.0)
    else:
        weight = tf.Variable(np.random.default_rng(seed).random() + 1.0, dtype=tf.float32)
    if kind == "model":
        inputs = tf.keras.Input([1])
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
        model.compile(tf.keras.optimizers.SGD(rate), "mse")
        return dataset.map(lambda x: (x[:, None], x[:, None])), model

    def step(batch):
        if raises:
            raise ValueError("a step that cannot")
        with tf.GradientTape() as tape:
            noise = tf.random.uniform([], seed=step_seed) if start == "drawn" else 0.0
            loss = tf.reduce_mean((weight * batch - 1.0 - noise) ** 2)
        weight.assign_sub(rate * tape.gradient(loss, weight))
        answers = {"tensor": loss, "float": float(loss), "numpy": loss.numpy(), "none": None, "text": "done",
                   "dict": {"loss": loss, "norm": weight}, "vector": batch, "count": 7}
        return answers[kind]

    return dataset, step
"""


@pytest.fixture
def losses_parity(of_source):
    """``losses_parity(kwargs, **others)``: what is said of losses, too."""

    def run(kwargs, *, tolerance=1e-3, **others) -> Parity:
        return of_source(TRAINING_TARGET, kwargs, others, steps=3, loss_steps=3, loss_tolerance=tolerance)

    return run


@pytest.mark.parametrize("kind", ["tensor", "float", "numpy", "dict", "model"])
def test_another_learning_rate_is_refused_with_the_step_and_both_losses(losses_parity, kind) -> None:
    rate = {"kind": kind, "rate": 0.01}
    found = losses_parity(rate, same=rate, faster=rate | {"rate": 0.02})
    assert found.same == ("same",)
    assert found.differences["faster"].startswith("step 1: the loss is ")  # the first loss is of equal weights
    assert "the baseline's" in found.differences["faster"]
    assert found.other_losses == ("faster",)
    assert found.losses["same"] < 1e-6
    assert found.losses["faster"] > 1e-3
    assert found.losses_unknown == {}


def test_another_seed_differs_at_once(losses_parity) -> None:
    found = losses_parity({}, other={"seed": 1})
    assert found.differences["other"].startswith("step 0: ")
    assert found.other_losses == ("other",)


def test_a_tolerance_lets_pass_what_is_within_it(losses_parity) -> None:
    arms = {"near": {"rate": 0.0100001}, "far": {"rate": 0.011}}
    assert losses_parity({"rate": 0.01}, **arms).same == ("near",)
    assert losses_parity({"rate": 0.01}, tolerance=0.5, **arms).same == ("near", "far")
    assert set(losses_parity({"rate": 0.01}, tolerance=1e-7, **arms).differences) == {"near", "far"}


def test_chance_that_is_seeded_is_the_same_in_all(losses_parity) -> None:
    assert losses_parity({"start": "drawn"}, again={"start": "drawn"}).same == ("again",)


def test_losses_that_differ_from_run_to_run_refuse_nothing(losses_parity) -> None:
    found = losses_parity({"start": "any"}, other={"start": "any"}, rate={"start": "any", "rate": 0.2})
    assert (found.same, found.differences, found.other_losses) == (("other", "rate"), {}, ())
    assert "own losses differ from one run to the next (step 0" in found.losses_unknown["other"]
    assert found.losses == {}


@pytest.mark.parametrize("kind", ["none", "text", "vector", "count"])
def test_a_step_without_a_loss_is_judged_by_its_data(losses_parity, kind) -> None:
    found = losses_parity({"kind": kind}, other={"kind": kind, "rate": 0.5}, told={"rate": 0.5})
    assert found.same == ("other", "told")
    assert set(found.losses_unknown) == {"other", "told"}
    assert "no number that could be its loss" in found.losses_unknown["other"]


def test_a_step_that_raises_costs_its_own_arm(losses_parity) -> None:
    found = losses_parity({}, broken={"raises": True}, fine={})
    assert found.failed == {"broken": "ValueError: a step that cannot"}
    assert found.same == ("fine",)
    baseline = losses_parity({"raises": True}, fine={})
    assert baseline.same == ("fine",)
    assert "the baseline's step raises ValueError: a step that cannot" in baseline.losses_unknown["fine"]


def test_no_losses_are_computed_where_none_are_asked_for(of_source) -> None:
    found = of_source(TRAINING_TARGET, {}, {"b": {"rate": 9.0}}, steps=3)
    assert (found.same, found.losses) == (("b",), {})


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("speech") / "set"
    make_data(directory, 12, 3, 0.5, 1.4)
    return directory


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two recipes of one small model, ``tiny`` and ``quick``, that differ in the learning rate alone."""
    settings = yaml.safe_load(shipped("training", "tiny").read_text(encoding="utf-8"))
    small = {"d_model": 16, "feed_forward": 16, "prenet": [8], "latents": 2, "conditioning_layers": 0, "layers": 1}
    settings["model"] |= small | {"guided_layers": 1}
    directory = tmp_path_factory.mktemp("training")
    for name, rate in (("tiny", 1e-3), ("quick", 0.05)):
        settings["optimizer"]["learning_rate"] = rate
        (directory / f"{name}.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xttsbench.shipped._directory", lambda kind: directory)
        yield


@pytest.fixture
def bundled(bench, speech: Path, recipes: None):
    """``bundled(tolerance, **arms)``: what a planned trial says of the bundled workload, as a comparison makes it."""

    def run(tolerance: float = 1e-3, **arms) -> Parity:
        base = {"data": str(speech), "batch_size": 2}
        planned = [PlannedVariant(id="base", role="baseline", kwargs=base)]
        planned += [
            PlannedVariant(id=name, role="candidate", config=own, kwargs=base | own) for name, own in arms.items()
        ]
        limits = {"blocks": 1, "steps": 1, "window_s": 1, "trial_s": 60, "stall_s": 60, "loss_tolerance": tolerance}
        target = "xttsbench.targets.bundled:make_workload"
        comparison = Comparison(name="test", target=target, bundled=True, arms=tuple(planned), **limits)
        return judged(bench, parity_trial(comparison, parity_arms(comparison)[0], number=0, block=0, seed=0))

    return run


def test_modes_and_caches_of_the_bundled_workload_are_the_same_training_and_another_recipe_is_not(bundled) -> None:
    found = bundled(
        eager={"mode": "eager"},
        cache={"cache": True, "device_prefetch": 1},
        quick={"recipe": "quick"},  # with the same data
        seed={"seed": 1},
    )
    assert found.same == ("eager", "cache")
    assert set(found.losses) == {"eager", "quick"}  # the cache has the baseline's step
    assert found.other_losses == ("quick",)
    assert found.differences["quick"].startswith("step 1: ")
    assert found.differences["seed"].startswith("batch 0, id")


def test_a_precision_passes_at_a_wide_tolerance_and_is_no_rounding_of_float32(bundled) -> None:
    found = bundled(0.05, short={"precision": "mixed_bfloat16"})
    assert found.same == ("short",)
    assert 1e-6 < found.losses["short"] < 0.05  # a tolerance between is the business of the test on known losses
