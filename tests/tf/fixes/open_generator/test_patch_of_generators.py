"""A generator opened in the user's file: the patched file is run, and yields the same; what cannot be is told."""

from pathlib import Path

import pytest

from tests.tf.fixes.test_patch import loaded
from xttsbench.fixes.patch import propose
from xttsbench.pipeline.python_functions import classify
from xttsbench.pipeline.read import inspect
from xttsbench.records.fix import FixSet
from xttsbench.targets.spec import substituted

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("written_targets")]

HEAD = """
import numpy as np
import tensorflow as tf

ITEMS = ["a", "bb", "ccc", "dddd"]


def work(item):
    return np.full(2, len(item), np.float32)

"""
ONE = "output_signature=tf.TensorSpec([2], tf.float32)"
FILES = {
    "plain": f"""
def samples():
    for item in ITEMS:  # as it comes
        features = work(item)  # slow
        yield features * 2


def make():
    return tf.data.Dataset.from_generator(samples, {ONE}).repeat(2).batch(3)
""",
    "inside": """
def make():
    scale = 3.0

    def samples():
        for number, item in enumerate(ITEMS):
            features = work(item) * scale
            yield (features,
                   {"id": number, "text": item})

    parts = {"id": tf.TensorSpec([], tf.int64), "text": tf.TensorSpec([], tf.string)}
    signature = (tf.TensorSpec([2], tf.float32), parts)
    return tf.data.Dataset.from_generator(samples, output_signature=signature).batch(2)
""",
    "method": f"""
class Data:
    def __init__(self, items):
        self.items = items
        self.offset = 1.0

    def samples(self):
        for epoch in range(2):
            order = np.random.default_rng(epoch).permutation(len(self.items))
            for index in order:
                yield work(self.items[index]) + self.offset + epoch


def make():
    data = Data(ITEMS)
    return tf.data.Dataset.from_generator(data.samples, {ONE}).prefetch(2)
""",
    "one line": f"""
def samples(items):
    for item in items: yield work(item)


def make():
    return tf.data.Dataset.from_generator(lambda: samples(ITEMS[1:]), {ONE})
""",
}
NOT = {
    "used twice": f"""
def samples():
    for item in ITEMS:
        yield work(item)


def make():
    assert len(list(samples())) == 4
    return tf.data.Dataset.from_generator(samples, {ONE})
""",
    "types": """
def samples():
    for item in ITEMS:
        yield work(item)


def make():
    return tf.data.Dataset.from_generator(samples, tf.float32, [2])
""",
}


def patched(tmp_path, source):
    file = tmp_path / "written_target.py"
    file.write_text(HEAD + source)
    original = loaded(file)
    pipeline = classify(original.dataset, inspect(original.dataset), batches=2, max_s=1.0)
    read = lambda name: Path(name).read_text()  # noqa: E731 - one line, twice
    patch = propose(FixSet.parse("open-generator:3"), pipeline, read, own=lambda name: name == str(file))
    return file, original, patch


def structure(target):
    return [str(element) for _, element in zip(range(20), target.dataset.as_numpy_iterator(), strict=False)]


@pytest.mark.parametrize("name", FILES)
def test_the_patched_file_is_run_and_yields_the_same(name, tmp_path):
    file, original, patch = patched(tmp_path, FILES[name])
    assert patch.unpatched == {}
    copy = tmp_path / "copies" / "patched.py"
    copy.parent.mkdir()
    copy.write_text(patch.files[str(file)])
    with substituted({str(file): str(copy)}):
        target = loaded(file)
        ops = [op.op for op in inspect(target.dataset).ops]
        for _ in range(2):
            assert structure(target) == structure(original)
    assert "ParallelMapDatasetV2" in ops
    assert target.dataset.element_spec == original.dataset.element_spec


def test_the_statements_stay_as_they_are_written(tmp_path):
    _, _, patch = patched(tmp_path, FILES["plain"])
    text = next(iter(patch.files.values()))
    assert (
        """
def samples():
    def element(item):
        features = work(item)  # slow
        return features * 2

    for item in ITEMS:  # as it comes
        yield element, item
"""
        in text
    )
    assert "parallel_generator(samples, output_signature=tf.TensorSpec([2], tf.float32), calls=3)" in text


@pytest.mark.parametrize("name", NOT)
def test_what_is_not_patched_is_told(name, tmp_path):
    _, _, patch = patched(tmp_path, NOT[name])
    assert not patch.edits
    assert "open-generator:3" in patch.unpatched
