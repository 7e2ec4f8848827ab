"""The bundled workload: reproducible, honest about its arguments, and it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import shipped
from xttsbench.xtts import ljspeech
from xttsbench.xtts.features import log_mel
from xttsbench.xtts.recipe import load_recipe
from xttsbench.xtts.text import encode
from xttsbench.xtts.workload import cache_directory, make_workload

SMALL = {"utterances": 12, "batch_size": 4}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XTTSBENCH_CACHE", str(directory))
        yield directory


def take(count: int, **arguments: Any) -> list[dict[str, np.ndarray]]:
    dataset, _ = make_workload(**SMALL | arguments)
    return list(dataset.take(count).as_numpy_iterator())


def same(left: list[dict[str, np.ndarray]], right: list[dict[str, np.ndarray]]) -> bool:
    return all(np.array_equal(a[key], b[key]) for a, b in zip(left, right, strict=True) for key in a)


def test_batches_hold_what_the_files_hold(cache: Path) -> None:
    features = load_recipe(shipped("training", "tiny")).features
    batches = take(3)
    (directory,) = {path.parent for path in cache.glob("*12x*/metadata.csv")}
    clips = ljspeech.read_clips(directory)
    assert sorted(int(clip) for batch in batches for clip in batch["id"]) == list(range(12))
    for batch in batches:
        assert batch["mel"].shape[1] in {256, 384}
        for row, number in enumerate(batch["id"]):
            mel = log_mel(ljspeech.read_wav(clips[number].wav, features.sample_rate_hz), features)
            length = batch["mel_length"][row]
            assert length == len(mel)
            np.testing.assert_array_equal(batch["mel"][row, :length], mel)
            np.testing.assert_allclose(batch["mel"][row, length:], np.log(1e-5), rtol=1e-6)
            ids = encode(clips[number].text)
            assert batch["text_length"][row] == len(ids)
            np.testing.assert_array_equal(batch["text"][row], np.pad(ids, (0, batch["text"].shape[1] - len(ids))))


@pytest.mark.parametrize("arguments", [{}, {"workers": 0, "prefetch": 0}, {"workers": 3, "prefetch": 2}])
def test_neither_workers_nor_prefetch_change_the_batches(arguments: dict[str, int]) -> None:
    assert same(take(7), take(7, **arguments))


def test_another_seed_gives_other_batches() -> None:
    assert not same(take(2)[:1], take(2, seed=1)[:1])


def test_epochs_have_other_orders_and_the_same_clips() -> None:
    ids = [tuple(batch["id"]) for batch in take(24, utterances=48)]
    epochs = [ids[:12], ids[12:]]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1])


def test_graph_and_eager_take_the_same_steps_and_learn() -> None:
    batches = take(12)
    losses = {}
    for mode in ("graph", "graph", "eager"):
        _, step = make_workload(mode=mode, **SMALL)
        tensors = [{key: tf.constant(value) for key, value in batch.items()} for batch in batches]
        found = [float(step(batch)) for batch in tensors]
        np.testing.assert_allclose(found, losses.setdefault(mode, found), rtol=1e-6)
    np.testing.assert_allclose(losses["graph"], losses["eager"], rtol=1e-3)
    assert losses["graph"][-1] < 0.75 * losses["graph"][0]


def test_a_compiled_step_is_traced_once_for_all_buckets() -> None:
    batches = take(6)
    assert len({batch["mel"].shape for batch in batches}) == 2
    _, step = make_workload(**SMALL)
    for batch in batches:
        step({key: tf.constant(value) for key, value in batch.items()})
    assert step.experimental_get_tracing_count() == 1  # type: ignore[attr-defined]


def test_data_of_ones_own_are_taken(tmp_path: Path) -> None:
    own = ljspeech.make_synthetic(tmp_path / "own", 4, 9, 1.0, 1.2)
    (batch,) = take(1, data=str(own))
    assert set(batch["id"]) == {0, 1, 2, 3}
    with pytest.raises(InvalidInputError, match="4 clips are fewer than one batch of 8"):
        make_workload(data=str(own))


def test_shapes_are_static_but_for_the_frames() -> None:
    dataset, _ = make_workload(**SMALL)
    open_shapes = {key: spec.shape.as_list() for key, spec in dataset.element_spec.items() if None in spec.shape}
    assert open_shapes == {"mel": [4, None, 80]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loader": "packed"}, "loader: one of numpy_wav is expected, got 'packed'"),
        ({"mode": "xla"}, "mode: one of graph, eager is expected, got 'xla'"),
        ({"batch_size": 0}, "batch_size: .*got 0"),
        ({"prefetch": -2}, "prefetch: .*got -2"),
        ({"workers": "many"}, "workers: .*got 'many'"),
        ({"utterances": 2, "seed": -1}, "seed: .*got -1"),
        ({"utterances": 0, "batch_size": 0}, "utterances: .*batch_size: "),
        ({"utterances": 3, "batch_size": 4}, "3 clips are fewer than one batch of 4"),
        ({"data": "no/such/directory"}, "no/such/directory/metadata.csv: no readable LJSpeech metadata"),
    ],
)
def test_bad_arguments_are_named_with_the_value(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_workload(**arguments)


def test_made_data_go_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XTTSBENCH_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("XTTSBENCH_CACHE")
    assert cache_directory().name == "xttsbench"
