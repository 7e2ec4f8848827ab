"""Metadata in LJSpeech's form: what people have, however it is written, and what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.metadata import Metadata, read_metadata, read_speakers
from xttsbench.xtts.data.problems import Problems
from xttsbench.xtts.text import encode

LayOut = Callable[[Path, dict[str, str | bytes]], Path]


def read(directory: Path, problems: Problems | None = None) -> Metadata:
    noted = Problems() if problems is None else problems
    metadata = read_metadata(directory, 0, noted)
    if problems is None:
        assert not noted.shown
    return metadata


def test_the_text_is_the_third_field_or_else_the_second(tmp_path: Path, laid_out: LayOut) -> None:
    lines = [
        "a|Mr. A|mister a",
        "b|only",
        "c|raw|",
        "d|raw|  ",
        "e| raw | norm |more|and more",
        'f|"quoted"|say "so", she said',
        "g||norm",
    ]
    metadata = read(laid_out(tmp_path, {"metadata.csv": "\n".join(lines)}))
    assert [metadata.ids[row] for row in range(len(metadata))] == list("abcdefg")
    texts = [metadata.texts[row] for row in range(len(metadata))]
    assert texts == ["mister a", "only", "raw", "raw", "norm", 'say "so", she said', "norm"]
    assert metadata.text_lengths.tolist() == [len(encode(text)) for text in texts]
    assert metadata.held_out_from is None


def test_blank_lines_line_ends_and_a_byte_order_mark_do_not_matter(tmp_path: Path, laid_out: LayOut) -> None:
    content = "\ufeff\r\n a |x|one\r\n   \r\n\nb|y|zwölf\u2028drei\u0085vier\r\n"
    metadata = read(laid_out(tmp_path, {"metadata.csv": content}))
    assert [metadata.ids[0], metadata.texts[0], metadata.ids[1]] == ["a", "one", "b"]
    assert metadata.texts[1] == "zwölf\u2028drei\u0085vier"  # separators that str.splitlines would split at
    assert [metadata.where(row) for row in range(2)] == ["metadata.csv:2", "metadata.csv:5"]


def test_what_is_held_out_follows(tmp_path: Path, laid_out: LayOut) -> None:
    metadata = read(laid_out(tmp_path, {"metadata.csv": "a|x\nb|y\n", "metadata_eval.csv": "\nc|z\n"}))
    assert (len(metadata), metadata.held_out_from) == (3, 2)
    assert (metadata.where(1), metadata.where(2)) == ("metadata.csv:2", "metadata_eval.csv:2")


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("words", "malformed", "metadata.csv:2: expected 'id|text|normalised text', got 'words'"),
        ("|text", "with a bad id", "the id is empty"),
        ("../../etc/x|text", "with a bad id", "'../../etc/x' is a path"),
        ("/etc/x|text", "with a bad id", "is a path"),
        ("x\0|text", "with a bad id", "control characters"),
        ("wavs/x.wav|text", "with a bad id", "without '.wav'"),
        ("x|", "without text", "the text is empty"),
        ("x| | ", "without text", "the text is empty"),
        ("x|漢字", "without text", "no character of '漢字' is among"),
        ("x|raw|12", "without text", "no character of '12' is among"),
    ],
)
def test_lines_that_name_no_usable_clip_are_noted(
    tmp_path: Path, laid_out: LayOut, line: str, kind: str, words: str
) -> None:
    problems = Problems()
    metadata = read(laid_out(tmp_path, {"metadata.csv": f"a|fine\n{line}\nb|fine\n"}), problems)
    assert dict(problems.kinds) == {kind: 1}
    assert words in problems.shown[0]
    assert [metadata.ids[0], metadata.ids[1]] == ["a", "b"]


def test_of_an_id_that_comes_again_both_lines_are_named(tmp_path: Path, laid_out: LayOut) -> None:
    files: dict[str, str | bytes] = {"metadata.csv": "a|x\nb|y\na|z\nc|x\na|w\n", "metadata_eval.csv": "c|x\n"}
    problems = Problems()
    read(laid_out(tmp_path, files), problems)
    assert problems.shown == [
        "metadata.csv:3: the id 'a' is that of metadata.csv:1 too",
        "metadata.csv:5: the id 'a' is that of metadata.csv:1 too",
        "metadata_eval.csv:1: the id 'c' is that of metadata.csv:4 too",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a|fine\nb|Stra\xdfe\n", r"metadata.csv:2: byte 7 of the line, 0xdf, is not UTF-8; .*iconv -f ISO-8859-1"),
        ("a|x\n".encode("utf-16"), r"is UTF-16; convert it from the encoding that it has, e.g. with: iconv -f UTF-16"),
        (b"\xfe\xff\0a", r"is UTF-16"),
        (b"a|x\rb|y\r", r"metadata.csv:1: a carriage return .*tr "),
    ],
)
def test_other_encodings_are_named_with_the_cure(tmp_path: Path, laid_out: LayOut, content: bytes, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        read(laid_out(tmp_path, {"metadata.csv": content}))


def test_metadata_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").mkdir()
    with pytest.raises(InvalidInputError, match=r"metadata.csv: cannot be read \(Is a directory\)"):
        read(tmp_path)


def test_speakers_are_numbered_by_name_whatever_their_order(tmp_path: Path, laid_out: LayOut) -> None:
    speakers = "c|zoe\n\nb | anna \na|zoe\nunknown|ben\n"
    directory = laid_out(tmp_path, {"metadata.csv": "a|x\nb|x\nc|x\n", "speakers.csv": speakers})
    problems = Problems()
    numbers, names = read_speakers(directory, read(directory), 0, problems)
    assert names == ("anna", "ben", "zoe")
    assert numbers.tolist() == [2, 0, 2]
    assert numbers.dtype == np.int32
    assert not problems


def test_without_speakers_there_is_one(tmp_path: Path, laid_out: LayOut) -> None:
    directory = laid_out(tmp_path, {"metadata.csv": "a|x\nb|x\n"})
    numbers, names = read_speakers(directory, read(directory), 0, Problems())
    assert (numbers.tolist(), len(names)) == ([0, 0], 1)


def test_clips_without_a_speaker_are_noted(tmp_path: Path, laid_out: LayOut) -> None:
    directory = laid_out(tmp_path, {"metadata.csv": "a|x\nb|x\n", "speakers.csv": "a|anna\n"})
    problems = Problems()
    read_speakers(directory, read(directory), 0, problems)
    assert problems.shown == ["metadata.csv:2: speakers.csv does not name 'b'"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a|anna\nb\n", r"speakers.csv:2: expected 'id\|speaker', got 'b'"),
        ("a|anna\nb|ben\na|ben\n", r"speakers.csv:3: the clip has another speaker on line 1"),
        ("\n", "names no speaker"),
    ],
)
def test_speakers_that_cannot_be_read(tmp_path: Path, laid_out: LayOut, content: str, words: str) -> None:
    directory = laid_out(tmp_path, {"metadata.csv": "a|x\nb|x\n", "speakers.csv": content})
    with pytest.raises(InvalidInputError, match=words):
        read_speakers(directory, read(directory), 0, Problems())


def test_the_same_speaker_twice_is_no_contradiction(tmp_path: Path, laid_out: LayOut) -> None:
    directory = laid_out(tmp_path, {"metadata.csv": "a|x\n", "speakers.csv": "a|anna\na|anna\n"})
    assert read_speakers(directory, read(directory), 0, Problems())[1] == ("anna",)
