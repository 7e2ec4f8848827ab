"""Targets imported, called and classified; each mistake is one sentence that says what, where and what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.targets.load import classify, load_target
from xttsbench.targets.spec import Workload, parse_target

BAD = Path(__file__).parents[2] / "targets" / "bad.py"
DATASET = tf.data.Dataset.range(3)


@pytest.fixture(autouse=True)
def _modules_and_path_as_before(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(("/tmp", str(BAD.parent))):
            del sys.modules[name]


def load(name, **kwargs):
    return load_target(parse_target(f"{BAD}:{name}"), kwargs)


def error_of(name, **kwargs):
    with pytest.raises(TargetError) as raised:
        load(name, **kwargs)
    text = str(raised.value)
    assert "\n" not in text
    assert f"{BAD}:{name}" in text
    return text


def test_a_dataset_alone():
    loaded = load("good_dataset")
    assert (loaded.kind, loaded.step, loaded.model) == ("dataset", None, None)


def test_a_dataset_with_a_step():
    loaded = load("good")
    assert loaded.kind == "dataset+step"
    assert float(loaded.step(next(iter(loaded.dataset)))) == pytest.approx(256, rel=1e-3)


def test_a_compiled_model():
    model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    model.compile(loss="mse")
    loaded = classify((DATASET, model), "t:t")
    assert loaded.kind == "dataset+model"
    assert loaded.model is model


@pytest.mark.parametrize("with_step", [True, False])
def test_a_workload(with_step):
    workload = Workload(DATASET, step=(lambda b: b) if with_step else None, tunables={"size": [1, 2]})
    loaded = classify(workload, "t:t")
    assert loaded.kind == "workload"
    assert loaded.workload is workload
    assert (loaded.step is not None) == with_step


def test_a_workload_is_checked_inside_too():
    with pytest.raises(TargetError, match="list"):
        classify(Workload([1, 2, 3]), "t:t")


def test_a_list_of_two_is_a_pair():
    assert classify([DATASET, lambda b: b], "t:t").kind == "dataset+step"


def test_a_step_of_several_arguments_gets_the_parts_of_the_batch():
    loaded = load("step_of_two")
    assert float(loaded.step(next(iter(loaded.dataset)))) == 8.0


def test_a_step_with_an_optional_second_argument_gets_the_batch():
    step = classify((DATASET, lambda batch, training=True: (batch, training)), "t:t").step
    assert step((1, 2)) == ((1, 2), True)


def test_keyword_arguments_reach_the_target():
    assert next(iter(load("takes_a_size", size=5).dataset)).shape == (5, 16)


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("goood", {}, ["has no 'goood'", "Did you mean 'good'?"]),
        ("no.such.thing", {}, ["has no 'no'"]),
        ("not_callable", {}, ["int 7, not a callable"]),
        ("takes_a_size", {}, ["no arguments", "missing a required argument: 'size'", "--set KEY=VALUE"]),
        ("good", {"size": 3}, ["size=3", "unexpected keyword argument 'size'", "--set"]),
        ("raises_at_once", {}, ["raised while it was called", "RuntimeError: no data today", "bad.py:"]),
        ("exits_while_built", {}, ["SystemExit: 7", "bad.py:"]),
        ("returns_nothing", {}, ["returned NoneType None", "tf.data.Dataset"]),
        ("returns_a_generator", {}, ["a generator", "tf.data.Dataset"]),
        ("pair_without_dataset", {}, ["first part is list [1, 2, 3]"]),
        ("pair_without_step", {}, ["second part is str 'step'"]),
        ("triple", {}, ["a tuple"]),
        ("uncompiled_model", {}, ["not compiled", "model.compile()"]),
        ("prints_escapes", {}, ["[red]"]),
    ],
)
def test_each_mistake_is_one_sentence(name, kwargs, words):
    text = error_of(name, **kwargs)
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def make(:\n", ["cannot be imported", "SyntaxError", "broken.py"]),
        ("import no_such_module_anywhere\n", ["ModuleNotFoundError", "no_such_module_anywhere", "broken.py:1"]),
        ("x = 1\n1 / 0\n", ["ZeroDivisionError", "broken.py:2"]),
        ("import sys\nsys.exit(3)\n", ["SystemExit", "broken.py:2"]),
        ("def make(:\n  \x1b[31m", ["SyntaxError"]),
        (b"\xff\xfe\x00bad", ["cannot be imported"]),
    ],
    ids=["syntax", "import", "raises", "exits", "escape", "not text"],
)
def test_a_file_that_cannot_be_imported(tmp_path, source, words):
    path = tmp_path / "broken.py"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    with pytest.raises(TargetError) as raised:
        load_target(parse_target(f"{path}:make"), {})
    assert [word for word in words if word not in str(raised.value)] == []
    assert "\n" not in str(raised.value)


def test_a_module_that_does_not_exist(tmp_path):
    with pytest.raises(TargetError, match=r"no\.such\.module.*cannot be imported.*ModuleNotFoundError"):
        load_target(parse_target("no.such.module:make", working_directory=tmp_path), {})


def test_the_target_s_folder_is_first_on_the_import_path(tmp_path):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text("whose = 'theirs'\n")
    (tmp_path / "entry.py").write_text(
        "import tensorflow as tf\nimport training\n"
        "def make():\n    assert training.whose == 'theirs'\n    return tf.data.Dataset.range(1)\n"
    )
    sys.modules.pop("training", None)
    assert load_target(parse_target(f"{tmp_path / 'entry.py'}:make"), {}).kind == "dataset"
    assert sys.path[0] == str(tmp_path)


def test_a_file_named_like_a_module_in_use_does_not_replace_it(tmp_path):
    import json

    (tmp_path / "json.py").write_text("import tensorflow as tf\ndef make():\n    return tf.data.Dataset.range(1)\n")
    assert load_target(parse_target(f"{tmp_path / 'json.py'}:make"), {}).kind == "dataset"
    assert sys.modules["json"] is json
    del sys.modules["xttsbench_target_json"]


def test_a_class_and_a_dotted_name_are_callables(tmp_path):
    (tmp_path / "dotted.py").write_text(
        "import tensorflow as tf\nclass Jobs:\n    @staticmethod\n    def make():\n"
        "        return tf.data.Dataset.range(2)\n"
    )
    assert load_target(parse_target(f"{tmp_path / 'dotted.py'}:Jobs.make"), {}).kind == "dataset"


def test_a_relative_import_of_a_neighbour_works(tmp_path):
    (tmp_path / "neighbour.py").write_text("size = 4\n")
    (tmp_path / "here.py").write_text(
        "import tensorflow as tf\nfrom neighbour import size\ndef make():\n    return tf.data.Dataset.range(size)\n"
    )
    assert int(load_target(parse_target(f"{tmp_path / 'here.py'}:make"), {}).dataset.cardinality()) == 4
