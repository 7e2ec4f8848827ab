"""A step that is written out in its loop, put into a function: the text, and that it computes the same."""

from __future__ import annotations

import textwrap

import pytest

from xttsbench.fixes.patch import propose
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.pipeline import Pipeline, PipelineOp

FILE = "/home/user/train.py"


def written(text: str, fix: str = "step:graph") -> Patch:
    text = textwrap.dedent(text)
    pipeline = Pipeline(
        ops=(PipelineOp(name="RangeDataset/_0", op="RangeDataset", location=Location(file=FILE, line=1)),)
    )
    place = Location(file=FILE)
    return propose(FixSet.of([fix]), pipeline, lambda _: text, own=lambda _: True, step_place=place)


AT_TOP = """
import tensorflow as tf
total = 0.0
# Train.
for epoch in range(3):
    rate = 0.1 / (1 + epoch)
    for number, (features, labels) in enumerate(dataset):
        features = tf.cast(features, tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((features @ weights - labels) ** 2)

        # The update.
        gradient = tape.gradient(loss, weights)
        weights.assign_sub(rate * gradient)
        if number % 10 == 0:
            print(number, float(loss))
        total += float(loss)
print(total)
"""

AT_TOP_AFTER = """
import tensorflow as tf
total = 0.0


@tf.function
def train_step(features, labels, rate):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((features @ weights - labels) ** 2)

    # The update.
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(rate * gradient)
    return loss


# Train.
for epoch in range(3):
    rate = 0.1 / (1 + epoch)
    for number, (features, labels) in enumerate(dataset):
        features = tf.cast(features, tf.float32)
        loss = train_step(features, labels, rate)
        if number % 10 == 0:
            print(number, float(loss))
        total += float(loss)
print(total)
"""


def test_the_step_is_a_function_above_the_outermost_loop() -> None:
    patch = written(AT_TOP)
    assert patch.unpatched == {}
    assert patch.files[FILE] == AT_TOP_AFTER
    assert "@tf.function(jit_compile=True)\ndef train_step" in written(AT_TOP, "step:xla").files[FILE]


IN_METHOD = """
import tensorflow

class Trainer:
    def train_step(self): ...

    def run(self, data):
        while True:
            for batch in data:
                with tensorflow.GradientTape() as generator, tensorflow.GradientTape() as critic:
                    losses = self.losses(batch)
                for tape, model in ((generator, self.g), (critic, self.c)):
                    self.optimizer.apply_gradients(zip(tape.gradient(losses, model.weights), model.weights))
"""

IN_METHOD_AFTER = """
import tensorflow

class Trainer:
    def train_step(self): ...

    def run(self, data):
        @tensorflow.function
        def compiled_step(batch):
            with tensorflow.GradientTape() as generator, tensorflow.GradientTape() as critic:
                losses = self.losses(batch)
            for tape, model in ((generator, self.g), (critic, self.c)):
                self.optimizer.apply_gradients(zip(tape.gradient(losses, model.weights), model.weights))

        while True:
            for batch in data:
                compiled_step(batch)
"""


def test_a_name_that_is_taken_is_not_taken_again_and_nothing_is_returned_that_nobody_reads() -> None:
    assert written(IN_METHOD).files[FILE] == IN_METHOD_AFTER


LOOP = """
import tensorflow as tf
import time
seen, last = 0, None
for batch in data:
    with tf.GradientTape() as tape:
        loss = f(batch)
        BEFORE
    w.assign_sub(tape.gradient(loss, w))
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("print(loss)", "'print(loss)' at /home/user/train.py:8 once"),
        ("log.append(loss)", "'log.append(loss)'"),
        ("seen += 1", "the value of seen is carried from step to step in Python at /home/user/train.py:8"),
        ("loss += last; last = loss", "the value of last is carried from step to step"),
        ("self.loss = loss", "'self.loss'"),
        ("table[0] = loss", "'table[0]'"),
        ("break", "'break'"),
        ("loss = loss.numpy()", "'loss.numpy()'"),
        ("began = time.perf_counter()", "'time.perf_counter()'"),
    ],
)
def test_what_python_does_in_each_step_is_not_put_into_a_graph(line: str, said: str) -> None:
    patch = written(LOOP.replace("BEFORE", line))
    assert patch.files == {}
    assert said.lower() in patch.unpatched["step:graph"].lower()
    assert "write @tf.function above it" in patch.unpatched["step:graph"]


IN_FUNCTION = """
import tensorflow as tf

def step(features, labels):
    with tf.GradientTape() as tape:
        loss = f(features, labels)
    w.assign_sub(tape.gradient(loss, w))
    return loss

for features, labels in data:
    loss = step(tf.cast(features, tf.float32), labels)
"""


def test_a_function_that_takes_the_gradients_of_a_batch_that_the_loop_has_changed_is_decorated() -> None:
    assert written(IN_FUNCTION).files[FILE] == IN_FUNCTION.replace("def step", "@tf.function\ndef step")
    two = IN_FUNCTION + IN_FUNCTION.replace("def step", "def other")
    assert "has no loops that take gradients" in written(two).unpatched["step:graph"]


def test_a_list_that_one_step_makes_is_its_own() -> None:
    own = "parts = []; parts.append(loss); loss = tf.add_n(parts)"
    assert written(LOOP.replace("BEFORE", own)).unpatched == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import tensorflow as tf\nfor b in d:\n    pass\n", "has no loops that take gradients"),
        (f"{LOOP}{LOOP}".replace("BEFORE", "pass"), "has 2 loops that take gradients"),
        (LOOP.replace("BEFORE", "pass").replace("    with", "    if b:\n     with"), "is not in each step"),
        (
            LOOP.replace("import tensorflow as tf", "from tensorflow import GradientTape as tape_of"),
            "does not import TensorFlow",
        ),
    ],
)
def test_a_loop_that_is_not_clear_is_left_alone(text: str, said: str) -> None:
    if "if b" in text:
        text = text.replace("        loss", "         loss").replace("        pass", "         pass")
    assert said in written(text).unpatched["step:graph"]
