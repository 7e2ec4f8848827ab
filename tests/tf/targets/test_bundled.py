"""The bundled workload: the same batches whatever the loader, honest about its arguments, and it learns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.samedata.tolerance import difference
from xttsbench.shipped import shipped
from xttsbench.targets.bundled import make_workload
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.features import log_mel
from xttsbench.xtts.recipe import load_recipe
from xttsbench.xtts.wav import read_canonical_wav

RECIPE = load_recipe(shipped("training", "tiny"))
RATE_HZ = RECIPE.features.sample_rate_hz


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XTTSBENCH_CACHE", str(directory))
        yield directory


@pytest.fixture(scope="module")
def speech(cache: Path) -> SpeechData:
    make_data(cache / "speech", 40, 3, 1.0, 3.9)
    data = read_speech_data(cache / "speech", sample_rate_hz=RATE_HZ, split="all")
    precompute(data, RECIPE.features)
    return data


def batches(speech: SpeechData, count: int, **arguments: Any) -> list[dict[str, np.ndarray]]:
    chosen = {"data": str(speech.directory), "batch_size": 4, "with_step": False} | arguments
    return list(make_workload(**chosen).dataset.take(count).as_numpy_iterator())


def same(left: list[dict[str, np.ndarray]], right: list[dict[str, np.ndarray]]) -> bool:
    return len(left) == len(right) and all(
        difference(a, b, tolerance=1e-4, batch=number) is None
        for number, (a, b) in enumerate(zip(left, right, strict=True))
    )


def test_batches_hold_what_the_files_hold(speech: SpeechData) -> None:
    train = read_speech_data(speech.directory, sample_rate_hz=RATE_HZ)
    for batch in batches(speech, 3):
        assert batch["mel"].shape[1] in RECIPE.batches.frame_edges
        for row, clip in enumerate(batch["id"]):
            mel = log_mel(read_canonical_wav(train.wav(clip), RATE_HZ), RECIPE.features)
            length = batch["mel_length"][row]
            assert length == len(mel)
            np.testing.assert_allclose(batch["mel"][row, :length], mel, atol=1e-4)
            np.testing.assert_allclose(batch["mel"][row, length:], np.log(1e-5), rtol=1e-6)
            ids = train.text_ids(clip)
            assert batch["text_length"][row] == len(ids)
            np.testing.assert_array_equal(batch["text"][row], np.pad(ids, (0, batch["text"].shape[1] - len(ids))))


@pytest.mark.parametrize(
    "arguments",
    [
        {"workers": 0, "prefetch": 0},
        {"workers": 3, "prefetch": 2, "threads": 3},
        {"loader": "tf_wav"},
        {"loader": "numpy_cache"},
        {"loader": "tf_cache"},
        {"loader": "packed"},
        {"cache": True, "device_prefetch": 2},
    ],
)
def test_what_makes_batches_faster_does_not_change_them(speech: SpeechData, arguments: dict[str, Any]) -> None:
    assert same(batches(speech, 12), batches(speech, 12, **arguments))


@pytest.mark.parametrize(
    "arguments", [{"seed": 1}, {"bucketing": False}, {"tokens_per_batch": 2048, "batch_size": None}]
)
def test_what_changes_batches_is_seen(speech: SpeechData, arguments: dict[str, Any]) -> None:
    assert not same(batches(speech, 4), batches(speech, 4, **arguments))


def test_modes_take_the_same_steps_and_learn(speech: SpeechData) -> None:
    tensors = [
        {key: tf.constant(value) for key, value in batch.items()} for batch in batches(speech, 8, loader="packed")
    ]
    losses = {}
    for mode in ("graph", "eager"):
        step = make_workload(data=str(speech.directory), batch_size=4, mode=mode).step
        assert step is not None
        losses[mode] = [float(step(batch)) for batch in tensors]
    np.testing.assert_allclose(losses["graph"], losses["eager"], rtol=1e-3)
    assert losses["graph"][-1] < losses["graph"][0]


def test_the_workload_says_which_tensor_has_frames(speech: SpeechData) -> None:
    workload = make_workload(data=str(speech.directory), batch_size=4, with_step=False)
    assert workload.step is None
    batch = next(iter(workload.dataset))
    assert workload.frames is not None
    assert workload.lengths is not None
    assert batch[workload.frames].shape[:1] == batch[workload.lengths].shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loader": "pickled"}, "loader: one of numpy_wav, .* is expected, got 'pickled'"),
        ({"batch_size": 0}, "batch_size: .*got 0"),
        ({"prefetch": -2}, "prefetch: .*got -2"),
        ({"precision": "half"}, "precision: one of float32, .* is expected, got 'half'"),
        ({"cache": True, "loader": "packed"}, "cache: the loader packed reads one file .* leave cache out"),
        ({"seed": -1, "threads": -1}, "threads: .*got -1; seed: .*got -1"),
        ({"batch_size": 4, "tokens_per_batch": 4096}, "give one"),
        ({"recipe": "tinny"}, "'tinny'; the nearest names: tiny"),
        ({"data": "no/such/directory"}, "no/such/directory"),
    ],
)
def test_bad_arguments_are_named_with_the_value(speech: SpeechData, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_workload(**{"data": str(speech.directory), "with_step": False} | arguments)


def test_a_clip_that_is_too_long_is_named(cache: Path) -> None:
    directory = cache / "long"
    make_data(directory, 6, 1, 10.5, 10.6)
    with pytest.raises(InvalidInputError, match=r"the clip '[a-z]+-\d+' has \d+ mel frames"):
        make_workload(data=str(directory), batch_size=4, with_step=False)


def test_a_loader_of_cached_features_says_how_to_make_them(cache: Path) -> None:
    make_data(cache / "bare", 8, 1, 1.0, 1.2)
    with pytest.raises(InvalidInputError, match="xttsbench data precompute"):
        make_workload(loader="packed", data=str(cache / "bare"), batch_size=4, with_step=False)


@pytest.mark.parametrize("loader", ["numpy_wav", "tf_cache"])
def test_features_that_do_not_fit_into_memory_are_refused_with_their_size(
    speech: SpeechData, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = read_speech_data(speech.directory, sample_rate_hz=RATE_HZ)
    needed_bytes = 4 * 80 * int((train.samples // RECIPE.features.hop_samples).sum())
    arguments = {"data": str(speech.directory), "batch_size": 4, "with_step": False, "loader": loader}
    for available_bytes, fits in ((needed_bytes * 2, True), (needed_bytes, False)):
        memory = SimpleNamespace(available=available_bytes)
        monkeypatch.setattr("xttsbench.probes.procfs.psutil.virtual_memory", lambda memory=memory: memory)
        if fits:
            make_workload(**arguments, cache=True)
        else:
            with pytest.raises(InvalidInputError, match=rf"take {needed_bytes} bytes, .* {available_bytes} bytes"):
                make_workload(**arguments, cache=True)
    make_workload(**arguments)  # what is not kept need not fit


def test_a_limit_of_the_container_counts(speech: SpeechData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xttsbench.probes.procfs.memory_limit_left_bytes", lambda: 0)
    with pytest.raises(InvalidInputError, match="the 0 bytes of memory"):
        make_workload(data=str(speech.directory), batch_size=4, with_step=False, cache=True)


def test_a_precision_reaches_the_step_and_the_name(speech: SpeechData) -> None:
    workload = make_workload(data=speech.directory, batch_size=4, mode="eager", precision="mixed_bfloat16", cache=True)
    assert workload.name == "tiny, numpy_wav, eager, mixed_bfloat16, features kept in memory"
    assert workload.step.state.model.compute_dtype == "bfloat16"
