"""Patches of real pipelines: found by the lines that TensorFlow's datasets were made at, run in place of the file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xttsbench.fixes.patch import propose
from xttsbench.pipeline.read import inspect
from xttsbench.pipeline.source import locate
from xttsbench.records.fix import FixSet, Patch
from xttsbench.targets.load import Loaded, load_target
from xttsbench.targets.spec import parse_target, substituted

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("written_targets")]

SOURCE = """
import tensorflow as tf


def inner(value):
    return tf.data.Dataset.range(value % 3).map(lambda x: x + 1)


def make():
    options = {"name": "first"}
    ds = (
        tf.data.Dataset.range(40)
        .map(lambda x: (x, limited(x)), **options)  # two
        .filter(
            lambda x, _: x % 2 == 0,
        )
        .prefetch(8)
        .map(
            lambda x, y: x + y,
            # in turn
        )
    )
    ds = ds.interleave(inner, cycle_length=2).map(limited).batch(4).prefetch(2)

    def step(batch):
        return tf.reduce_sum(batch)

    return ds, step


def limited(value):
    if value > 20:  # AutoGraph reads this from the source, some lines further down in a patched one
        value = value - 20
    return value
"""


def loaded(file: Path) -> Loaded:
    sys.modules.pop(file.stem, None)
    return load_target(parse_target(f"{file}:make"), {})


def elements(target: Loaded) -> list[object]:
    return [value.tolist() for value in target.dataset.as_numpy_iterator()]


def run(file: Path, patch: Patch) -> tuple[list[str], list[object], object]:
    copy = file.parent / "copies" / "patched.py"
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(patch.files[str(file)])
    with substituted({str(file): str(copy)}):
        target = loaded(file)
        ops = [op.op.partition("Dataset")[0] for op in inspect(target.dataset).ops]
        return ops, elements(target), target.step


DICT_LINE = "        .map(lambda x: (x, limited(x)), **options)  # two"
BEFORE = ["Range", "Map", "Filter", "Prefetch", "Map", "Interleave", "Map", "Batch", "Prefetch"]


@pytest.mark.parametrize(
    ("fixes", "expected"),
    [
        (("cache@FilterDataset",), [*BEFORE[:3], "Cache", *BEFORE[3:]]),
        (("parallel-interleave:2", "prefetch"), [*BEFORE[:5], "ParallelInterleave", *BEFORE[6:], "Prefetch"]),
    ],
)
def test_the_patched_file_makes_the_wanted_graph_and_the_same_data(
    tmp_path: Path, fixes: tuple[str, ...], expected: list[str]
) -> None:
    file = tmp_path / "written_target.py"
    file.write_text(SOURCE)
    original = loaded(file)
    pipeline = inspect(original.dataset)
    assert [op.op.partition("Dataset")[0] for op in pipeline.ops] == BEFORE
    named = {op.op: op.name for op in pipeline.ops}
    exact = [fix if "@" not in fix else f"cache@{named[fix.partition('@')[2]]}" for fix in fixes]
    patch = propose(FixSet.of(exact), pipeline, lambda name: Path(name).read_text(), own=lambda name: name == str(file))
    assert patch.unpatched == {}
    ops, values, _ = run(file, patch)
    assert ops == expected
    assert values == elements(original)


def test_a_map_that_cannot_be_edited_is_named_and_the_others_are(tmp_path: Path) -> None:
    file = tmp_path / "written_target.py"
    file.write_text(SOURCE)
    original = loaded(file)
    place = locate(original.step)
    patch = propose(
        FixSet.of(("parallel-map:2", "step:graph", "thread-pool:3")),
        inspect(original.dataset),
        lambda name: Path(name).read_text(),
        own=lambda name: name == str(file),
        step_place=place,
    )
    assert list(patch.unpatched) == ["parallel-map:2"]
    assert f"at {file}:{SOURCE.splitlines().index(DICT_LINE) + 1}" in patch.unpatched["parallel-map:2"]
    ops, values, step = run(file, patch)
    assert [op for op in ops if "Map" in op] == ["Map", "ParallelMap", "ParallelMap"]
    assert values == elements(original)
    assert hasattr(step, "get_concrete_function")
