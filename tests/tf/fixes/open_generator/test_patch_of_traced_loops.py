"""A loop whose body became ops, in the user's file: the patched file is run, yields the same, and runs no Python."""

from pathlib import Path

import pytest

from tests.tf.fixes.open_generator.test_patch_of_generators import structure
from tests.tf.fixes.test_patch import loaded
from xttsbench.fixes.native.examine import examine
from xttsbench.fixes.patch import propose
from xttsbench.pipeline.nodes import FunctionLibrary
from xttsbench.pipeline.python_functions import classify
from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.pipeline.source import lookup
from xttsbench.records.fix import FixSet
from xttsbench.targets.spec import substituted

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("written_targets")]

HEAD = """
import numpy as np
import tensorflow as tf

WORDS = ["a", "bb", "ccc", "dddd", "e"]
LINES = [(np.sin(np.arange(8) * number).astype(np.float32), word) for number, word in enumerate(WORDS)]
TABLE = np.linspace(0, 1, 8).astype(np.float32)


def work(values):
    return np.maximum(values, 0) * TABLE

"""
ROWS = "tf.TensorSpec([8, None], tf.float32)"
ROW = "tf.TensorSpec([8], tf.float32)"
FILES = {
    "plain": f"""
def samples():
    for values, text in LINES:
        # as it comes
        features = work(values)  # slow
        yield features * 2, text


def make():
    signature = ({ROW}, tf.TensorSpec([], tf.string))
    return tf.data.Dataset.from_generator(samples, output_signature=signature).repeat(2).batch(3)
""",
    "one tensor": f"""
def samples():
    for values in [values for values, _ in LINES]:
        yield work(values)


def make():
    return tf.data.Dataset.from_generator(samples, output_signature={ROW}).prefetch(1)
""",
    "inside": f"""
def make():
    scale = 3.0

    def samples():
        for number, (values, text) in enumerate(LINES):
            features = work(values) * np.float32(scale)
            yield {{"features": features, "id": number}}

    signature = {{"features": {ROW}, "id": tf.TensorSpec([], tf.int32)}}
    return tf.data.Dataset.from_generator(samples, output_signature=signature).batch(2)
""",
    "method": f"""
class Data:
    def __init__(self, lines, scale):
        self.lines, self.scale = lines, scale

    def samples(self):
        for values, text in self.lines:
            yield work(values) * np.float32(0.5)


def make():
    data = Data(LINES, 2.0)
    return tf.data.Dataset.from_generator(data.samples, output_signature={ROW})
""",
}
NOT = {
    "a part of the object": f"""
class Data:
    def __init__(self, lines):
        self.lines, self.window = lines, np.arange(40, dtype=np.float32)

    def samples(self):
        for values, text in self.lines:
            yield np.outer(work(values), self.window)


def make():
    data = Data(LINES)
    return tf.data.Dataset.from_generator(data.samples, output_signature={ROWS})
""",
}


def patched(tmp_path, source, fixes="open-generator:3 + native"):
    file = tmp_path / "written_target.py"
    file.write_text(HEAD + source)
    original = loaded(file)
    pipeline = classify(original.dataset, inspect(original.dataset), batches=2, max_s=1.0)
    pipeline = examine(original.dataset, pipeline)
    assert [one.native.refused for one in pipeline.python_functions] == [None]
    patch = propose(
        FixSet.parse(fixes), pipeline, lambda name: Path(name).read_text(), own=lambda one: one == str(file)
    )
    return file, original, patch


@pytest.mark.parametrize("name", FILES)
def test_the_patched_file_is_run_and_yields_the_same(name, tmp_path):
    file, original, patch = patched(tmp_path, FILES[name])
    assert patch.unpatched == {}
    copy = tmp_path / "copies" / "patched.py"
    copy.parent.mkdir()
    copy.write_text(patch.files[str(file)])
    with substituted({str(file): str(copy)}):
        target = loaded(file)
        graph = read_graph(target.dataset)
        for _ in range(2):
            assert structure(target) == structure(original)
    assert "ParallelMapDatasetV2" in [op.op for op in inspect(target.dataset).ops]
    assert {lookup(one).kind for one in FunctionLibrary(graph.library.function).all_tokens()} == {"generator"}
    assert target.dataset.element_spec == original.dataset.element_spec


def test_the_loop_yields_items_and_the_call_names_the_ops(tmp_path):
    _, _, patch = patched(tmp_path, FILES["inside"])
    text = next(iter(patch.files.values()))
    assert "for number, (values, text) in enumerate(LINES):\n            yield number, values\n" in text
    assert "calls=3, items=(tf.TensorSpec([], tf.int64), tf.TensorSpec([None], tf.float32))," in text
    assert "element=samples_native)" in text


@pytest.mark.parametrize("name", NOT)
def test_what_is_not_written_as_ops_is_opened_and_told(name, tmp_path):
    file, _, patch = patched(tmp_path, NOT[name])
    assert set(patch.unpatched) == {"native"}
    assert "parallel_generator(" in patch.files[str(file)]
    assert "apply the saved plan" in patch.unpatched["native"]


def test_a_generator_that_is_not_opened_is_not_edited_for_its_ops(tmp_path):
    _, _, patch = patched(tmp_path, FILES["plain"], fixes="native + prefetch:2")
    assert {edit.fix for edit in patch.edits} == {"prefetch:2"}
