"""Planted edits of pipelines of several kinds, read in this process and judged as ``xttsbench prove`` judges them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.execution.child import Collected
from xttsbench.fixes.registry import SPECS
from xttsbench.pipeline import places
from xttsbench.pipeline.read import read_graph
from xttsbench.records.pipeline import Elements, Place, Shown
from xttsbench.records.readings import Readings
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.samedata.edit import Edit, judge_edit
from xttsbench.step.watch import Watch
from xttsbench.targets.load import Loaded
from xttsbench.worker import whole
from xttsbench.worker.bench import Bench
from xttsbench.worker.channel import Channel
from xttsbench.worker.fingerprint import read_elements

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "prove"))

from pairs import PAIRS, Pair
from sources import SCRIPTS, source

FEW = {"ROWS": 307}
"""Rows of a pipeline here; the value that is changed is then that of row 150."""


class Kept(Channel):
    """A channel to nowhere."""

    def __init__(self) -> None:
        self.rows = RowMemory(bytearray(RowMemory.size_bytes(1)))
        self.messages: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)


def read(folder: Path, name: str, pair: Pair, *, new: bool = False, seed: int = 0, **fields: Any) -> TrialRecord:
    """The record of one trial, with state as a fresh process has it."""
    file = folder / f"{name}.py"
    text = source(pair.kind, FEW | dict(pair.new if new else pair.old)).replace("X[1507, 3]", "X[150, 3]")
    file.write_text(text)
    spec = TrialSpec(
        trial_id="0", kind="elements", target=f"{file}:make", steps=10**9, epochs=2, window_s=20.0, whole=True,
        seed=seed, jitter=new, **fields,
    )  # fmt: skip
    tf.keras.utils.set_random_seed(seed)
    channel, end = Kept(), places.install()
    try:
        scope: dict[str, Any] = {"__name__": name, "__file__": str(file)}
        exec(compile(text, str(file), "exec"), scope)
        with Watch() as watch:
            dataset = scope["make"]()
            found = read_elements(
                spec, Loaded("dataset", dataset, None), None, Bench(channel, watch, None, None), dataset
            )
    finally:
        end()
    channel.part("elements", found)
    collected = Collected(spec, channel.rows)
    for message in channel.messages:
        collected.take(message)
    return collected.record(started_utc="2026-01-01T00:00:00", duration_s=1.0, readings=Readings())


def judged(folder: Path, pair: Pair) -> Edit:
    old = [read(folder, f"old{number}", pair, seed=seed) for number, seed in enumerate((0, 0, 1))]
    originals: list[Elements] = [one.elements for one in old if one.elements is not None]
    new = read(folder, "new", pair, new=True, had=originals[0].traits).elements
    assert new is not None
    return judge_edit(originals, new, any_order="--any-order" in pair.options)


IN_PROCESS = [pair for pair in PAIRS if pair.kind not in SCRIPTS]


@pytest.mark.parametrize("pair", IN_PROCESS, ids=[pair.name.replace(" ", "-") for pair in IN_PROCESS])
def test_each_planted_edit_is_judged_right(tmp_path: Path, pair: Pair) -> None:
    found = judged(tmp_path, pair)
    assert found.outcome == pair.outcome, found.semantics.sentence
    if pair.place is not None:
        assert found.new is not None
        assert (found.new.element * 32 + (found.new.row or 0), found.new.component) == (150, "[0]")


def test_both_values_are_read_at_the_place_of_the_difference(tmp_path: Path) -> None:
    pair = next(one for one in PAIRS if one.name == "value of map")
    place, file = Place(epoch=1, element=4, row=22, component="[0]"), str(tmp_path / "values.npy")
    assert read(tmp_path, "old", pair, shown=place, shown_file=file).shown is None
    found = read(tmp_path, "new", pair, new=True, shown=place, shown_file=file).shown
    assert found is not None
    assert (found.component, found.where, found.unlike, found.of) == ("[0]", "[3]", 1, 24)
    assert 1e-5 < abs(float(found.old) - float(found.new)) < 1e-3


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (
            np.array([b"one", b"two"], object),
            np.array([b"one", b"three"], object),
            ("[1]", "b'two'", "b'three'"),
        ),
        (np.zeros(3, np.int64), np.zeros(4, np.int64), ("", "int64[3]", "int64[4]")),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), None),
        (np.float32([1, 2]), np.float32([1, 2 + 1e-6]), ("[1]", "2", "2.00000095")),
    ],
)
def test_values_of_any_type_are_compared(tmp_path: Path, old: Any, new: Any, shown: tuple[Any, ...] | None) -> None:
    from xttsbench.worker.whole import shown as compared

    same = {"y": np.zeros(2)}
    assert compared(same | {"x": old}, tmp_path / "values.npz", None) is None
    found: Shown | None = compared(same | {"x": new}, tmp_path / "values.npz", None)
    assert shown == (None if found is None else (found.where, found.old, found.new))
    assert compared(same | {"x": new}, tmp_path / "values.npz", "y") is None


def test_what_an_edit_has_made_is_judged_by_the_hazards_of_a_fix_that_there_is():
    assert set(whole._TRAITS.values()) <= set(SPECS)
    rows = tf.data.Dataset.range(8)
    dataset = rows.map(lambda x: x, num_parallel_calls=2).cache()
    has = whole.traits(dataset, read_graph(dataset))
    assert sorted(one.partition("@")[0] for one in has) == ["cache", "parallel-map"]
