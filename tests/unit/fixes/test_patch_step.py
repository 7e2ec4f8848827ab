"""The step compiled: decorators, ``tf.function(...)`` and ``model.compile``."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import pytest

from xttsbench.fixes.patch import propose
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.trial import Trace

FILE = "/home/user/train.py"


def stepped(text: str, fix: str, line: int | None, traces: Sequence[Trace] = ()) -> Patch:
    pipeline = Pipeline(
        ops=(PipelineOp(name="RangeDataset/_0", op="RangeDataset", location=Location(file=FILE, line=1)),)
    )
    place = None if line is None else Location(file=FILE, line=line)
    return propose(FixSet.of([fix]), pipeline, lambda _: text, own=lambda _: True, step_place=place, step_traces=traces)


@pytest.mark.parametrize(
    ("fix", "before", "line", "after"),
    [
        ("step:graph", "def step(b):\n    return b\n", 2, "@tf.function\ndef step(b):\n    return b\n"),
        ("step:xla", "def step(b):\n    return b\n", 2, "@tf.function(jit_compile=True)\ndef step(b):\n    return b\n"),
        (
            "step:xla",
            "@tf.function\ndef step(b):\n    return b\n",
            2,
            "@tf.function(jit_compile=True)\ndef step(b):\n    return b\n",
        ),
        (
            "step:xla",
            "@tf.function(reduce_retracing=True)\ndef step(b):\n    return b\n",
            2,
            "@tf.function(reduce_retracing=True, jit_compile=True)\ndef step(b):\n    return b\n",
        ),
        (
            "step:xla",
            "def step(b):\n    return b\nrun = tf.function(step, jit_compile=False)\n",
            2,
            "def step(b):\n    return b\nrun = tf.function(step, jit_compile=True)\n",
        ),
        ("step:graph", "step = lambda b: b  # short\n", 2, "step = tf.function(lambda b: b)  # short\n"),
        (
            "step:graph",
            "class A:\n    @timed\n    def step(self, b):\n        return b\n",
            3,
            "class A:\n    @timed\n    @tf.function\n    def step(self, b):\n        return b\n",
        ),
        (
            "step:graph",
            "def other():\n    def step(b): return b\n    return tf.function(step)\ndef step(b):\n    return b\n",
            5,
            "def other():\n    def step(b): return b\n    return tf.function(step)\n"
            "@tf.function\ndef step(b):\n    return b\n",
        ),
        (
            "step:no-xla",
            "@tf.function(jit_compile=True)\ndef step(b):\n    return b\n",
            2,
            "@tf.function(jit_compile=False)\ndef step(b):\n    return b\n",
        ),
        (
            "step:no-xla",
            "inner = tf.function(f, jit_compile=True)\n@tf.function(jit_compile=fast)\ndef loss(b):\n    return b\n"
            "def step(b):\n    return inner(b) + loss(b)\n",
            6,
            "inner = tf.function(f, jit_compile=False)\n@tf.function(jit_compile=False)\ndef loss(b):\n    return b\n"
            "def step(b):\n    return inner(b) + loss(b)\n",
        ),
        (
            "step:several:16",
            "m.compile('sgd', loss='mse')\n",
            None,
            "m.compile('sgd', loss='mse', steps_per_execution=16)\n",
        ),
        (
            "step:several:16",
            "m.compile(loss=x, steps_per_execution=n)\n",
            None,
            "m.compile(loss=x, steps_per_execution=16)\n",
        ),
        ("step:no-xla", "m.compile('sgd', loss='mse')\n", None, "m.compile('sgd', loss='mse', jit_compile=False)\n"),
        (
            "step:no-xla",
            "a.compile(loss='x')\nm.compile(jit_compile=True, loss='mse')\n",
            None,
            "a.compile(loss='x')\nm.compile(jit_compile=False, loss='mse')\n",
        ),
        ("step:graph", "m.compile('sgd', loss='mse', run_eagerly=True)\n", None, "m.compile('sgd', loss='mse')\n"),
        ("step:graph", "m.compile(run_eagerly=True, loss='mse')\n", None, "m.compile(loss='mse')\n"),
        ("step:xla", "m.compile(loss='mse', run_eagerly=x)\n", None, "m.compile(loss='mse', jit_compile=True)\n"),
        ("step:xla", "m.compile(loss='mse', jit_compile='auto')\n", None, "m.compile(loss='mse', jit_compile=True)\n"),
        (
            "step:xla",
            "import re\nre.compile('x')\nm.compile(\n    loss='mse',\n)\n",
            None,
            "import re\nre.compile('x')\nm.compile(\n    loss='mse',\n    jit_compile=True,\n)\n",
        ),
    ],
)
def test_the_step_is_compiled(fix: str, before: str, line: int | None, after: str) -> None:
    patch = stepped(f"import tensorflow as tf\n{before}", fix, line)
    assert patch.unpatched == {}
    assert patch.files[FILE] == f"import tensorflow as tf\n{after}"
    ast.parse(patch.files[FILE])


@pytest.mark.parametrize(
    ("fix", "text", "line", "why"),
    [
        ("step:graph", "@tf.function\ndef step(b):\n    return b\n", 2, "already"),
        ("step:graph", "def step(b):\n    return b\nrun = tf.function(step)\n", 2, "already"),
        ("step:graph", "def step(b):\n    yield b\n", 2, "generator"),
        ("step:graph", "x = 1\n", 2, "no function at"),
        ("step:graph", "a.compile(run_eagerly=True)\nb.compile(run_eagerly=True)\n", None, "have 2"),
        ("step:graph", "a.compile(loss='mse')\n", None, "have no"),
        ("step:several:4", "def step(b):\n    return b\n", 2, "take 4 batches in a loop inside the tf.function"),
        ("step:no-xla", "@tf.function\ndef step(b):\n    return b\n", 2, "take jit_compile=True out of"),
        ("step:no-xla", "@tf.function(jit_compile=False)\ndef step(b):\n    return b\n", 2, "is given jit_compile"),
        ("step:no-xla", "a.compile(loss='x')\nb.compile(loss='x')\n", None, "have 2"),
        ("step:no-xla", "a.compile(loss='x', jit_compile=False)\n", None, "has jit_compile=False already"),
    ],
)
def test_why_it_is_not(fix: str, text: str, line: int | None, why: str) -> None:
    patch = stepped(f"import tensorflow as tf\n{text}", fix, line)
    assert patch.edits == ()
    assert why in patch.unpatched[fix]


def test_no_line_of_a_library_is_to_be_edited() -> None:
    place = Location(file="/venv/lib/python3.11/site-packages/keras/src/trainer.py", line=279)
    patch = propose(FixSet.of(["step:graph"]), Pipeline(ops=()), lambda _: "", own=lambda _: False, step_place=place)
    assert patch.unpatched["step:graph"] == (
        "keras/src/trainer.py is generated, or belongs to a library; have that library compile its step (with Keras, "
        "give model.compile(...) run_eagerly=False)."
    )


def traced(*signatures: str, function: str = "step") -> list[Trace]:
    return [Trace(step=0, function=function, reason="other", signature=one, time_s=0.1) for one in signatures]


NUMBERED = traced(*(f"(b: TensorSpec(shape=(4,), dtype=tf.float32), n: Literal[{n}])" for n in range(3)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "def step(b, n):\n    return b[n % 3]\nfor n, b in enumerate(d):\n    step(b, n)\n",
            "def step(b, n):\n    return b[n % 3]\nfor n, b in enumerate(d):\n    step(b, tf.constant(n))\n",
        ),
        (
            "def step(b, n):\n    return b * 0.1 / (1 + n // 2)\nfor n, b in enumerate(d):\n    step(b, n=n + 1)\n",
            "def step(b, n):\n    return b * 0.1 / (1 + n // 2)\nfor n, b in enumerate(d):\n"
            "    step(b, n=tf.constant(n + 1, tf.float32))\n",
        ),
        (
            "def step(b, n):\n    even = n * 2\n    if even < limit:\n        b += 1\n    return b\nstep(b, 1)\n",
            "def step(b, n):\n    even = n * 2\n    if even < limit:\n        b += 1\n    return b\n"
            "step(b, tf.constant(1, tf.float32))\n",
        ),
        (
            "def step(self, b, n):\n    return b\nmodel.step(b, n)\n",
            "def step(self, b, n):\n    return b\nmodel.step(b, tf.constant(n))\n",
        ),
    ],
)
def test_a_number_that_is_another_one_in_each_step_is_given_as_a_tensor(before: str, after: str) -> None:
    patch = stepped(f"import tensorflow as tf\n@tf.function\n{before}", "step:traced-once", 3, NUMBERED)
    assert patch.unpatched == {}
    assert patch.files[FILE] == f"import tensorflow as tf\n@tf.function\n{after}"


def test_a_fraction_and_what_a_function_made_of_the_step_is_called_with() -> None:
    text = "import tensorflow as tf\ndef step(b, rate):\n    return b * rate\nrun = tf.function(step)\nrun(b, rate)\n"
    traces = traced(
        *(f"(b: TensorSpec(shape=(4,), dtype=tf.float32), rate: Literal[{n}])" for n in ("0.1", "1e-05", "1"))
    )
    patch = stepped(text, "step:traced-once", 2, traces)
    assert patch.files[FILE] == text.replace("run(b, rate)", "run(b, tf.constant(rate, tf.float32))")


def test_shapes_that_vary_are_left_open() -> None:
    text = "import tensorflow as tf\n@tf.function\ndef step(b):\n    return b\nstep(b)\n"
    traces = traced(*(f"(b: TensorSpec(shape=({n}, 3), dtype=tf.float32))" for n in range(3)))
    patch = stepped(text, "step:traced-once", 3, traces)
    assert patch.files[FILE] == text.replace("@tf.function", "@tf.function(reduce_retracing=True)")


@pytest.mark.parametrize(
    ("traces", "call", "why"),
    [
        (traced(*(f"(b: Literal[{name}])" for name in "xyz")), "step(b)", "b is another python value each time"),
        (traced("(b: Literal[1])", "(b: Literal[2])"), "step(b)", "nothing that the step is given"),
        (traced(*(f"(b: Literal[{n}])" for n in range(3)), function="other"), "step(b)", "nothing that the step"),
        (traced(*(f"(b: Literal[{n}])" for n in range(3))), "strategy.run(step, (b,))", "no call of step(...) gives b"),
        (traced(*(f"(b: Literal[{n}])" for n in range(3))), "step(*b)", "takes some of its arguments from a list"),
    ],
)
def test_why_a_step_stays_traced_again_and_again(traces: list[Trace], call: str, why: str) -> None:
    text = f"import tensorflow as tf\n@tf.function\ndef step(b):\n    return b\n{call}\n"
    patch = stepped(text, "step:traced-once", 3, traces)
    assert patch.edits == ()
    assert why in patch.unpatched["step:traced-once"].lower()
