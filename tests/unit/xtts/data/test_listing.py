"""Listings of other people's data sets: each form that is about, and what cannot be told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.listing import find_listings, read_listing
from xttsbench.xtts.data.metadata import Problems

LayOut = Callable[[Path, dict[str, str | bytes]], Path]


def entries(path: Path, content: str, problems: Problems | None = None) -> list[tuple[str, str, str, str | None]]:
    path.write_text(content, encoding="utf-8")
    noted = Problems() if problems is None else problems
    found = [(entry.audio, entry.raw_text, entry.text, entry.speaker) for entry in read_listing(path, noted)]
    if problems is None:
        assert not noted
    return found


def test_ljspeech(tmp_path: Path) -> None:
    content = 'LJ1|Dr. "A"|doctor "a"\nLJ2|only\nLJ3|raw||x\n'
    assert entries(tmp_path / "m.csv", content) == [
        ("LJ1", 'Dr. "A"', 'doctor "a"', None),
        ("LJ2", "only", "only", None),
        ("LJ3", "raw", "raw", None),
    ]


@pytest.mark.parametrize("header", ["audio_file|text|speaker_name\n", "\ufeffAudio_File|Text|Speaker_Name\n", ""])
def test_coqui(tmp_path: Path, header: str) -> None:
    content = header + "wavs/a.wav|one|anna\n\nwavs/b.WAV|two|ben\n"
    assert entries(tmp_path / "m.csv", content) == [
        ("wavs/a.wav", "one", "one", "anna"),
        ("wavs/b.WAV", "two", "two", "ben"),
    ]


def test_a_header_may_name_the_columns_in_any_order(tmp_path: Path) -> None:
    content = "speaker|normalized_text|text|file\nanna|doctor|Dr.|a.wav\nben||raw|b.wav\n"
    assert entries(tmp_path / "m.csv", content) == [
        ("a.wav", "Dr.", "doctor", "anna"),
        ("b.wav", "raw", "raw", "ben"),
    ]


@pytest.mark.parametrize(("delimiter", "name"), [(",", "audio"), (";", "file"), ("\t", "path")])
def test_tables_are_quoted_as_csv_is(tmp_path: Path, delimiter: str, name: str) -> None:
    rows = [
        f'{name}|"transcript"|speaker_id',
        'a.wav|"one, two; three\tand ""four"""|7',
        'b.wav|"over\ntwo lines"|8',
    ]
    content = "\r\n".join(row.replace("|", delimiter) for row in rows) + "\r\n"
    assert entries(tmp_path / "m.csv", content) == [
        ("a.wav", 'one, two; three and "four"', 'one, two; three and "four"', "7"),
        ("b.wav", "over two lines", "over two lines", "8"),
    ]


def test_pipes_and_white_space_in_a_table_become_blanks(tmp_path: Path) -> None:
    content = 'file,text,speaker\na.wav,"one|two\t three",an|na\n'
    assert entries(tmp_path / "m.csv", content) == [("a.wav", "one two three", "one two three", "an na")]


def test_our_own_speakers_are_taken_along(tmp_path: Path, laid_out: LayOut) -> None:
    laid_out(tmp_path, {"speakers.csv": "a|anna\n"})
    assert entries(tmp_path / "m.csv", "a|x\nb|y\n") == [("a", "x", "x", "anna"), ("b", "y", "y", None)]


def test_lines_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    problems = Problems()
    (tmp_path / "m.csv").write_text('file,text\n\na.wav,"one\ntwo"\nb.wav\n,text\nc.wav,x\n')
    found = list(read_listing(tmp_path / "m.csv", problems))
    assert [(entry.audio, entry.where) for entry in found] == [("a.wav", "m.csv:4"), ("c.wav", "m.csv:7")]
    assert [str(issue) for issue in problems.issues] == [
        "m.csv:5: expected a sound file and its text, got 'b.wav'",
        "m.csv:6: expected a sound file and its text, got ',text'",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "m.csv: is empty"),
        ("\n \n", "m.csv: is empty"),
        ("words\n", r"m.csv:1: expected fields separated by '\|', a tab or commas, got 'words'"),
        ("a.wav,text\n", r"m.csv:1: a listing with ',' needs a header that names .*audio_file.*; got 'a.wav,text'"),
        ("a.wav\ttext\n", "a listing with tabs needs a header"),
        ("file,speaker\na,b\n", "needs a header"),
        ('file,text\na.wav,"never closed\n', "m.csv:2: not a table with quotes as in CSV"),
        ('file,text\na.wav,"x"y\n', "not a table with quotes as in CSV"),
    ],
)
def test_listings_that_cannot_be_read(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        entries(tmp_path / "m.csv", content)


@pytest.mark.parametrize(
    ("files", "metadata", "eval_metadata", "found"),
    [
        (["metadata.csv"], None, None, ("metadata.csv", None)),
        (["metadata.csv", "metadata_eval.csv"], None, None, ("metadata.csv", "metadata_eval.csv")),
        (["metadata_train.csv", "metadata_eval.csv"], None, None, ("metadata_train.csv", "metadata_eval.csv")),
        (["metadata.csv", "metadata_eval.csv", "x.csv"], None, "x.csv", ("metadata.csv", "x.csv")),
        (["metadata.csv", "metadata_eval.csv", "x.csv"], "x.csv", None, ("x.csv", None)),
        (["lists/a.txt", "lists/b.txt"], "lists/a.txt", "lists/b.txt", ("lists/a.txt", "lists/b.txt")),
    ],
)
def test_the_listings_of_a_directory(
    tmp_path: Path,
    laid_out: LayOut,
    files: list[str],
    metadata: str | None,
    eval_metadata: str | None,
    found: tuple[str, str | None],
) -> None:
    laid_out(tmp_path, dict.fromkeys(files, "x"))
    given = [None if name is None else Path(name) for name in (metadata, eval_metadata)]
    expected = tuple(None if name is None else tmp_path / name for name in found)
    assert find_listings(tmp_path, given[0], given[1]) == expected


def test_a_listing_may_lie_elsewhere(tmp_path: Path, laid_out: LayOut) -> None:
    laid_out(tmp_path, {"list.csv": "x", "source/a.wav": ""})
    assert find_listings(tmp_path / "source", tmp_path / "list.csv", None) == (tmp_path / "list.csv", None)


def test_a_missing_listing_names_what_is_there(tmp_path: Path, laid_out: LayOut) -> None:
    laid_out(tmp_path, {"train.txt": "x", "validated.tsv": "x", "a.wav": ""})
    with pytest.raises(InvalidInputError, match=r"found neither; name one of train.txt, validated.tsv with --metadata"):
        find_listings(tmp_path, None, None)
    with pytest.raises(InvalidInputError, match=r"none.csv: there is no such file here nor in"):
        find_listings(tmp_path, Path("none.csv"), None)
