"""Code that has run before a pipeline is ready is no change of its data; code that may run later is one."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from xttsbench.pipeline.python.state import python_state

pytestmark = pytest.mark.tf

LOADER = """
import tensorflow as tf

class Loader:
    def __init__(self, rows):
        self.rows = rows
        self.entries = []

    def read_entries(self):
        for row in self.rows:
            self.entries.append(row)

    def generator(self):
        for entry in self.entries:
            yield entry
{methods}

{functions}
"""
MADE_BY_A_METHOD = """
    def create(self):
        self.read_entries()
        return tf.data.Dataset.from_generator(self.generator, output_signature=tf.TensorSpec([], tf.int64))
"""
MADE_BY_A_FUNCTION = """
def make():
    loader = Loader(range(9))
    loader.read_entries()
    return tf.data.Dataset.from_generator(loader.generator, output_signature=tf.TensorSpec([], tf.int64))
"""
IN_A_LAMBDA = """
    def create(self):
        self._open()
        return tf.data.Dataset.range(9).map(lambda x: tf.numpy_function(self.generator, [x], tf.int64))

    def _open(self):
        self.read_entries()
"""
BY_TWO_STEPS = """
    def create(self):
        self.read_entries()
        return self._pipeline()

    def _pipeline(self):
        return tf.data.Dataset.from_generator(self.generator, output_signature=tf.TensorSpec([], tf.int64))
"""
BY_THE_SCRIPT = """
loader = Loader(range(9))
loader.read_entries()
dataset = tf.data.Dataset.from_generator(loader.generator, output_signature=tf.TensorSpec([], tf.int64))
"""
EVERY_EPOCH = """
def train(loader):
    dataset = loader.create()
    for epoch in range(3):
        loader.read_entries()
        for batch in dataset:
            print(batch)
"""
IN_A_LOOP_WITH_THE_PIPELINE = """
def train(loader):
    for epoch in range(3):
        loader.read_entries()
        for batch in loader.create():
            print(batch)
"""
BETWEEN_EPOCHS = """
    def on_epoch_end(self):
        self.read_entries()
"""
BY_A_STEP = """
def step(batch, loader=Loader([])):
    loader.read_entries()
    return batch
"""
HANDED_ON = """
def train(loader):
    return Callback(loader.read_entries)
"""
AFTER_THE_PIPELINE = """
    def late(self):
        self.dataset = tf.data.Dataset.from_generator(self.generator, output_signature=tf.TensorSpec([], tf.int64))
        self.read_entries()
        return self.dataset
"""
THROUGH_ANOTHER = """
    def reset(self):
        self.read_entries()
"""


@pytest.fixture
def loaded(tmp_path):
    """A module of the user's with a loader, from what is added to its class and below it."""
    names = []

    def load(methods="", functions=""):
        name = f"set_up_{tmp_path.name}_{len(names)}".replace("-", "_")
        file = tmp_path / f"{name}.py"
        file.write_text(LOADER.format(methods=methods, functions=functions))
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("methods", "functions"),
    [
        (MADE_BY_A_METHOD, ""),
        ("", MADE_BY_A_FUNCTION),
        (IN_A_LAMBDA, ""),
        (BY_TWO_STEPS, ""),
        ("", BY_THE_SCRIPT),
        (MADE_BY_A_METHOD, MADE_BY_A_FUNCTION),
    ],
)
def test_what_has_run_before_the_pipeline_is_ready_is_no_change(loaded, methods, functions):
    assert python_state(loaded(methods, functions).Loader([1, 2]).generator).reads is None


@pytest.mark.parametrize(
    ("methods", "functions"),
    [
        ("", ""),  # called by somebody who is not seen
        (MADE_BY_A_METHOD, EVERY_EPOCH),
        (BY_TWO_STEPS, IN_A_LOOP_WITH_THE_PIPELINE),
        (MADE_BY_A_METHOD + BETWEEN_EPOCHS, ""),
        (MADE_BY_A_METHOD, BY_A_STEP),
        (MADE_BY_A_METHOD, HANDED_ON),
        (AFTER_THE_PIPELINE, ""),
        (MADE_BY_A_METHOD + THROUGH_ANOTHER, ""),
    ],
)
def test_what_may_run_later_is_a_change(loaded, methods, functions):
    found = python_state(loaded(methods, functions).Loader([1, 2]).generator).reads
    assert "reads 'entries', which read_entries() at" in found


def test_a_call_in_another_file_of_the_users_counts(loaded, tmp_path, monkeypatch):
    loader = loaded(MADE_BY_A_METHOD).Loader([1, 2])
    assert python_state(loader.generator).reads is None
    (tmp_path / "trains.py").write_text("def train(loader, epochs):\n    for _ in epochs:\n        loader.read_entries()\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("trains")
    try:
        assert "read_entries()" in python_state(loader.generator).reads
    finally:
        del sys.modules["trains"]


def test_a_method_of_a_module_or_of_another_class_with_the_same_name_is_not_the_same(loaded):
    functions = """
import json

class Other:
    def read_entries(self):
        return 1

    def run(self):
        return self.read_entries()

def other(text):
    json.read_entries = None
    return json.read_entries(text)
"""
    assert python_state(loaded(MADE_BY_A_METHOD, functions).Loader([1, 2]).generator).reads is None
