"""Checkpoints are there whole or not at all: damage, kills, full disks, other versions, and what is kept."""

from __future__ import annotations

import hashlib
import io
import json
import random
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.forked import start
from tests.unit.training.writing import no_warning, writes_on
from xttsbench.errors import InvalidInputError
from xttsbench.training.checkpoints import MANIFEST, Checkpoints, RunState, digest, read_manifest
from xttsbench.training.course import Position

ARRAYS = {
    "blocks/0/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "updates": np.array(3, np.int64),
    "empty": np.zeros((0, 4), np.float32),
    "transposed": np.arange(6.0).reshape(2, 3).T,
}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "run" / "checkpoints", keep=2)


@pytest.fixture
def save(checkpoints: Checkpoints, origin: Any) -> Callable[..., Any]:
    def save(step: int, *, best: bool = False) -> Any:
        run = RunState(origin=origin(), position=Position(step=step, epoch=1, batch=2), samples_sha256="ab")
        return checkpoints.save(run, {"w": np.full(100, step, np.float32)}, ARRAYS, best=best)

    return save


def test_what_is_read_is_what_was_written(checkpoints: Checkpoints, save: Any) -> None:
    assert checkpoints.newest(no_warning) is None
    entry = save(5)
    found = checkpoints.newest(no_warning)
    assert (found.entry, found.run.position, found.run.samples_sha256) == (
        entry,
        Position(step=5, epoch=1, batch=2),
        "ab",
    )
    assert found.optimizer.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found.optimizer[name].dtype == array.dtype
        np.testing.assert_array_equal(found.optimizer[name], array, strict=True)
    assert (
        entry.model_dump().items() >= {"step": 5, "epoch": 1, "batch": 2, "samples_sha256": "ab", "best": False}.items()
    )
    state = (checkpoints.directory / entry.files[2]).read_bytes()
    assert entry.state_sha256 == hashlib.sha256(state).hexdigest()


def test_a_digest_tells_names_types_shapes_and_bytes_apart_and_no_order() -> None:
    one = np.arange(6, dtype=np.float32)
    others = [{"b": one}, {"a": one.astype(np.float64)}, {"a": one.reshape(2, 3)}, {"a": one + 1}, {"a": one, "b": one}]
    assert len({digest(arrays) for arrays in [{"a": one}, *others]}) == 6
    assert digest({"a": one, "b": 2 * one}) == digest({"b": 2 * one, "a": one})
    content = b"a\0<f4\0(6,)\0" + one.tobytes()
    assert digest({"a": one}) == hashlib.sha256(content).hexdigest()


def test_the_newest_and_the_best_are_kept(checkpoints: Checkpoints, save: Any) -> None:
    for step in range(6):
        save(step, best=step in (1, 2))
    assert [entry.step for entry in checkpoints.entries] == [2, 4, 5]
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == [
        *("manifest.json", "step-00000002", "step-00000004", "step-00000005")
    ]
    assert json.loads((checkpoints.directory / MANIFEST).read_text())["checkpoints"][-1]["step"] == 5


def test_a_step_that_is_written_again_takes_the_place_of_its_course(checkpoints: Checkpoints, save: Any) -> None:
    for step in (1, 2, 3, 2):
        save(step)
    assert [entry.files[0] for entry in checkpoints.entries] == ["step-00000002-1/weights.npz"]
    save(3)
    assert [entry.step for entry in checkpoints.entries] == [2, 3]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"NUMPY") + 130 if path.suffix == ".npz" else 40] ^= 1
    path.write_bytes(content)


def pickled(path: Path) -> None:
    member = io.BytesIO()
    np.lib.format.write_array(member, np.array([print], object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", member.getvalue())


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink, pickled, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_one_is_named_and_an_older_one_taken(checkpoints, save, number, damage) -> None:
    save(1)
    broken = checkpoints.directory / save(2).files[number]
    damage(broken)
    warnings: list[str] = []
    found = checkpoints.newest(warnings.append)
    assert found.entry.step == 1
    (sentence,) = warnings
    assert sentence.startswith(f"{broken} ")
    assert sentence.endswith("an older one is taken")
    damage(checkpoints.directory / found.entry.files[number])
    with pytest.raises(InvalidInputError, match="none of 2 checkpoints is whole; begin again in another directory"):
        checkpoints.newest(warnings.append)


def test_a_newer_version_is_refused_and_not_passed_over(checkpoints: Checkpoints, save: Any) -> None:
    save(1)
    entry = save(2)
    path = checkpoints.directory / entry.files[2]
    newer = path.read_bytes().replace(b'"schema_version": 3', b'"schema_version": 4')
    path.write_bytes(newer)
    manifest = checkpoints.directory / MANIFEST
    text = manifest.read_text().replace(entry.state_sha256, hashlib.sha256(newer).hexdigest())
    manifest.write_text(text)
    with pytest.raises(InvalidInputError, match=r"state.json: schema_version is 4, .* reads 3; take a newer version"):
        checkpoints.newest(no_warning)
    manifest.write_text(text.replace('"schema_version": 3', '"schema_version": 5'))
    with pytest.raises(InvalidInputError, match=r"manifest.json: schema_version is 5"):
        checkpoints.newest(no_warning)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "manifest.json is not JSON"),
        ("[]", "manifest.json is no manifest of checkpoints"),
        ('{"checkpoints": [{"step": 1}]}', "manifest.json is no manifest of checkpoints"),
    ],
)
def test_a_malformed_manifest_is_refused(checkpoints: Checkpoints, content: str, message: str) -> None:
    checkpoints.directory.mkdir(parents=True)
    (checkpoints.directory / MANIFEST).write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        checkpoints.newest(no_warning)


@pytest.mark.parametrize("name", ["..", "../../else", "/tmp", "step-1", "step-00000001/x"])
def test_a_manifest_leads_nowhere_else(checkpoints: Checkpoints, save: Any, name: str) -> None:
    save(1)
    path = checkpoints.directory / MANIFEST
    path.write_text(path.read_text().replace("step-00000001/", f"{name}/"))
    with pytest.raises(InvalidInputError, match="it was changed by another program"):
        read_manifest(checkpoints.directory)


@pytest.mark.parametrize("file", ["weights.npz", "optimizer.npz", "state.json", MANIFEST])
def test_on_a_full_disk_nothing_is_left_and_the_older_ones_stay(checkpoints, save, full_disk, file) -> None:
    checkpoints.keep = 20
    for step in range(10, 18):
        save(step)
    before = {path: path.read_bytes() for path in checkpoints.directory.rglob("*") if path.is_file()}
    sizes = {path.name: len(content) for path, content in before.items()}
    written = [sizes[name] for name in ("weights.npz", "optimizer.npz", "state.json", MANIFEST)]
    assert written == sorted(written), "in this order, so that the limit stops the one that is meant"
    with full_disk(sizes[file] - 1), pytest.raises(OSError, match="File too large"):
        save(18)
    assert {path: path.read_bytes() for path in checkpoints.directory.rglob("*") if path.is_file()} == before
    assert len(list(checkpoints.directory.iterdir())) == 8 + 1
    save(18)


def test_a_writer_that_is_killed_leaves_whole_ones(checkpoints: Checkpoints, save: Any) -> None:
    save(1)
    rng, begun = random.Random(5), []
    for _ in range(4):
        process, pipe = start(writes_on, checkpoints.directory)
        begun.append(pipe.recv())
        time.sleep(rng.uniform(0.01, 0.3))
        process.kill()
        process.join()
    found = checkpoints.newest(no_warning)
    assert begun == sorted(begun)
    assert found.entry.step >= begun[-1]
    assert (found.weights["w"] == found.entry.step).all()
    assert (found.optimizer["m"] == -found.entry.step).all()
    checkpoints.clear()
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == [
        *(MANIFEST, *(entry.files[0].split("/")[0] for entry in checkpoints.entries))
    ]
