"""Shards: the same data as the files that they were made from, whole or resumed, and each fault of a file is named."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.training.course import Position, planned_epoch, planned_from
from xttsbench.xtts.data.feature_cache import open_cache
from xttsbench.xtts.data.planned import planned
from xttsbench.xtts.data.precompute import make_cache
from xttsbench.xtts.data.shard_index import MANIFEST
from xttsbench.xtts.data.shards import MadeShards, attach, make_shards, verify_shards
from xttsbench.xtts.data.speech_data import SpeechData, Split, read_speech_data
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.loaders.packed import packed
from xttsbench.xtts.recipe import Recipe

CLIPS = 40
SHARD_BYTES, SHARDS = 60_000, 7
"""A few clips of the noise, so that there are several shards."""


def shard(directory: Path, out: Path, features: FeatureSettings, seed: int = 0, workers: int = 1) -> MadeShards:
    data = read_speech_data(directory, sample_rate_hz=22050, split="all", seed=seed)
    cache = make_cache(data, features, directory.parent / "cache", workers=1).cache
    return make_shards(data, cache, out, seed=seed, shard_bytes=SHARD_BYTES, workers=workers)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, noise: Callable[..., Path]) -> Path:
    directory = noise(tmp_path_factory.mktemp("set") / "speech", CLIPS)
    lines = [f"c{number}|words of ä clip, number {'x' * (number % 7)}\n" for number in range(CLIPS)]
    (directory / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    (directory / "speakers.csv").write_text("".join(f"c{number}|s{number % 3}\n" for number in range(CLIPS)))
    return directory


@pytest.fixture
def made(source: Path, tmp_path: Path, features: FeatureSettings) -> Path:
    shard(source, tmp_path / "shards", features)
    return tmp_path / "shards"


def content(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def pair(source: Path, shards: Path, split: Split, seed: int) -> tuple[SpeechData, SpeechData]:
    one, other = (read_speech_data(path, sample_rate_hz=22050, split=split, seed=seed) for path in (source, shards))
    return one, other


@pytest.mark.parametrize("named", [False, True], ids=["held out by the seed", "held out by name"])
def test_the_index_is_the_data_set(
    source: Path, tmp_path: Path, features: FeatureSettings, tiny: Recipe, named: bool
) -> None:
    copied = tmp_path / "set"
    copied.mkdir()
    (copied / "wavs").symlink_to(source / "wavs")
    lines = (source / "metadata.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (copied / "metadata.csv").write_text("".join(lines[: -4 if named else None]), encoding="utf-8")
    (copied / "speakers.csv").write_bytes((source / "speakers.csv").read_bytes())
    if named:
        (copied / "metadata_eval.csv").write_text("".join(lines[-4:]), encoding="utf-8")
    shard(copied, tmp_path / "shards", features, seed=3)
    for seed in (3, 4):  # the one that the index has the split of, and another
        for split in ("all", "train", "eval"):
            one, other = pair(copied, tmp_path / "shards", split, seed)
            assert one.speaker_names == other.speaker_names
            for clip in range(len(one)):
                assert (one.id(clip), one.text(clip)) == (other.id(clip), other.text(clip))
            assert (one.text_lengths == other.text_lengths).all()


@examples(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**31), epoch=st.integers(0, 3), size=st.integers(1, 6), start=st.integers(0, 5))
def test_a_plan_from_the_index_resumes_in_the_same_batches(
    source: Path, shards_of_all: Path, tiny: Recipe, seed: int, epoch: int, size: int, start: int
) -> None:
    one, other = pair(source, shards_of_all, "train", seed)
    settings = tiny.batches.model_copy(update={"batch_size": size})
    whole = planned_epoch(one, tiny, settings, seed, epoch)
    assert planned_epoch(other, tiny, settings, seed, epoch)[:] == whole[:]
    start %= len(whole)
    resumed = planned_from(other, tiny, settings, seed, Position(step=9, epoch=epoch, batch=start))
    for number in range(start, len(whole)):
        position, batch = next(resumed)
        assert batch == whole[number]
        assert position.step == 10 + number - start
    assert next(resumed)[1] == planned_epoch(one, tiny, settings, seed, epoch + 1)[0]


@pytest.fixture(scope="module")
def shards_of_all(source: Path, tmp_path_factory: pytest.TempPathFactory, features: FeatureSettings) -> Path:
    out = tmp_path_factory.mktemp("shards") / "of all"
    shard(source, out, features)
    return out


@pytest.mark.parametrize("remote", [False, True], ids=["in the directory", "attached by a URL"])
def test_batches_from_shards_are_those_from_the_packed_file(
    source: Path, shards_of_all: Path, tmp_path: Path, features: FeatureSettings, tiny: Recipe, remote: bool
) -> None:
    directory = shards_of_all
    if remote:
        pytest.importorskip("fsspec")
        directory = tmp_path / "attached"
        attach(f"file://{shards_of_all}", directory, in_flight=3)
    one, other = pair(source, directory, "train", 0)
    settings = tiny.batches.model_copy(update={"batch_size": 3})
    batches = [batch for epoch in (0, 1) for batch in planned_epoch(one, tiny, settings, 0, epoch)]
    makes = []
    for data in (one, other):
        cache = open_cache(data, features, source.parent / "cache")
        makes.append(packed(planned(data, batches, features), data, cache, features))
    for number in (*range(len(batches)), 0, 1, 5, 4):  # another turn, and a batch that overtakes
        for ours, theirs in zip(makes[0](number), makes[1](number), strict=True):
            assert np.array_equal(ours, theirs)


def test_the_bytes_do_not_depend_on_the_number_of_processes(
    source: Path, made: Path, tmp_path: Path, features: FeatureSettings
) -> None:
    shard(source, tmp_path / "other", features, workers=3)
    assert content(made) == content(tmp_path / "other")
    assert len(list(made.glob("shard-*.npy"))) == SHARDS


WRITING = """
import os, sys
from pathlib import Path
from tests.unit.xtts.data.test_shards import shard
from xttsbench.shipped import shipped
from xttsbench.xtts.recipe import load_recipe
real, renamed = os.replace, 0
def replace(source, target):
    global renamed
    real(source, target)
    renamed += 1
    if renamed == int(sys.argv[3]):
        print("now", flush=True)
        sys.stdin.read()
os.replace = replace
shard(Path(sys.argv[1]), Path(sys.argv[2]), load_recipe(shipped("training", "tiny")).features)
"""


@pytest.mark.parametrize("renamed", [1, 4, 9, 16])
def test_a_killed_run_goes_on_and_keeps_finished_shards(
    source: Path, made: Path, tmp_path: Path, features: FeatureSettings, renamed: int
) -> None:
    out = tmp_path / "broken off"
    make_cache(
        read_speech_data(source, sample_rate_hz=22050, split="all"), features, source.parent / "cache", workers=1
    )
    command = [sys.executable, "-c", WRITING, str(source), str(out), str(renamed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"now\n"
        os.kill(run.pid, signal.SIGKILL)
    finished = {path: path.stat().st_mtime_ns for path in out.glob("shard-*.json")}
    assert len(finished) == min(renamed // 2, SHARDS)  # after them the columns are written
    assert not (out / MANIFEST).exists()
    with pytest.raises(InvalidInputError, match="not a data set"):
        read_speech_data(out, sample_rate_hz=22050)
    time.sleep(0.01)
    again = shard(source, out, features)
    assert again.kept == len(finished)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert content(out) == content(made)


FAULTS = {
    "flipped byte": ("shard-00001.npy", lambda path: flip(path, 3000), "shard-00001.npy has other bytes"),
    "missing": (
        "shard-00002.npy",
        lambda path: path.unlink(),
        "shard-00002.npy cannot be read: [Errno 2] No such file",
    ),
    "truncated": (
        "shard-00000.npy",
        lambda path: os.truncate(path, 5000),
        "shard-00000.npy cannot be read: 5000 bytes came",
    ),
    "appended": (
        "shard-00001.npy",
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
        "shard-00001.npy has other bytes",
    ),
    "index of another": (
        "shard-00003.json",
        lambda path: path.write_bytes(path.with_name("shard-00001.json").read_bytes()),
        "shard-00003.json ",
    ),
    "flipped in an index": ("shard-00003.json", lambda path: flip(path, 200), "shard-00003.json "),
    "column": ("index/texts.npy", lambda path: flip(path, 150), "index/texts.npy has other bytes"),
}


def flip(path: Path, place: int) -> None:
    changed = bytearray(path.read_bytes())
    changed[place] ^= 1
    path.write_bytes(changed)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_mended_by_making_the_shards_again(
    source: Path, made: Path, features: FeatureSettings, fault: str
) -> None:
    assert verify_shards(made, workers=1).problems == ()
    before = content(made)
    name, damage, words = FAULTS[fault]
    damage(made / name)
    (problem,) = verify_shards(made, workers=1).problems
    assert words in problem.what
    again = shard(source, made, features)
    assert again.made == name.startswith("shard")
    assert verify_shards(made, workers=1).problems == ()
    assert content(made) == before


def test_a_clip_that_changed_makes_its_shard_anew(
    source: Path, tmp_path: Path, features: FeatureSettings, noise: Callable[..., Path]
) -> None:
    directory = noise(tmp_path / "speech", 20)
    first = shard(directory, tmp_path / "out", features)
    (directory / "wavs" / "c9.wav").write_bytes((directory / "wavs" / "c3.wav").read_bytes())
    again = shard(directory, tmp_path / "out", features)
    assert (first.kept, again.made) == (0, 1)
    assert verify_shards(tmp_path / "out", workers=1).problems == ()


def test_a_manifest_of_somebody_else_makes_no_shards_of_a_data_set(noise: Callable[..., Path], tmp_path: Path) -> None:
    directory = noise(tmp_path / "speech", 6)
    (directory / MANIFEST).write_text("{}")
    assert len(read_speech_data(directory, sample_rate_hz=22050, split="all")) == 6


def test_what_cannot_be_used_is_refused(source: Path, made: Path, tmp_path: Path, features: FeatureSettings) -> None:
    with pytest.raises(InvalidInputError, match="are of 22050 Hz, and the recipe's of 16000"):
        read_speech_data(made, sample_rate_hz=16000)
    data = read_speech_data(made, sample_rate_hz=22050)
    with pytest.raises(InvalidInputError, match="other settings than the recipe's"):
        open_cache(data, features.model_copy(update={"f_max_hz": 7000.0}))
    os.truncate(made / "shard-00001.npy", 100)
    with pytest.raises(InvalidInputError, match=r"shard-00001\.npy cannot be used: it has 100 bytes"):
        open_cache(data, features)
    os.truncate(made / "index" / "samples.npy", 200)
    with pytest.raises(InvalidInputError, match=r"samples\.npy cannot be used: it has 200 bytes"):
        read_speech_data(made, sample_rate_hz=22050)
    record = json.loads((made / MANIFEST).read_text()) | {"schema_version": 2}
    (made / MANIFEST).write_text(json.dumps(record))
    with pytest.raises(InvalidInputError, match=r"manifest\.json is damaged: schema_version"):
        read_speech_data(made, sample_rate_hz=22050)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"holds 'thesis\.txt'"):
        shard(source, tmp_path / "taken", features)
