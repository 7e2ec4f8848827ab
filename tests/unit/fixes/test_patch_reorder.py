"""Shuffles and repeats behind a cache: in one chain and over statements."""

from __future__ import annotations

import re

import pytest

from tests.unit.fixes.fake_datasets import FILE, kinds, pipeline_of
from xttsbench.fixes.patch import propose
from xttsbench.records.fix import FixSet, Patch


def behind_the_cache(body: str) -> tuple[str, Patch]:
    """A source, and its patch with a cache behind its last map."""
    head = "import tensorflow as tf\nload = scale = None\ndef make():\n"
    text = f"{head}{body}    return ds\n"
    pipeline = pipeline_of(text)
    last = [op.name for op in pipeline.ops if "MapDataset" in op.op][-1]
    return text, propose(FixSet.of([f"cache@{last}"]), pipeline, lambda _: text, own=lambda _: True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "    ds = tf.data.Dataset.range(9).shuffle(9).map(load).batch(2)  # last\n",
            "    ds = tf.data.Dataset.range(9).map(load).cache().shuffle(9).batch(2)  # last\n",
        ),
        (
            "    ds = tf.data.Dataset.range(9).repeat().shuffle(9).map(load).map(scale).batch(2)\n",
            "    ds = tf.data.Dataset.range(9).map(load).map(scale).cache().repeat().shuffle(9).batch(2)\n",
        ),
        (
            "    ds = tf.data.Dataset.range(9).shuffle(9).map(load).repeat().map(scale)\n",
            "    ds = tf.data.Dataset.range(9).map(load).map(scale).cache().shuffle(9).repeat()\n",
        ),
        (
            "    ds = tf.data.Dataset.range(9)\n    ds = ds.shuffle(9)  # files\n    ds = ds.map(load)\n",
            "    ds = tf.data.Dataset.range(9)\n    ds = ds.map(load).cache()  # files\n    ds = ds.shuffle(9)\n",
        ),
        (
            "    ds = (\n        tf.data.Dataset.range(9)\n        .shuffle(9)  # files\n        .map(load)  # slow\n"
            "        .batch(2)\n    )\n",
            "    ds = (\n        tf.data.Dataset.range(9)\n        .map(load)  # slow\n        .cache()\n"
            "        .shuffle(9)  # files\n        .batch(2)\n    )\n",
        ),
        (
            "    ds = (\n        tf.data.Dataset.range(9).shuffle(9)\n        .map(load)  # slow\n"
            "        .batch(2)\n    )\n",
            "    ds = (\n        tf.data.Dataset.range(9).map(load).cache()\n        .shuffle(9)  # slow\n"
            "        .batch(2)\n    )\n",
        ),
    ],
)
def test_a_shuffle_and_a_repeat_come_behind_the_cache(body: str, expected: str) -> None:
    text, patch = behind_the_cache(body)
    assert patch.unpatched == {}
    assert patch.files[FILE] == text.replace(body, expected)
    ops = kinds(patch.files[FILE])
    assert ops.index("map") < ops.index("cache") < min(ops.index(one) for one in ops if one in ("shuffle", "repeat"))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "    files = tf.data.Dataset.range(9).shuffle(9)\n    n = len(files.ops)\n    ds = files.map(load)\n",
            "`files` is used for something else as well at line 5",
        ),
        (
            "    n = 9\n    ds = tf.data.Dataset.range(9).shuffle(n)\n    n = 4\n    ds = ds.map(load)\n",
            "`n` gets its value between lines 5 and 7",
        ),
        (
            "    ds = tf.data.Dataset.range(9)\n    for f in (load, scale): ds = ds.shuffle(9).map(f)\n",
            "A call makes several ops that would change places",
        ),
    ],
)
def test_what_cannot_be_moved_is_told_with_the_places(body: str, why: str) -> None:
    _, patch = behind_the_cache(body)
    assert patch.files == {}
    (said,) = patch.unpatched.values()
    assert why in said
    assert re.search(rf", and what is done by shuffle at {FILE}:[45]( and shuffle at {FILE}:5)? behind that\.$", said)
