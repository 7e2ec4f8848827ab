"""Made sets: the same bytes however many make them, whole or absent, found again, and refused where they are others."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.xtts.data import make
from xttsbench.xtts.data.make import ensure_default_data, make_data
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.data.synthesis import PHONES, SAMPLE_RATE_HZ, VOICES, speak, utterance
from xttsbench.xtts.wav import read_canonical_wav


class Noted:
    """Progress that is remembered."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int, int]] = []

    def update(self, what: str, done: int, total: int) -> None:
        self.said.append((what, done, total))


def tree(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_was_made_reads_back(tmp_path: Path) -> None:
    progress = Noted()
    record = make_data(tmp_path / "set", 6, 5, 0.4, 0.6, progress=progress)
    data = read_speech_data(tmp_path / "set", sample_rate_hz=make.SAMPLE_RATE_HZ, split="all")
    for index in range(6):
        clip = utterance(index, 5, 0.4, 0.6)
        assert (data.id(index), data.text(index), data.samples[index]) == (clip.id, clip.text, len(clip.samples))
        assert data.speaker_names[data.speakers[index]] == clip.id.split("-")[0]
        samples = read_canonical_wav(data.wav(index), make.SAMPLE_RATE_HZ)
        np.testing.assert_allclose(samples, clip.samples, atol=0.51 / 32768)
    assert (record.clips, record.speakers, record.seed) == (6, 4, 5)
    assert record.bytes == sum(path.stat().st_size for path in (tmp_path / "set" / "wavs").iterdir())
    assert record.seconds == pytest.approx(data.samples.sum() / make.SAMPLE_RATE_HZ, abs=1e-3)
    assert (progress.said[0], progress.said[-1]) == (("clips made", 0, 6), ("clips made", 6, 6))


def test_bytes_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    make_data(tmp_path / "one", 20, 0, 0.3, 0.4, workers=1)
    make_data(tmp_path / "two", 20, 0, 0.3, 0.4, workers=2)
    assert len(tree(tmp_path / "one")) == 23
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert names(tmp_path) == ["one", "two"]


def test_the_same_call_finds_the_set(tmp_path: Path) -> None:
    record = make_data(tmp_path / "set", 2, 0, 0.3, 0.4)
    before = (tmp_path / "set" / "metadata.csv").stat().st_mtime_ns
    progress = Noted()
    assert make_data(tmp_path / "set", 2, 0, 0.3, 0.4, progress=progress) == record
    assert progress.said == []
    assert (tmp_path / "set" / "metadata.csv").stat().st_mtime_ns == before


@pytest.mark.parametrize("arguments", [(3, 0, 0.3, 0.4), (2, 1, 0.3, 0.4), (2, 0, 0.35, 0.4), (2, 0, 0.3, 0.5)])
def test_another_set_is_refused(tmp_path: Path, arguments: tuple[int, int, float, float]) -> None:
    make_data(tmp_path, 2, 0, 0.3, 0.4)
    with pytest.raises(UsageError, match=r"holds another set: .*--utterances 2 --seed 0 --min-s 0.3 --max-s 0.4"):
        make_data(tmp_path, *arguments)


@pytest.mark.parametrize("content", ["", "{}", "[]", "kept", '{"clips": 2}'])
def test_a_directory_with_something_else_is_refused_and_left(tmp_path: Path, content: str) -> None:
    (tmp_path / "made.json").write_text(content)
    with pytest.raises(UsageError, match=r"holds 'made.json' and is not a set .*name a directory that is empty"):
        make_data(tmp_path, 2, 0, 0.3, 0.4)
    assert tree(tmp_path) == {"made.json": content.encode()}


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        make_data(tmp_path / "file", 2, 0, 0.3, 0.4)


def test_a_damaged_set_is_not_passed_off_as_whole(tmp_path: Path) -> None:
    make_data(tmp_path, 2, 0, 0.3, 0.4)
    victim = next((tmp_path / "wavs").iterdir())
    victim.write_bytes(victim.read_bytes()[:-2])
    with pytest.raises(InvalidInputError, match=r"was changed since it was made: 2 WAV files .*delete the directory"):
        make_data(tmp_path, 2, 0, 0.3, 0.4)
    shutil.rmtree(tmp_path / "wavs")
    with pytest.raises(InvalidInputError, match="0 WAV files"):
        make_data(tmp_path, 2, 0, 0.3, 0.4)


@pytest.mark.parametrize(
    "arguments",
    [
        (0, 0, 1, 2),
        (1, -1, 1, 2),
        (1, 0, 2, 1),
        (1, 0, 0.1, 1),
        (1, 0, 1, 61),
        (2_000_000, 0, 1, 2),
        (1, 0, float("nan"), 1),
        (1, 0, 1, float("inf")),
    ],
)
def test_values_out_of_range_are_named(tmp_path: Path, arguments: tuple[int, int, float, float]) -> None:
    with pytest.raises(UsageError, match=f"must hold; got {arguments[0]}, {arguments[1]}, "):
        make_data(tmp_path / "set", *arguments)
    assert names(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    write_wav = make.write_wav

    def full(path: Path, samples: np.ndarray, rate: int) -> None:
        if path.name.startswith("high"):
            raise OSError(code, os.strerror(code), str(path))
        write_wav(path, samples, rate)

    monkeypatch.setattr(make, "write_wav", full)
    with pytest.raises(InvalidInputError, match=r"limit is full: about \d+\.\d MB are needed, .* nothing was left"):
        make_data(tmp_path / "deep" / "set", 4, 0, 0.3, 0.4)
    assert names(tmp_path / "deep") == []


def test_another_process_that_was_faster_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill = make._fill

    def slow(*arguments: object) -> make.MadeData:
        monkeypatch.setattr(make, "_fill", fill)
        make_data(tmp_path / "set", 2, 0, 0.3, 0.4)  # the other one
        return fill(*arguments)

    monkeypatch.setattr(make, "_fill", slow)
    assert make_data(tmp_path / "set", 2, 0, 0.3, 0.4).clips == 2
    assert names(tmp_path) == ["set"]


def test_another_process_that_made_something_else_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill = make._fill

    def slow(*arguments: object) -> make.MadeData:
        (tmp_path / "set").mkdir()
        (tmp_path / "set" / "theirs").touch()
        return fill(*arguments)

    monkeypatch.setattr(make, "_fill", slow)
    with pytest.raises(UsageError, match="holds 'theirs'"):
        make_data(tmp_path / "set", 2, 0, 0.3, 0.4)
    assert tree(tmp_path / "set") == {"theirs": b""}
    assert names(tmp_path) == ["set"]


def test_the_default_set_is_made_once_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTTSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(make, "DEFAULT_CLIPS", 3)
    monkeypatch.setattr(make, "DEFAULT_MAX_S", 1.1)
    progress = Noted()
    directory = ensure_default_data(progress)
    assert directory == make.default_data()
    assert directory == tmp_path / "cache" / "speech-v3-3x1-1.1s-seed0"
    assert progress.said[-1] == ("clips made", 3, 3)
    assert json.loads((directory / "made.json").read_text())["clips"] == 3
    assert ensure_default_data() == directory
    assert len(progress.said) > 1


def test_the_contracts_default() -> None:
    assert make.default_data().name == "speech-v3-256x1-10s-seed0"


def test_a_relative_cache_is_the_same_for_processes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XTTSBENCH_CACHE", "here")
    assert make.cache_directory() == tmp_path / "here"


def test_without_the_variable_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTTSBENCH_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert make.cache_directory() == Path("/somewhere/xttsbench")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


class Fills:
    """Progress that fills the disk to the last byte as soon as anything is under way."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk

    def update(self, what: str, done: int, total: int) -> None:
        with (self.disk / "ballast").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(65536))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_disk_that_is_really_full(small_disk: Path, workers: int) -> None:
    with pytest.raises(InvalidInputError, match=r"set: the disk is too full: about 5.* MB are needed, 4.2 MB are free"):
        make_data(small_disk / "set", 100, 0, 1.0, 1.4)
    with pytest.raises(InvalidInputError, match=r"limit is full: about 2.\d MB are needed, 0.\d MB are free there"):
        make_data(small_disk / "set", 40, 0, 1.0, 1.4, workers=workers, progress=Fills(small_disk))
    assert names(small_disk) == ["ballast"]
    (small_disk / "ballast").unlink()
    assert make_data(small_disk / "set", 4, 0, 0.3, 0.4).clips == 4
    shutil.rmtree(small_disk / "set")
    with pytest.raises(UsageError, match="is a mount point"):
        make_data(small_disk, 4, 0, 0.3, 0.4)


def test_a_set_of_fewer_speakers_is_another_set(tmp_path: Path) -> None:
    made = make_data(tmp_path / "two", 4, 0, 0.3, 0.4, speakers=2)
    assert made.speakers == 2
    lines = (tmp_path / "two" / "speakers.csv").read_text().split()
    assert [line.partition("|")[2] for line in lines] == ["low", "middle", "low", "middle"]
    assert make_data(tmp_path / "two", 4, 0, 0.3, 0.4, speakers=2) == made
    with pytest.raises(UsageError, match="--speakers 2; name another directory"):
        make_data(tmp_path / "two", 4, 0, 0.3, 0.4)
    assert make.made_data(4, 0, 0.3, 0.4, 2) != make.made_data(4, 0, 0.3, 0.4)


@pytest.mark.parametrize("speakers", [0, 5])
def test_speakers_that_there_are_not_are_refused(tmp_path: Path, speakers: int) -> None:
    with pytest.raises(UsageError, match=f"1 <= speakers <= 4 must hold; got {speakers}"):
        make_data(tmp_path / "none", 4, 0, 0.3, 0.4, speakers=speakers)


def test_the_same_index_and_seed_give_the_same_clip() -> None:
    one, again = utterance(5, 7, 1, 2), utterance(5, 7, 1, 2)
    assert (one.id, one.text) == (again.id, again.text)
    np.testing.assert_array_equal(one.samples, again.samples)
    assert utterance(5, 8, 1, 2).text != one.text
    assert utterance(9, 7, 1, 2).text != one.text


def test_speakers_take_turns_and_ids_are_unique() -> None:
    clips = [utterance(index, 0, 0.5, 0.6) for index in range(8)]
    assert [clip.id.split("-")[0] for clip in clips] == [speaker.name for speaker in VOICES] * 2
    assert len({clip.id for clip in clips}) == 8


def test_length_and_level() -> None:
    for index in range(4):
        clip = utterance(index, 1, 1.0, 3.0)
        assert 1.0 * SAMPLE_RATE_HZ - 1 <= len(clip.samples) <= 3.0 * SAMPLE_RATE_HZ + 1
        assert np.max(np.abs(clip.samples)) == pytest.approx(0.7)
        assert set(clip.text) <= set(PHONES)
    assert len(speak("ma", VOICES[0], 0.731, np.random.default_rng(0))) == round(0.731 * SAMPLE_RATE_HZ)
