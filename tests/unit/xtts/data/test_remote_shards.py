"""Shards that are read over a network: every byte is right, or an error names the file after a limited number of tries.

The file system in memory is fsspec's; the S3 server is moto's, behind a relay with faults, where both are installed.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.relay import FAULTS, Relay
from tests.unit.xtts.data.test_shards import flip, shard
from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.training.course import planned_epoch
from xttsbench.xtts.data import shard_files
from xttsbench.xtts.data.feature_cache import open_cache
from xttsbench.xtts.data.planned import planned
from xttsbench.xtts.data.shard_files import ATTEMPTS, Files
from xttsbench.xtts.data.shard_index import ShardIndex, read_record
from xttsbench.xtts.data.shards import attach, verify_shards
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.loaders.packed import packed
from xttsbench.xtts.loaders.read_ahead import ReadAhead
from xttsbench.xtts.recipe import Recipe

fsspec = pytest.importorskip("fsspec")
memory = pytest.importorskip("fsspec.implementations.memory")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, noise: Callable[..., Path], features: FeatureSettings) -> Path:
    folder = tmp_path_factory.mktemp("remote")
    shard(noise(folder / "speech", 24), folder / "shards", features)
    return folder / "shards"


def files_of(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != "lock"]


def all_batches(directory: Path, features: FeatureSettings, recipe: Recipe) -> list[Any]:
    data = read_speech_data(directory, sample_rate_hz=22050)
    settings = recipe.batches.model_copy(update={"batch_size": 3})
    batches = planned_epoch(data, recipe, settings, 0, 0)
    make = packed(planned(data, batches, features), data, open_cache(data, features), features)
    return [make(number) for number in range(len(batches))]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


class Network:
    """What goes wrong with reads of the memory's files, the waits of whoever reads, and the files that it asked for."""

    def __init__(self) -> None:
        self.fault: Callable[[str], str | None] = lambda path: None
        self.waits: list[float] = []
        self.asked: list[str] = []
        self.system = memory.MemoryFileSystem()
        self._read = memory.MemoryFileSystem.cat_file

    def cat_file(self, system: Any, path: str, **part: Any) -> bytes:
        self.asked.append(path)
        kind = self.fault(path)
        if kind == "raises":
            raise ConnectionError("connection reset by peer")
        content = bytes(self._read(system, path, **part))
        if kind == "short":
            return content[:-7]
        return bytes([content[0] ^ 1]) + content[1:] if kind == "flips" else content


@pytest.fixture
def network(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """Shards in the memory of this process, whose index is in ``attached``."""
    network = Network()
    for path in files_of(shards):
        network.system.pipe_file(f"/speech/{path.relative_to(shards)}", path.read_bytes())

    def cat_file(system: Any, path: str, **part: Any) -> bytes:
        return network.cat_file(system, path, **part)

    monkeypatch.setattr(memory.MemoryFileSystem, "cat_file", cat_file)
    monkeypatch.setattr(shard_files.time, "sleep", network.waits.append)
    attach("memory://speech", tmp_path / "attached", in_flight=4)
    return network


@pytest.mark.parametrize("kind", ["raises", "short", "flips"])
def test_faults_that_pass_cost_no_sample_and_no_byte(
    shards: Path, network: Network, tmp_path: Path, features: FeatureSettings, tiny: Recipe, kind: str
) -> None:
    rng = random.Random(5)
    network.fault = lambda path: kind if rng.random() < 0.3 else None
    assert_same(all_batches(tmp_path / "attached", features, tiny), all_batches(shards, features, tiny))
    assert network.waits
    assert max(network.waits) <= 5


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("raises", "ConnectionError: connection reset by peer"),
        ("short", "bytes came, and"),
        ("flips", "its bytes are not those that were written, by their check sum"),
    ],
)
def test_a_fault_that_stays_is_an_error_after_so_many_attempts(
    network: Network, tmp_path: Path, features: FeatureSettings, tiny: Recipe, kind: str, words: str
) -> None:
    network.fault = lambda path: kind if "shard-00001" in path else None
    with pytest.raises(InvalidInputError, match=rf"shard-00001\.npy cannot be read in {ATTEMPTS} attempts.*{words}"):
        all_batches(tmp_path / "attached", features, tiny)


def test_what_is_missing_is_not_waited_for(
    network: Network, tmp_path: Path, features: FeatureSettings, tiny: Recipe
) -> None:
    network.system.rm_file("/speech/shard-00002.npy")
    with pytest.raises(InvalidInputError, match=r"memory://speech/shard-00002\.npy cannot be read"):
        all_batches(tmp_path / "attached", features, tiny)
    network.asked.clear()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        Files("memory://speech").read("shard-00002.npy", 0, 10)
    assert sum("shard-00002" in path for path in network.asked) == 1
    (problem,) = verify_shards(tmp_path / "attached", workers=1).problems
    assert "shard-00002.npy cannot be read" in problem.what
    assert problem.remedy == "upload the file again"


def test_a_column_of_another_index_is_refused(network: Network, tmp_path: Path) -> None:
    content = network.system.cat_file("/speech/index/samples.npy")
    network.system.pipe_file("/speech/index/samples.npy", content[:-1] + b"\x07")
    with pytest.raises(InvalidInputError, match=r"index/samples\.npy is not the column of its manifest"):
        attach("memory://speech", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_waits_draw_nothing_from_a_seeded_program(network: Network, tmp_path: Path) -> None:
    random.seed(3)
    before = random.getstate()
    network.fault = lambda path: "raises"
    with pytest.raises(InvalidInputError, match="cannot be read in"):
        Files("memory://speech").read("manifest.json")
    assert network.asked.count("/speech/manifest.json") >= ATTEMPTS
    assert random.getstate() == before


def test_without_the_extra_it_says_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'xttsbench\[remote\]'"):
        Files("s3://bucket/speech")


def test_requests_in_flight_are_limited_and_run_ahead() -> None:
    running, most, asked = 0, 0, []

    def read(clip: int) -> bytes:
        nonlocal running, most
        asked.append(clip)
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1
        return b"%d" % clip

    ahead = ReadAhead(read, lambda number: [2 * number, 2 * number + 1, 2 * number], 10, in_flight=3)
    for _turn in range(2):
        for number in range(10):
            assert ahead.take(number) == {2 * number: b"%d" % (2 * number), 2 * number + 1: b"%d" % (2 * number + 1)}
    ahead.close()
    assert most == 3
    assert sorted(asked) == sorted([*range(20)] * 2)


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 60
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield port
        finally:
            server.kill()


@pytest.fixture
def bucket(s3_port: int, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """A relay before a bucket with the shards; the environment says that S3 is there."""
    relay = Relay(s3_port)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", relay.url)
    monkeypatch.setattr(shard_files, "_FIRST_WAIT_S", 0.01)
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    if not system.exists("speech"):
        system.mkdir("speech")
    for path in files_of(shards):
        system.pipe_file(f"speech/set/{path.relative_to(shards)}", path.read_bytes())
    attach("s3://speech/set", tmp_path / "attached", in_flight=8)
    relay.requests.clear()
    yield relay
    relay.close()


@pytest.mark.parametrize("kind", FAULTS)
def test_of_s3_every_byte_is_right_whatever_goes_wrong_on_the_way(
    shards: Path, bucket: Relay, tmp_path: Path, features: FeatureSettings, tiny: Recipe, kind: str
) -> None:
    rng = random.Random(1)
    bucket.fault = lambda method, path: kind if rng.random() < 0.3 else None
    found = all_batches(tmp_path / "attached", features, tiny)
    assert_same(found, all_batches(shards, features, tiny))
    clips = sum(len({*batch.numbers[: len(batch.mel)].tolist()}) for batch in found)
    assert len(bucket.requests) > 1.1 * clips


@pytest.mark.parametrize("kind", FAULTS)
def test_of_s3_a_fault_that_stays_ends_in_one_sentence(
    shards: Path, bucket: Relay, tmp_path: Path, features: FeatureSettings, tiny: Recipe, kind: str
) -> None:
    bucket.fault = lambda method, path: kind if "shard-00001" in path else None
    with pytest.raises(InvalidInputError, match=rf"shard-00001\.npy cannot be read in {ATTEMPTS} attempts"):
        all_batches(tmp_path / "attached", features, tiny)
    asked = [path for path in bucket.requests if "shard-00001" in path]
    clips = len(read_record(shards / "shard-00001.json", ShardIndex).frames)
    assert len(asked) <= 2 * ATTEMPTS * clips  # the HTTP library asks once more where a connection was closed


def test_of_s3_an_object_that_changed_or_is_gone_is_named(
    shards: Path, bucket: Relay, tmp_path: Path, features: FeatureSettings, tiny: Recipe
) -> None:
    changed = tmp_path / "changed.npy"
    changed.write_bytes((shards / "shard-00000.npy").read_bytes())
    flip(changed, 1000)
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    system.pipe_file("speech/set/shard-00000.npy", changed.read_bytes())
    system.rm_file("speech/set/shard-00002.npy")
    problems = [problem.what for problem in verify_shards(tmp_path / "attached", workers=1).problems]
    assert [os.path.basename(what.split()[0]) for what in problems] == ["shard-00000.npy", "shard-00002.npy"]
    with pytest.raises(InvalidInputError, match=r"check sum|cannot be read"):
        all_batches(tmp_path / "attached", features, tiny)
