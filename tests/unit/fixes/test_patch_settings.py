"""Edits that rest on a setting keep it as a condition, and stay right when it is changed; else there is none."""

from __future__ import annotations

import pytest

from tests.unit.fixes.fake_datasets import FILE, kinds, pipeline_of
from xttsbench.fixes.patch import propose
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.pipeline import PythonFunction, Setting

METHOD = """import tensorflow as tf

f = None
SHIFTED = False


class Config:
    shifted = False
    mode = "plain"
    rate = None


class Loader:
    def __init__(self, config=None):
        self.config = config or Config()

    def create(this):
        return tf.data.Dataset.range(9).shuffle(4).map(f).batch(4)


def make(config=None):
    return Loader(config).create()
"""


def setting(name: str, value: str = "False", *, owners: tuple[str, ...] = ("Loader",), file: str = FILE) -> Setting:
    return Setting(name=name, value=value, file=file, line=3, owners=owners)


def patch_of(text: str, fix: str, *settings: Setting) -> Patch:
    pipeline = pipeline_of(text)
    function = PythonFunction(token="t", kind="numpy_function", name="Loader.load", settings=settings)
    pipeline = pipeline.model_copy(update={"python_functions": (function,)})
    named = next(op.name for op in pipeline.ops if op.op == "MapDataset")
    return propose(
        FixSet.parse(fix.replace("MAP", named)), pipeline, {FILE: text}.__getitem__, own=lambda file: file == FILE
    )


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        (setting("self.config.shifted"), "not this.config.shifted"),
        (setting("self.config.shifted", "True"), "this.config.shifted"),
        (setting("self.config.mode", "'plain'"), "this.config.mode == 'plain'"),
        (setting("self.config.rate", "None"), "this.config.rate is None"),
        (setting("SHIFTED", owners=()), "not SHIFTED"),
    ],
)
def test_a_cache_is_there_only_while_the_setting_is_as_it_was(given, condition):
    patch = patch_of(METHOD, "cache@MAP", given)
    assert patch.unpatched == {}
    assert f".apply(lambda elements: elements.cache() if {condition} else elements)" in patch.files[FILE]


def test_the_patched_source_makes_what_the_setting_asks_for():
    text = patch_of(METHOD, "cache@MAP", setting("self.config.shifted")).files[FILE]
    assert kinds(text) == ["range", "map", "cache", "shuffle", "batch"]
    on = text.replace("    shifted = False", "    shifted = True")
    assert kinds(on) == ["range", "map", "shuffle", "batch"]


def test_calls_are_parallel_only_while_the_setting_is_as_it_was():
    given = (setting("self.config.shifted"), setting("self.config.mode", "'plain'"))
    text = patch_of(METHOD, "parallel-map:3", *given).files[FILE]
    assert "num_parallel_calls=3 if not this.config.shifted and this.config.mode == 'plain' else None" in text
    assert kinds(text) == ["range", "shuffle", "map*", "batch"]
    assert kinds(text.replace('mode = "plain"', 'mode = "fast"')) == ["range", "shuffle", "map", "batch"]


def test_without_settings_an_edit_has_no_condition():
    assert ".map(f).cache()" in patch_of(METHOD.replace(".shuffle(4)", ""), "cache@MAP").files[FILE]


@pytest.mark.parametrize(
    ("fix", "given", "said"),
    [
        ("cache@MAP", setting("self.config.shifted", owners=("Other",)), "cannot be written here"),
        ("cache@MAP", setting("SHIFTED", owners=(), file="/home/user/other.py"), "cannot be written here"),
        ("cache@MAP", setting("UNKNOWN", owners=()), "cannot be written here"),
        ("cache@MAP", setting("self.config.mode", "<Mode.PLAIN: 1>"), "cannot be written here"),
        ("native", setting("self.config.shifted"), "right only while self.config.shifted is False"),
    ],
)
def test_where_it_cannot_be_a_condition_there_is_no_edit(fix, given, said):
    patch = patch_of(METHOD, fix, given)
    assert patch.files == {}
    assert said in " ".join(patch.unpatched.values())


def test_a_local_that_hides_the_global_is_not_the_setting():
    text = METHOD.replace("    def create(this):\n", "    def create(this):\n        SHIFTED = True\n")
    assert patch_of(text, "cache@MAP", setting("SHIFTED", owners=())).files == {}
