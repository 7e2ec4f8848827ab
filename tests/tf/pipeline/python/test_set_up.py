"""Code that has run before a pipeline is ready is no change of its data; code that may run later is one."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from xttsbench.pipeline.python.state import python_state
from xttsbench.pipeline.read import inspect
from xttsbench.pipeline.source import lookup

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


IN_A_SCRIPT = """
scale, sizes = 1.0, []

def load(x):
    return x * scale + len(sizes)

{before}
dataset = tf.data.Dataset.range(9).map(lambda x: tf.numpy_function(load, [x], tf.float64))
for epoch in range(1):
    {after}
"""
IN_A_FUNCTION = """
def train(epochs):
    scale, sizes = 1.0, []

    def load(x):
        return x * scale + len(sizes)

    {before}
    dataset = tf.data.Dataset.range(9).map(lambda x: tf.numpy_function(load, [x], tf.float64))
    for epoch in range(epochs):
        {after}
    return load

load = train(0)
"""
MADE_IN_A_FUNCTION = """
def loader(names):
    sizes = []
    for name in names:
        sizes.append(name)
    scale = float(len(sizes))

    def load(x):
        return x * scale + len(sizes)

    return load

load = loader([1, 2])
dataset = tf.data.Dataset.range(9).map(lambda x: tf.numpy_function(load, [x], tf.float64))
"""


@pytest.mark.parametrize("text", [IN_A_SCRIPT, IN_A_FUNCTION])
@pytest.mark.parametrize(
    ("after", "name"), [("scale *= 0.9", "scale"), ("sizes.append(1)", "sizes"), ("sizes[:] = [epoch]", "sizes")]
)
def test_a_variable_that_the_training_loop_changes_is_read_anew(loaded, text, after, name):
    found = python_state(loaded("", text.format(before="", after=after)).load).reads
    assert f"reads {name!r}, which" in found
    assert found.endswith(" changes")


@pytest.mark.parametrize(
    "text",
    [
        IN_A_SCRIPT.format(before="for number in range(3):\n    sizes.append(number)", after="print(epoch)"),
        IN_A_FUNCTION.format(before="sizes.append(3); scale = 2.0", after="print(epoch)"),
        IN_A_SCRIPT.format(before="scale = 2.0", after="scaled = 3.0"),
        MADE_IN_A_FUNCTION,
    ],
)
def test_a_variable_that_is_set_before_the_pipeline_is_ready_is_not(loaded, text):
    assert python_state(loaded("", text).load).reads is None


def test_a_call_in_another_file_of_the_users_counts(loaded, tmp_path, monkeypatch):
    loader = loaded(MADE_BY_A_METHOD).Loader([1, 2])
    assert python_state(loader.generator).reads is None
    (tmp_path / "trains.py").write_text(
        "def train(loader, epochs):\n    for _ in epochs:\n        loader.read_entries()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("trains")
    try:
        assert "read_entries()" in python_state(loader.generator).reads
    finally:
        del sys.modules["trains"]


OF_ANOTHER_FILE = """
order = [3, 1, 2]

def body(x):
    return x + order[0]

def made():
    return 3

def turns_round():
    order.reverse()
    made()
"""


@pytest.mark.parametrize(("imports", "counts"), [("", True), ("from others import made", False)])
def test_a_function_of_another_file_with_the_same_name_makes_no_pipeline_here(
    loaded, tmp_path, monkeypatch, imports, counts
):
    """What comes before ``made()`` is no set-up, unless it is the ``made`` that hands ``body`` to a dataset."""
    (tmp_path / "others.py").write_text("def made(dataset=None, body=len):\n    return dataset and dataset.map(body)\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("others")
    text = OF_ANOTHER_FILE if counts else OF_ANOTHER_FILE.replace("def made():\n    return 3\n", imports)
    try:
        reads = python_state(loaded("", text).body).reads
    finally:
        del sys.modules["others"]
    assert (reads is not None) is counts


def test_a_file_that_is_loaded_in_place_of_another_counts(loaded, tmp_path, monkeypatch):
    """As many modules as before are loaded, and they are others."""
    loader = loaded(MADE_BY_A_METHOD).Loader([1, 2])
    (tmp_path / "looks.py").write_text("")
    (tmp_path / "trains_later.py").write_text(
        "def train(loader, epochs):\n    for _ in epochs:\n        loader.read_entries()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("looks")
    assert python_state(loader.generator).reads is None
    del sys.modules["looks"]
    importlib.import_module("trains_later")
    try:
        assert "read_entries()" in python_state(loader.generator).reads
    finally:
        del sys.modules["trains_later"]


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


def test_an_object_of_another_class_with_such_a_method_is_not_the_same(loaded):
    functions = """
class Other:
    def read_entries(self):
        return 1

def later():
    other = Other()
    other.read_entries()
"""
    assert python_state(loaded(MADE_BY_A_METHOD, functions).Loader([1, 2]).generator).reads is None
    again = "def later():\n    loader = Loader([])\n    loader.read_entries()\n"
    assert "read_entries()" in python_state(loaded(MADE_BY_A_METHOD, again).Loader([1, 2]).generator).reads


SWITCHES = """
import random

import tensorflow as tf

SHIFTED = False

class Config:
    def __init__(self):
        self.enable_pitch_shift = False
        self.shift = 0.0
        self.mode = "plain"

class Loader:
    def __init__(self, config):
        self.config = config
        self.seen = []

    def load(self, x):
        {body}

    def create(self):
        {before}
        return tf.data.Dataset.range(9).map(lambda x: tf.numpy_function(self.load, [x], tf.int64))

{functions}
"""
SHIFT = "x + random.randrange(9)"


@pytest.fixture
def switched(tmp_path):
    """The Python state of a loader's function with this body, of which some conditions are settled by settings."""

    def state(body, *, before="pass", functions="", set_to=()):
        name = f"switched_{tmp_path.name}".replace("-", "_")
        file = tmp_path / f"{name}.py"
        file.write_text(SWITCHES.format(body=body, before=before, functions=functions))
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            config = module.Config()
            for attribute, value in set_to:
                setattr(config, attribute, value)
            return python_state(module.Loader(config).load)
        finally:
            del sys.modules[name]

    return state


@pytest.mark.parametrize(
    "body",
    [
        f"return {SHIFT} if self.config.enable_pitch_shift else x",
        f"""if not self.config.enable_pitch_shift:
            return x
        return {SHIFT}""",
        f"""config = self.config
        if config.shift > 0 and random.random() < config.shift:
            x = {SHIFT}
        return x""",
        f"""if self.config.mode == "plain" or SHIFTED:
            return x
        else:
            return {SHIFT}""",
        f"""if SHIFTED:
            self.seen.append(x)
            x = {SHIFT}
        return x""",
        f"""for _ in range(3):
            if not self.config.enable_pitch_shift:
                continue
            x = {SHIFT}
        return x""",
    ],
)
def test_a_branch_that_a_setting_turns_off_is_not_there(switched, body):
    found = switched(body)
    assert (found.random, found.state, found.reads) == (None, None, None)
    assert {one.name for one in found.settings} <= {
        "self.config.enable_pitch_shift",
        "self.config.shift",
        "self.config.mode",
        "SHIFTED",
    }
    assert found.settings
    assert all(one.owners == (("Loader",) if one.name.startswith("self.") else ()) for one in found.settings)


@pytest.mark.parametrize(
    ("body", "set_to"),
    [
        (f"return {SHIFT} if self.config.enable_pitch_shift else x", [("enable_pitch_shift", True)]),
        (f"return {SHIFT} if self.config.mode != 'plain' else x", [("mode", "shifted")]),
        (f"return {SHIFT} if x > 3 else x", []),
        (f"return {SHIFT} if self.seen else x", []),  # a list is no setting: others may fill it
        (f"return {SHIFT} if self.config.shift or x > 1 else x", []),
        (f"return {SHIFT} if x > 1 and not self.config.shift else x", []),
        (
            f"""while self.config.enable_pitch_shift:
            x = {SHIFT}
        return x""",
            [],
        ),
    ],
)
def test_a_branch_that_may_be_taken_is_read(switched, body, set_to):
    assert "random" in switched(body, set_to=set_to).random


def test_only_settings_that_turn_something_off_are_named(switched):
    body = f"""if self.config.mode == "plain":
            x = x + 1
        if self.config.enable_pitch_shift and self.config.mode != "fast":
            x = {SHIFT}
        return x"""
    assert [(one.name, one.value) for one in switched(body).settings] == [("self.config.enable_pitch_shift", "False")]


def test_a_branch_without_anything_in_it_needs_no_setting(switched):
    assert switched('return x if self.config.mode == "plain" else -x').settings == ()


def test_a_branch_that_is_taken_is_read_to_its_end(switched):
    body = f"""if not self.config.enable_pitch_shift:
            self.config.enable_pitch_shift = True
            return x
        return {SHIFT}"""
    assert "sets 'enable_pitch_shift'" in switched(body).state


def test_who_sets_a_setting_before_the_pipeline_is_ready_changes_nothing(switched):
    body = f"return {SHIFT} if self.config.enable_pitch_shift else x"
    assert switched(body, before="self.config.enable_pitch_shift = False").reads is None
    making = "def make(loader):\n    loader.config.enable_pitch_shift = False\n    return loader.create()\n"
    assert switched(body, functions=making).reads is None
    other = "class Other:\n    def turn(self):\n        self.enable_pitch_shift = True\n"
    assert switched(body, functions=other).reads is None


@pytest.mark.parametrize(
    "functions",
    [
        "def train(loader):\n    for epoch in range(3):\n        loader.config.enable_pitch_shift = epoch > 1\n",
        "def turn_on(config):\n    setattr(config, 'enable_pitch_shift', True)\n",
        "class Turned(Config):\n    def turn(self):\n        self.config = Config()\n"
        "        self.config.enable_pitch_shift = True\n",
    ],
)
def test_who_sets_a_setting_meanwhile_is_named(switched, functions):
    found = switched(f"return {SHIFT} if self.config.enable_pitch_shift else x", functions=functions)
    assert "'enable_pitch_shift', which" in found.reads
    assert "sets" in found.reads


def test_a_global_that_another_module_sets_is_changed_meanwhile(switched):
    functions = "import random as data\n\ndef later():\n    data.SHIFTED = True\n"
    assert "'SHIFTED', which later()" in switched(f"return {SHIFT} if SHIFTED else x", functions=functions).reads


def test_a_method_that_tensorflow_has_wrapped_is_read_as_that_of_its_object(tmp_path, monkeypatch):
    body = f"return {SHIFT} if self.config.enable_pitch_shift else x"
    making = "def make():\n    return Loader(Config()).create()\n"
    (tmp_path / "wrapped_method.py").write_text(SWITCHES.format(body=body, before="pass", functions=making))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("wrapped_method")
    try:
        (function,) = inspect(module.make()).python_functions
        (found,) = python_state(lookup(function.token).called).settings
    finally:
        del sys.modules["wrapped_method"]
    assert (found.name, found.value, found.owners) == ("self.config.enable_pitch_shift", "False", ("Loader",))


def test_what_a_comprehension_goes_through_is_no_variable_of_the_function_around(loaded):
    text = IN_A_SCRIPT.replace("epoch in range(1)", "epoch in [scale for scale in range(1)]")
    assert python_state(loaded("", text.format(before="", after="print(epoch)")).load).reads is None
