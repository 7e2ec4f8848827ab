"""The step compiled: decorators, ``tf.function(...)`` and ``model.compile``."""

from __future__ import annotations

import ast

import pytest

from xttsbench.fixes.patch import propose
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.pipeline import Pipeline, PipelineOp

FILE = "/home/user/train.py"


def stepped(text: str, fix: str, line: int | None) -> Patch:
    pipeline = Pipeline(
        ops=(PipelineOp(name="RangeDataset/_0", op="RangeDataset", location=Location(file=FILE, line=1)),)
    )
    place = None if line is None else Location(file=FILE, line=line)
    return propose(FixSet.of([fix]), pipeline, lambda _: text, own=lambda _: True, step_place=place)


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
    ],
)
def test_why_it_is_not(fix: str, text: str, line: int | None, why: str) -> None:
    patch = stepped(f"import tensorflow as tf\n{text}", fix, line)
    assert patch.edits == ()
    assert why in patch.unpatched[fix]
