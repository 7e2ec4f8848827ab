"""Hashes of the samples consumed and of the data set that they are of."""

from __future__ import annotations

import hashlib
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xttsbench.training.samples import NONE, consumed, data_sha256
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data


def test_the_running_hash_is_a_chain() -> None:
    expected = hashlib.sha256(f"{NONE}\0a\0b".encode()).hexdigest()
    assert consumed(NONE, ["a", "b"]) == expected
    assert hashlib.sha256(b"").hexdigest() == NONE


def test_it_tells_order_batches_and_ids_apart() -> None:
    orders: list[Any] = [[["a", "b"]], [["b", "a"]], [["a"], ["b"]], [["ab"]], [["a", "b"], []], []]
    assert len({reduce(consumed, batches, NONE) for batches in orders}) == len(orders)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    directory = tmp_path_factory.mktemp("data") / "set"
    make_data(directory, 5, seed=3, min_s=0.3, max_s=0.5)
    return read_speech_data(directory, sample_rate_hz=22_050, split="all")


def test_a_moved_data_set_is_the_same_and_another_text_or_clip_is_not(data: SpeechData, tmp_path: Path) -> None:
    moved = data.directory.rename(tmp_path / "moved")
    again = read_speech_data(moved, sample_rate_hz=22_050, split="all")
    assert data_sha256(again) == data_sha256(data)
    others = [again.subset(np.array(clips)) for clips in ([0, 1, 2, 3], [1, 0, 2, 3, 4])]
    metadata = moved / "metadata.csv"
    before, _, last = metadata.read_text().rpartition("|")
    metadata.write_text(f"{before}|so {last}")
    others.append(read_speech_data(moved, sample_rate_hz=22_050, split="all"))
    assert len({data_sha256(data), *map(data_sha256, others)}) == 4
    moved.rename(data.directory)
