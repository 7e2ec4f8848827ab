"""Mending: each fault, planted by hand, is named with its file, and the mended cache is, byte for byte, a new one."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from tests.forked import start
from xttsbench.errors import XttsbenchError
from xttsbench.shipped import shipped
from xttsbench.xtts.data import cache_files
from xttsbench.xtts.data.cache_files import INDEX, CacheFileError, Index, read_index, write_index
from xttsbench.xtts.data.feature_cache import cache_path
from xttsbench.xtts.data.precompute import make_cache, mend
from xttsbench.xtts.data.verification import verify
from xttsbench.xtts.recipe import load_recipe
from xttsbench.xtts.wav import write_wav

FEATURES = load_recipe(shipped("training", "tiny")).features


@pytest.fixture
def speech(noise: Callable[..., Path], tmp_path: Path) -> Path:
    return noise(tmp_path / "speech", 4)


@pytest.fixture
def cache(speech: Path, tmp_path: Path, read) -> Path:
    return make_cache(read(speech), FEATURES, tmp_path / "root", workers=1).cache.directory


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def look(speech: Path, root: Path):
    return verify(speech, FEATURES, root, workers=1)


def fix(speech: Path, root: Path):
    return mend(look(speech, root), FEATURES, root, workers=1)


def from_scratch(speech: Path, root: Path, read) -> dict[str, bytes]:
    return files(make_cache(read(speech), FEATURES, root, workers=1).cache.directory)


def saved(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    return lambda cache: np.save(cache / name, change(np.load(cache / name)), allow_pickle=True)


def written(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda cache: (cache / name).write_bytes(
        change((cache / name).read_bytes() if (cache / name).exists() else b"")
    )


def with_nan(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array[3, 2] = np.nan
    return array


def reindexed(change: Callable[[list[str], np.ndarray], tuple[list[str], np.ndarray]]) -> Callable[[Path], None]:
    def plant(cache: Path) -> None:
        index = read_index(cache / INDEX, FEATURES)
        write_index(cache / INDEX, Index(*change(index.ids, index.entries)), FEATURES, complete=True)

    return plant


def replaced_by_directory(cache: Path) -> None:
    (cache / "npy/c1.npy").unlink()
    (cache / "npy/c1.npy").mkdir()


def replaced_by_pipe(name: str) -> Callable[[Path], None]:
    def plant(cache: Path) -> None:
        (cache / name).unlink()
        os.mkfifo(cache / name)

    return plant


def no_folder(cache: Path) -> None:
    shutil.rmtree(cache / "npy")
    (cache / "npy").write_bytes(b"a file")


def other_settings(cache: Path) -> None:
    index = read_index(cache / INDEX, FEATURES)
    write_index(cache / INDEX, index, FEATURES.model_copy(update={"n_mels": 40}), complete=True)


def npz_of_objects(cache: Path) -> None:
    with (cache / INDEX).open("wb") as file:
        np.savez(file, key=np.array([Explodes()], object))


class Explodes:
    """Unpickling it would be noticed."""

    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def objects(cache: Path) -> None:
    np.save(cache / "npy/c1.npy", np.array([[Explodes()]], object), allow_pickle=True)


# What is planted, the file that is named, and what is said of it.
FAULTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "clip missing": (lambda cache: (cache / "npy/c1.npy").unlink(), "npy/c1.npy", "is missing"),
    "clip truncated": (written("npy/c1.npy", lambda old: old[:-1]), "npy/c1.npy", "is truncated"),
    "clip too long": (written("npy/c1.npy", lambda old: old + b"x"), "npy/c1.npy", "is too long"),
    "clip empty": (written("npy/c1.npy", lambda _: b""), "npy/c1.npy", "is empty"),
    "clip of another type": (saved("npy/c1.npy", lambda mel: mel.astype(">f8")), "npy/c1.npy", "holds >f8"),
    "clip in Fortran order": (saved("npy/c1.npy", np.asfortranarray), "npy/c1.npy", "Fortran order"),
    "clip of objects": (objects, "npy/c1.npy", "holds |O"),
    "clip with NaN": (saved("npy/c1.npy", with_nan), "npy/c1.npy", "are not finite"),
    "clip of another": (
        lambda cache: shutil.copy(cache / "npy/c2.npy", cache / "npy/c1.npy"),
        "npy/c1.npy",
        "and 21 in its WAV file",
    ),
    "clip is a directory": (replaced_by_directory, "npy/c1.npy", "Is a directory"),
    "clip is a pipe": (replaced_by_pipe("npy/c1.npy"), "npy/c1.npy", "not a regular file"),
    "clips are a file": (no_folder, "npy/c1.npy", "Not a directory"),
    "clip orphaned": (written("npy/gone.npy", lambda _: b"x"), "npy/gone.npy", "is of no clip"),
    "foreign file": (written("notes.txt", lambda _: b"x"), "notes.txt", "no file of a feature cache"),
    "packed missing": (lambda cache: (cache / "packed.npy").unlink(), "packed.npy", "is missing"),
    "packed truncated": (written("packed.npy", lambda old: old[:-5]), "packed.npy", "is truncated"),
    "packed empty": (written("packed.npy", lambda _: b""), "packed.npy", "is empty"),
    "packed of another type": (saved("packed.npy", lambda rows: rows.astype("<f2")), "packed.npy", "holds <f2"),
    "packed in Fortran order": (saved("packed.npy", np.asfortranarray), "packed.npy", "Fortran order"),
    "packed with NaN": (saved("packed.npy", with_nan), "packed.npy", "has other rows"),
    "packed is a pipe": (replaced_by_pipe("packed.npy"), "packed.npy", "not a regular file"),
    "index missing": (lambda cache: (cache / INDEX).unlink(), INDEX, "is missing"),
    "index damaged": (written(INDEX, lambda old: old.replace(b"c0c1", b"x0c1", 1)), INDEX, "is damaged"),
    "index is one array": (
        lambda cache: (cache / INDEX).write_bytes((cache / "npy/c0.npy").read_bytes()),
        INDEX,
        "is damaged",
    ),
    "index of objects": (npz_of_objects, INDEX, "is damaged"),
    "index is a pipe": (replaced_by_pipe(INDEX), INDEX, "not a regular file"),
    "index entry missing": (
        reindexed(lambda ids, rows: ([ids[0], *ids[2:]], rows[[0, 2, 3]])),
        "packed.npy",
        "and the index of its cache means",
    ),
    "index entry twice": (
        reindexed(lambda ids, rows: ([*ids, ids[0]], rows[[0, 1, 2, 3, 0]])),
        INDEX,
        "names a clip twice",
    ),
    "index entry orphaned": (
        reindexed(lambda ids, rows: ([*ids[:3], "left"], rows)),
        INDEX,
        "has an entry for 'left', which is in no line",
    ),
    "index of other settings": (other_settings, INDEX, "was made with other feature settings"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_mended_and_what_it_replaces_kept(
    fault: str, speech, cache: Path, tmp_path, read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root, whole, wavs = tmp_path / "root", files(cache), files(speech)
    plant, name, said = FAULTS[fault]
    plant(cache)
    planted = files(cache)
    problems = look(speech, root).problems
    assert [problem for problem in problems if name in problem.what and said in problem.what], problems
    assert all(problem.remedy == "run 'xttsbench data verify --fix'" for problem in problems)
    assert files(cache) == planted  # looking writes nothing
    made = fix(speech, root)
    assert files(cache) == whole == from_scratch(speech, tmp_path / "new", read)
    assert files(speech) == wavs
    assert not (tmp_path / "unpickled").exists()
    kept = files(made.replaced) if made.replaced else {}
    for path, content in planted.items():
        assert whole.get(path) == content or kept[path] == content, path
    assert look(speech, root).problems == ()
    assert fix(speech, root) is None
    assert len(list(root.glob("features/*/*.replaced/*"))) <= 1


def test_features_of_an_older_wav_file_and_of_a_clip_that_left_are_kept(speech, cache, tmp_path, read) -> None:
    before = files(cache)
    write_wav(speech / "wavs/c1.wav", np.zeros(5000), 22050)
    (speech / "metadata.csv").write_text("c0|words\nc1|words\nnew|words\nc2|words\n")
    shutil.copy(speech / "wavs/c0.wav", speech / "wavs/new.wav")
    said = [problem.what for problem in look(speech, tmp_path / "root").problems]
    for part in (
        "wavs/c1.wav",
        "wavs/new.wav",
        "wavs/c3.wav is in no line of the metadata",
        "npy/c3.npy is of no clip",
    ):
        assert any(part in what for what in said), (part, said)
    made = fix(speech, tmp_path / "root")
    kept = files(made.replaced)
    assert kept == before
    assert files(cache) == from_scratch(speech, tmp_path / "new", read)
    (left,) = look(speech, tmp_path / "root").problems
    assert (left.rule, left.remedy) == ("bad-metadata", "add its line, or move the file out of wavs/")
    assert fix(speech, tmp_path / "root") is None


def test_faults_of_the_data_set_are_named_and_nothing_is_invented(speech, cache, tmp_path) -> None:
    (speech / "wavs/c1.wav").unlink()
    (speech / "wavs/c2.wav").write_bytes(b"")
    with (speech / "metadata.csv").open("a") as file:
        file.write("c0|again\n")
    before = files(speech)
    fix(speech, tmp_path / "root")
    said = {problem.what: problem.remedy for problem in look(speech, tmp_path / "root").problems}
    for part in (
        "there is no wavs/c1.wav",
        "wavs/c2.wav is no sound file that can be read",
        "metadata.csv:5: the id 'c0' is that of",
    ):
        assert [remedy for what, remedy in said.items() if part in what and remedy], (part, said)
    assert files(speech) == before


def test_no_change_of_one_byte_of_the_index_is_anything_but_one_error(cache: Path) -> None:
    good = (cache / INDEX).read_bytes()
    for position in range(len(good)):
        (cache / INDEX).write_bytes(good[:position] + bytes([good[position] ^ 0xFF]) + good[position + 1 :])
        with suppress(CacheFileError):  # some bytes mean nothing
            read_index(cache / INDEX, FEATURES)


def test_an_index_whose_ids_are_no_text_is_damaged(cache: Path) -> None:
    columns = dict(np.load(cache / INDEX))
    columns["ids"][0] = b"\xff"
    np.savez(cache / INDEX, **columns)
    with pytest.raises(CacheFileError, match="is damaged"):
        read_index(cache / INDEX, FEATURES)


def mends(pipe: Connection, speech: Path, root: Path) -> None:
    pipe.send("now")
    fix(speech, root)


def test_a_mending_killed_at_random_moments_loses_nothing_and_is_finished_by_the_next(
    speech, cache, tmp_path, read
) -> None:
    whole, rng, root = files(cache), random.Random(28), tmp_path / "root"
    old = whole["npy/c1.npy"][:-7], b"orphan"
    broken_off = 0
    started_s = time.monotonic()
    for attempt in range(16):
        (cache / "npy/c1.npy").write_bytes(old[0])
        (cache / "npy/gone.npy").write_bytes(old[1])
        (cache / "npy/c2.npy").unlink()
        process, pipe = start(mends, speech, root)
        assert pipe.recv() == "now"
        began_s = time.monotonic()
        if attempt == 0:  # the whole way, to know how long it is
            process.join()
            duration_s = time.monotonic() - began_s
        else:
            time.sleep(rng.uniform(0, 1.1 * duration_s))
            process.kill()
            process.join()
        everything = list(files(root).values())
        assert old[0] in everything, attempt
        assert old[1] in everything, attempt
        broken_off += bool(look(speech, root).problems)
        fix(speech, root)
        assert look(speech, root).problems == (), attempt
        assert files(cache) == whole
        shutil.rmtree(next(root.glob("features/*/*.replaced")))
    assert broken_off >= 3
    assert time.monotonic() - started_s < 120


def test_a_cache_that_cannot_be_mended_is_left_and_said(speech, cache, tmp_path, monkeypatch) -> None:
    (cache / "npy/c1.npy").write_bytes(b"")

    def refused(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refused)
    before = files(cache)
    with pytest.raises(XttsbenchError, match="Read-only file system"):
        fix(speech, tmp_path / "root")
    assert files(cache) == before


@pytest.mark.parametrize("lost", ["index alone", "index, beside a stray", "features are a file"])
def test_a_cache_without_its_index_is_kept_whole_and_made_once(lost, speech, cache, tmp_path) -> None:
    (cache / INDEX).unlink()
    if lost == "index, beside a stray":
        (cache / "npy" / "stray.npy").write_bytes(b"")
    elif lost == "features are a file":
        shutil.rmtree(cache / "npy")
        (cache / "npy").write_bytes(b"")
    there = sorted(path.name for path in cache.rglob("*"))
    made = mend(verify(speech, FEATURES, tmp_path / "root"), FEATURES, tmp_path / "root", workers=1)
    assert made is not None
    assert (made.made, made.replaced is not None) == (4, True)
    assert sorted(path.name for path in made.replaced.rglob("*")) == there
    assert not verify(speech, FEATURES, tmp_path / "root", everything=True).problems


def test_a_healthy_cache_is_silent(speech, cache, tmp_path) -> None:
    assert look(speech, tmp_path / "root").problems == ()
    assert fix(speech, tmp_path / "root") is None
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]
    assert cache == cache_path(speech, FEATURES, tmp_path / "root")
    assert cache_files.PACKED in files(cache)
