"""A data set as it is read: its columns, its split, and all that is wrong with one in a single error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.metadata import encode
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data

LayOut = Callable[[Path, dict[str, str | bytes]], Path]
Build = Callable[..., bytes]
RATE = 22050


@pytest.fixture
def make(tmp_path: Path, wav: Build, laid_out: LayOut) -> Callable[..., Path]:
    """Build a data set: metadata of the ids, WAV files of rising length, and whatever else is given."""

    def make(ids: list[str], **others: str | bytes) -> Path:
        files: dict[str, str | bytes] = {"metadata.csv": "".join(f"{clip}|Raw|text of {clip}\n" for clip in ids)}
        for number, clip in enumerate(ids):
            files[f"wavs/{clip}.wav"] = wav([0.0] * (600 + number))
        names = {name.replace("__", "/").replace("_dot_", "."): content for name, content in others.items()}
        return laid_out(tmp_path / "set", files | names)

    return make


def read(directory: Path, split: str = "all", **arguments: int) -> SpeechData:
    return read_speech_data(directory, sample_rate_hz=RATE, split=split, **arguments)


def refused(directory: Path, words: str, split: str = "all") -> str:
    with pytest.raises(InvalidInputError, match=words) as caught:
        read(directory, split)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_columns(make: Callable[..., Path]) -> None:
    directory = make(["b", "a", "ü"], speakers_dot_csv="a|zoe\nb|anna\nü|zoe\n")
    data = read(directory)
    assert len(data) == 3
    assert [data.id(clip) for clip in range(3)] == ["b", "a", "ü"]
    assert [data.text(clip) for clip in range(3)] == ["text of b", "text of a", "text of ü"]
    assert data.samples.tolist() == [600, 601, 602]
    assert data.samples.dtype == np.int64
    assert (data.speakers.tolist(), data.speakers.dtype) == ([0, 1, 1], np.int32)
    assert data.speaker_names == ("anna", "zoe")
    assert (data.text_lengths.tolist(), data.text_lengths.dtype) == ([9, 9, 9], np.int32)
    np.testing.assert_array_equal(data.text_ids(2), encode("text of u"))
    assert data.wav(2) == directory / "wavs" / "ü.wav"
    assert (data.directory, data.sample_rate_hz) == (directory, RATE)


def test_a_subset_keeps_the_order_asked_for(make: Callable[..., Path]) -> None:
    data = read(make(["a", "b", "c", "d"], speakers_dot_csv="a|x\nb|y\nc|z\nd|y\n"))
    some = data.subset(np.array([3, 1]))
    assert (len(some), some.id(0), some.id(1), some.samples.tolist()) == (2, "d", "b", [603, 601])
    assert some.speaker_names == ("x", "y", "z")
    assert some.speakers.tolist() == [1, 1]
    one = some.subset(np.array([1]))
    assert (one.id(0), one.text(0), one.wav(0).name) == ("b", "text of b", "b.wav")


def test_a_data_set_travels_between_processes(make: Callable[..., Path]) -> None:
    data = pickle.loads(pickle.dumps(read(make(["a", "b"]))))
    assert (data.id(1), data.text(1), data.samples.tolist()) == ("b", "text of b", [600, 601])


def test_the_split_parts_the_set_the_same_way_each_time(make: Callable[..., Path]) -> None:
    directory = make([f"clip{number}" for number in range(40)])
    train, held_out, both = read(directory, "train"), read(directory, "eval"), read(directory)
    names = [[data.id(clip) for clip in range(len(data))] for data in (train, held_out, both)]
    assert len(held_out) >= 1
    assert sorted(names[0] + names[1]) == sorted(names[2])
    assert names[0] == [name for name in names[2] if name not in names[1]]  # in the order of the file
    again = read(directory, "eval")
    assert [again.id(clip) for clip in range(len(again))] == names[1]
    others = {tuple(map(data.id, range(len(data)))) for data in (read(directory, "eval", seed=s) for s in range(5))}
    assert len(others) > 1


def test_metadata_of_held_out_clips_decide_alone(make: Callable[..., Path], wav: Build) -> None:
    directory = make(["a", "b"], metadata_eval_dot_csv="c|see\n", wavs__c_dot_wav=wav([0.0] * 700))
    assert [read(directory, "train").id(clip) for clip in range(2)] == ["a", "b"]
    assert (len(read(directory, "eval")), read(directory, "eval").id(0)) == (1, "c")
    assert [read(directory).id(clip) for clip in range(3)] == ["a", "b", "c"]


def test_speakers_keep_their_numbers_in_every_split(make: Callable[..., Path], wav: Build) -> None:
    directory = make(
        ["a"], metadata_eval_dot_csv="c|see\n", wavs__c_dot_wav=wav([0.0] * 700), speakers_dot_csv="a|zoe\nc|anna\n"
    )
    assert read(directory, "train").speakers.tolist() == [1]
    assert read(directory, "eval").speakers.tolist() == [0]
    assert read(directory, "train").speaker_names == read(directory, "eval").speaker_names


def test_a_single_clip_is_not_held_out(make: Callable[..., Path]) -> None:
    directory = make(["a"])
    assert len(read(directory, "train")) == 1
    refused(directory, "no clip of 1 is for evaluation; add clips, or name some in metadata_eval.csv", "eval")


def test_clips_held_out_alone_leave_none_to_train_on(make: Callable[..., Path]) -> None:
    directory = make(["a"], metadata_eval_dot_csv="a|x\n")
    (directory / "metadata.csv").write_text("\n")
    refused(directory, "no clip of 1 is for training", "train")


def test_all_bad_clips_are_counted_and_the_first_named_at_once(make: Callable[..., Path], wav: Build) -> None:
    ids = [f"c{number}" for number in range(9)]
    directory = make(ids)
    with (directory / "metadata.csv").open("a") as file:
        file.write("no pipe\nc0|again\n")
    wavs = directory / "wavs"
    for name in ("c1", "c2"):
        (wavs / f"{name}.wav").unlink()
    (wavs / "c3.wav").write_bytes(wav([0.0] * 1200, rate=44100, channels=2))
    (wavs / "c4.wav").write_bytes(wav([0.0] * 600)[:-10])
    (wavs / "c5.wav").write_bytes(b"ID3" + bytes(100))
    (wavs / "c6.wav").write_bytes(wav([0.0] * 10))
    message = refused(directory, r"set: 8 of 1\d clips cannot be used")
    for part in (
        "2 without a WAV file",
        "2 unreadable",
        "1 malformed",
        "1 with an id that comes twice",
        "1 in another form",
        "1 too short",
        "the first 5: metadata.csv:10: expected",
        "metadata.csv:11: the id 'c0' is that of metadata.csv:1 too",
        "metadata.csv:2: there is no wavs/c1.wav",
        "wavs/c3.wav: is 44100 Hz, 2 channels, PCM_16",
        f"xttsbench data import {directory} --out NEW --skip-unreadable",
    ):
        assert part in message
    assert "c4.wav" not in message


def test_only_the_clips_of_the_split_are_looked_at(make: Callable[..., Path]) -> None:
    directory = make(["a"], metadata_eval_dot_csv="gone|x\n")
    assert len(read(directory, "train")) == 1
    refused(directory, "metadata_eval.csv:1: there is no wavs/gone.wav", "eval")


def test_a_damaged_set_of_ours_is_made_again(make: Callable[..., Path]) -> None:
    refused(make(["a", "b"], made_dot_json="{}", wavs__b_dot_wav=b""), "Delete the directory and run 'xttsbench data m")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "metadata.csv and wavs are missing; .*, else 'xttsbench data make"),
        ({"metadata.csv": "a|x"}, "and wavs is missing; where it holds speech, run 'xttsbench data import"),
        ({"metadata.csv": "", "wavs/a.wav": ""}, "metadata.csv: names no clip; write one line"),
        ({"metadata.csv": " \n\n", "wavs/a.wav": ""}, "names no clip"),
    ],
)
def test_what_is_no_data_set_is_told_what_was_looked_for(tmp_path, laid_out, files, words) -> None:
    refused(laid_out(tmp_path, files), words)


def test_a_missing_directory_and_a_file(tmp_path: Path) -> None:
    refused(tmp_path / "none", "none: there is no such directory")
    (tmp_path / "file").touch()
    refused(tmp_path / "file", "file: is a file; name the directory")
