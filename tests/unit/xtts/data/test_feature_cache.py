"""Opening a cache: good ones in the order asked for, each kind of bad one refused with the clip and the next step."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.cache_files import (
    ENTRY,
    HASH_BYTES,
    CacheFileError,
    Index,
    open_packed,
    read_index,
    read_npy,
    write_index,
)
from xttsbench.xtts.data.feature_cache import FeatureCache, cache_path, open_cache
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings, log_mel
from xttsbench.xtts.wav import read_canonical_wav

Read = Callable[[Path], SpeechData]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, noise, read: Read, features: FeatureSettings) -> Path:
    """A directory with a data set, ``speech``, and the root of its cache, ``root``; copied for each test."""
    home = tmp_path_factory.mktemp("made")
    precompute(read(noise(home / "speech")), features, home / "root")
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path, features: FeatureSettings) -> Path:
    """A copy with the same times of change; the cache is where one of the copied data set belongs."""
    shutil.copytree(made / "speech", tmp_path / "speech")
    old, new = (cache_path(place / "speech", features, place / "root") for place in (made, tmp_path))
    shutil.copytree(old, new)
    return tmp_path


def packed_rows(cache: FeatureCache) -> np.ndarray:
    return open_packed(cache.packed, cache.packed_rows, 80)


@pytest.fixture
def cache(home: Path, features: FeatureSettings) -> Path:
    return cache_path(home / "speech", features, home / "root")


def test_features_are_those_of_the_wav_files_in_both_forms(home: Path, read: Read, features: FeatureSettings) -> None:
    data = read(home / "speech")
    cache = open_cache(data, features, home / "root")
    packed = packed_rows(cache)
    assert np.load(cache.packed, mmap_mode="r", allow_pickle=False).shape == (cache.frames.sum(), 80)
    for clip in range(len(data)):
        mel = log_mel(read_canonical_wav(data.wav(clip), 22050), features)
        first = cache.offsets[clip]
        np.testing.assert_array_equal(read_npy(cache.npy(clip), 80), mel, strict=True)
        np.testing.assert_array_equal(packed[first : first + cache.frames[clip]], mel, strict=True)
        assert cache.frames[clip] == len(mel) == features.frames(int(data.samples[clip]))
        assert cache.npy(clip).name == f"{data.id(clip)}.npy"


def test_clips_are_in_the_order_of_the_data_set_given(home: Path, read: Read, features: FeatureSettings) -> None:
    data = read(home / "speech")
    whole = open_cache(data, features, home / "root")
    some = open_cache(data.subset(np.array([4, 0, 5])), features, home / "root")
    np.testing.assert_array_equal(some.frames, whole.frames[[4, 0, 5]])
    np.testing.assert_array_equal(some.offsets, whole.offsets[[4, 0, 5]])
    assert [some.npy(clip).name for clip in range(3)] == ["c4.npy", "c0.npy", "c5.npy"]
    np.testing.assert_array_equal(packed_rows(some), packed_rows(whole))


def test_paths_differ_by_place_settings_and_root(tmp_path: Path, features: FeatureSettings, monkeypatch) -> None:
    monkeypatch.setenv("XTTSBENCH_CACHE", str(tmp_path / "user"))
    other = features.model_copy(update={"hop_samples": 200})
    places = [tmp_path / "a" / "speech", tmp_path / "b" / "speech"]
    paths = [cache_path(place, settings) for place in places for settings in (features, other)]
    assert len(set(paths)) == 4
    assert all(path.is_relative_to(tmp_path / "user" / "features") for path in paths)
    assert all(path.parent.name.startswith("speech-") for path in paths)
    assert cache_path(tmp_path / "a" / ".." / "a" / "speech", features) == paths[0]
    assert cache_path(places[0], features, tmp_path / "root").is_relative_to(tmp_path / "root")
    assert cache_path(Path("/"), features).parent.name.startswith("root-")
    assert len(cache_path(tmp_path / ("x" * 255), features).parent.name) < 100


def refused(home: Path, data: SpeechData, features: FeatureSettings) -> str:
    """Return the refusal, which names the data set and the next step."""
    with pytest.raises(InvalidInputError) as caught:
        open_cache(data, features, home / "root")
    text = str(caught.value)
    command = f"run 'xttsbench data precompute --data {home / 'speech'} --out {home / 'root'}'"
    assert text.startswith(f"{home / 'speech'}: ")
    assert text.endswith(command)
    assert "\n" not in text
    assert caught.value.exit_code == 5
    return text


def rewritten(path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    np.save(path, change(np.load(path)))


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("npy/c3.npy", Path.unlink, "the clip 'c3' cannot be read from the cache: npy/c3.npy is missing"),
        ("npy/c3.npy", lambda p: rewritten(p, lambda a: a[:9]), "'c3' has 9 frames in npy/c3.npy, and 29 in its WAV"),
        ("packed.npy", Path.unlink, "packed.npy is missing"),
        ("packed.npy", lambda p: rewritten(p, lambda a: a[:-1]), "packed.npy has .* rows, and the index .* means"),
        ("index.npz", Path.unlink, "index.npz is missing"),
        ("index.npz", lambda p: p.write_bytes(p.read_bytes()[:-9]), "index.npz is damaged"),
        ("index.npz", lambda p: shutil.copy(p.with_name("packed.npy"), p), "index.npz is damaged"),
    ],
)
def test_a_damaged_cache_is_refused(home, cache, read, features, name: str, change, why: str) -> None:
    change(cache / name)
    text = refused(home, read(home / "speech"), features)
    assert re.search(why, text), text


def test_no_cache_and_one_of_other_settings(home: Path, cache: Path, read: Read, features: FeatureSettings) -> None:
    data = read(home / "speech")
    other = features.model_copy(update={"f_max_hz": 7600.0, "n_mels": 64})
    assert "does not exist; run" in refused(home, data, other)
    shutil.rmtree(cache.parent)
    assert "does not exist; run" in refused(home, data, features)


def test_a_cache_of_other_settings_in_its_place(home, cache, read, features) -> None:
    data, other = read(home / "speech"), features.model_copy(update={"log_floor": 1e-6})
    shutil.copytree(cache, cache_path(data, other, home / "root"))
    assert "index.npz was made with other feature settings or another version" in refused(home, data, other)


def test_an_index_that_does_not_fit_the_packed_file_or_was_not_finished_is_refused(home, cache, read, features) -> None:
    index = read_index(cache / "index.npz", features)
    write_index(cache / "index.npz", index, features, complete=False)
    assert "index.npz is of a cache that was not finished" in refused(home, read(home / "speech"), features)
    entries = index.entries.copy()
    entries["frames"][2] += 1
    write_index(cache / "index.npz", Index(index.ids, entries), features, complete=True)
    assert "packed.npy has " in refused(home, read(home / "speech"), features)


def test_a_clip_that_is_not_in_the_cache_is_named(home: Path, read: Read, features: FeatureSettings) -> None:
    shutil.copy(home / "speech/wavs/c1.wav", home / "speech/wavs/new.wav")
    with (home / "speech/metadata.csv").open("a") as file:
        file.write("new|some words\n")
    assert "the clip 'new' is not in the cache" in refused(home, read(home / "speech"), features)


def test_a_changed_wav_file_is_stale_and_a_touched_or_copied_one_is_not(home, read, features) -> None:
    wav = home / "speech/wavs/c2.wav"
    content = wav.read_bytes()
    os.utime(wav, ns=(0, 0))
    open_cache(read(home / "speech"), features, home / "root")
    shutil.copy(wav, home / "copy.wav")
    (home / "copy.wav").replace(wav)
    open_cache(read(home / "speech"), features, home / "root")

    wav.write_bytes(content[:3000] + bytes([content[3000] ^ 1]) + content[3001:])
    text = refused(home, read(home / "speech"), features)
    assert "the clip 'c2' has another WAV file than when its features were made (same size)" in text
    wav.write_bytes((home / "speech/wavs/c4.wav").read_bytes())
    assert "the clip 'c2' has another WAV file" in refused(home, read(home / "speech"), features)
    wav.write_bytes(content)
    open_cache(read(home / "speech"), features, home / "root")


def test_a_wav_file_that_went_after_the_data_set_was_read(home: Path, read: Read, features: FeatureSettings) -> None:
    data = read(home / "speech")
    (home / "speech/wavs/c5.wav").unlink()
    assert "the clip 'c5' has lost its WAV file" in refused(home, data, features)


def test_a_packed_file_that_was_replaced_after_opening_is_refused(home, cache, read, features) -> None:
    opened = open_cache(read(home / "speech"), features, home / "root")
    rewritten(cache / "packed.npy", lambda rows: rows[:-1])
    with pytest.raises(CacheFileError, match="rows, and the index of its cache means"):
        packed_rows(opened)


def index_of_many(clips: int) -> tuple[list[str], np.ndarray]:
    entries = np.zeros(clips, ENTRY)
    entries["frames"] = np.arange(clips) % 800 + 1
    entries["wav_hash"] = np.random.default_rng(0).integers(0, 256, (clips, HASH_BYTES))
    return [f"LJ{number:07d}" for number in range(clips)], entries


def test_an_index_that_contradicts_itself_is_refused(tmp_path: Path, features: FeatureSettings) -> None:
    ids, entries = index_of_many(3)
    entries["frames"][1] = 0
    write_index(tmp_path / "index.npz", Index(ids, entries), features, complete=True)
    with pytest.raises(CacheFileError, match="contradicts itself"):
        read_index(tmp_path / "index.npz", features)
    with pytest.raises(CacheFileError, match="other feature settings"):
        read_index(tmp_path / "index.npz", features.model_copy(update={"n_mels": 8}))
