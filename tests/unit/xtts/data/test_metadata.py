"""Metadata, ids and splits: what is read, what is refused, and which side a clip is on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.listings import find_listings, read_listing
from xttsbench.xtts.data.metadata import (
    SYMBOLS,
    VOCABULARY,
    Metadata,
    Problems,
    encode,
    encoded_length,
    held_out,
    key,
    read_metadata,
    read_speakers,
    why_not_an_id,
)
from xttsbench.xtts.data.synthesis import PHONES


def keys(count: int, seed: int = 0, start: int = 0) -> npt.NDArray[np.uint64]:
    return np.array([key(seed, f"clip-{number}") for number in range(start, start + count)], np.uint64)


@pytest.mark.parametrize("clip_id", ["LJ001-0001", "a", "ünïcode", "two words", "x.y", ".hidden", "a" * 240])
def test_names_of_files_are_ids(clip_id: str) -> None:
    assert why_not_an_id(clip_id) is None


@pytest.mark.parametrize(
    ("clip_id", "words"),
    [
        ("", "empty"),
        ("../x", "is a path"),
        ("..\\x", "is a path"),
        ("..", "names a directory"),
        ("a\0b", "control characters"),
        ("a|b", "pipe"),
        ("a" * 241, "longer than 240 bytes"),
        ("ü" * 121, "longer than 240 bytes"),
    ],
)
def test_what_is_no_name_of_a_file_is_refused(clip_id: str, words: str) -> None:
    assert words in str(why_not_an_id(clip_id))


@given(st.text(max_size=300))
def test_no_id_leads_out_of_its_directory(clip_id: str) -> None:
    if why_not_an_id(clip_id) is None:
        path = os.path.normpath(f"/data/wavs/{clip_id}.wav")
        assert Path(path).parent == Path("/data/wavs")
        assert len(os.fsencode(Path(path).name)) < 256


def test_a_sixteenth_is_held_out() -> None:
    assert held_out(keys(20_000)).mean() == pytest.approx(1 / 16, rel=0.1)


def test_a_clips_side_does_not_depend_on_the_others() -> None:
    both = held_out(keys(3000))
    np.testing.assert_array_equal(held_out(keys(1000)), both[:1000])
    np.testing.assert_array_equal(held_out(keys(2000, start=1000)), both[1000:])


@pytest.mark.parametrize("count", range(2, 20))
def test_each_side_has_a_clip(count: int) -> None:
    for seed in range(20):
        assert 0 < held_out(keys(count, seed)).sum() < count


def test_all_on_one_side_are_parted() -> None:
    np.testing.assert_array_equal(held_out(np.array([3, 1, 2], np.uint64)), [False, True, True])
    np.testing.assert_array_equal(held_out(np.array([2**63, 2**62, 2**61], np.uint64)), [False, False, True])
    assert not held_out(np.array([2**64 - 1], np.uint64)).any()
    assert held_out(np.array([], np.uint64)).shape == (0,)


def test_keys_are_the_same_in_every_process() -> None:
    code = "from xttsbench.xtts.data.metadata import key; print(key(7, 'é'))"
    environment = os.environ | {"PYTHONHASHSEED": "5"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == key(7, "é")


LayOut = Callable[[Path, dict[str, str | bytes]], Path]


def read(directory: Path, problems: Problems | None = None) -> Metadata:
    noted = Problems() if problems is None else problems
    metadata = read_metadata(directory, 0, noted)
    if problems is None:
        assert not noted
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
        ("x\0|text", "with a bad id", "control characters"),
        ("wavs/x.wav|text", "with a bad id", "without '.wav'"),
        ("x|", "without text", "the text is empty"),
        ("x|漢字", "without text", "no character of '漢字' is among"),
    ],
)
def test_lines_that_name_no_usable_clip_are_noted(tmp_path, laid_out, line, kind, words) -> None:
    problems = Problems()
    metadata = read(laid_out(tmp_path, {"metadata.csv": f"a|fine\n{line}\nb|fine\n"}), problems)
    assert dict(problems.kinds) == {kind: 1}
    assert words in str(problems.issues[0])
    assert [metadata.ids[0], metadata.ids[1]] == ["a", "b"]


def test_of_an_id_that_comes_again_both_lines_are_named(tmp_path: Path, laid_out: LayOut) -> None:
    files: dict[str, str | bytes] = {"metadata.csv": "a|x\nb|y\na|z\nc|x\na|w\n", "metadata_eval.csv": "c|x\n"}
    problems = Problems()
    read(laid_out(tmp_path, files), problems)
    assert [str(issue) for issue in problems.issues] == [
        "metadata.csv:3: the id 'a' is that of metadata.csv:1 too",
        "metadata.csv:5: the id 'a' is that of metadata.csv:1 too",
        "metadata_eval.csv:1: the id 'c' is that of metadata.csv:4 too",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a|fine\nb|Stra\xdfe\n", r"metadata.csv:2: is not UTF-8; .*iconv -f ISO-8859-1"),
        ("a|x\n".encode("utf-16"), r"metadata.csv:1: is not UTF-8; .*iconv -f UTF-16"),
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
    numbers, names = read_speakers(directory, read(directory), problems)
    assert names == ("anna", "ben", "zoe")
    assert numbers.tolist() == [2, 0, 2]
    assert numbers.dtype == np.int32
    assert not problems


def test_without_speakers_there_is_one(tmp_path: Path, laid_out: LayOut) -> None:
    directory = laid_out(tmp_path, {"metadata.csv": "a|x\nb|x\n"})
    numbers, names = read_speakers(directory, read(directory), Problems())
    assert (numbers.tolist(), len(names)) == ([0, 0], 1)


def test_clips_without_a_speaker_are_noted(tmp_path: Path, laid_out: LayOut) -> None:
    directory = laid_out(tmp_path, {"metadata.csv": "a|x\nb|x\n", "speakers.csv": "a|anna\n"})
    problems = Problems()
    read_speakers(directory, read(directory), problems)
    assert [str(issue) for issue in problems.issues] == ["metadata.csv:2: speakers.csv does not name 'b'"]


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
        read_speakers(directory, read(directory), Problems())


def test_the_same_speaker_twice_is_no_contradiction(tmp_path: Path, laid_out: LayOut) -> None:
    directory = laid_out(tmp_path, {"metadata.csv": "a|x\n", "speakers.csv": "a|anna\na|anna\n"})
    assert read_speakers(directory, read(directory), Problems())[1] == ("anna",)


def entries(path: Path, content: str, problems: Problems | None = None) -> list[tuple[str, str, str, str | None]]:
    path.write_text(content, encoding="utf-8")
    noted = Problems() if problems is None else problems
    found = [(entry.audio, entry.raw_text, entry.text, entry.speaker) for entry in read_listing(path, noted)]
    if problems is None:
        assert not noted
    return found


COQUI = [("wavs/a.wav", "one", "one", "anna"), ("wavs/b.WAV", "two", "two", "ben")]
COQUI_LINES = "wavs/a.wav|one|anna\n\nwavs/b.WAV|two|ben\n"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (
            'LJ1|Dr. "A"|doctor "a"\nLJ2|only\nLJ3|raw||x\n',
            [("LJ1", 'Dr. "A"', 'doctor "a"', None), ("LJ2", "only", "only", None), ("LJ3", "raw", "raw", None)],
        ),
        (COQUI_LINES, COQUI),
        (f"\ufeffAudio_File|Text|Speaker_Name\n{COQUI_LINES}", COQUI),
        (f"audio_file|text|speaker_name|emotion_name\n{COQUI_LINES}", COQUI),
    ],
    ids=["ljspeech", "coqui", "coqui with a header", "coqui with a longer one"],
)
def test_listings_as_others_write_them(tmp_path: Path, content: str, found: list[tuple[str, ...]]) -> None:
    assert entries(tmp_path / "m.csv", content) == found


def test_our_own_speakers_are_taken_along(tmp_path: Path, laid_out: LayOut) -> None:
    laid_out(tmp_path, {"speakers.csv": "a|anna\n"})
    assert entries(tmp_path / "m.csv", "a|x\nb|y\n") == [("a", "x", "x", "anna"), ("b", "y", "y", None)]


def test_lines_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    problems = Problems()
    (tmp_path / "m.csv").write_text("a.wav|one\n\nb.wav\n|text\nc.wav|x\n")
    found = list(read_listing(tmp_path / "m.csv", problems))
    assert [(entry.audio, entry.where) for entry in found] == [("a.wav", "m.csv:1"), ("c.wav", "m.csv:5")]
    expected = "expected 'id|text|normalised text' or 'audio_file|text|speaker_name'"
    assert [str(issue) for issue in problems.issues] == [
        f"m.csv:3: {expected}, got 'b.wav'",
        f"m.csv:4: {expected}, got '|text'",
    ]


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
def test_the_listings_of_a_directory(tmp_path, laid_out, files, metadata, eval_metadata, found) -> None:
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


def test_case_and_white_space_are_folded_and_unknown_characters_dropped() -> None:
    assert encode("  Ab\t\n c§ ").tolist() == [1, 2, 27, 3]


def test_ids_are_in_the_vocabulary_and_none_is_padding() -> None:
    assert sorted(encode(SYMBOLS)) == list(range(1, VOCABULARY))


def test_synthetic_speech_can_be_written() -> None:
    assert set(PHONES) <= set(SYMBOLS)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Café — déjà", "cafe - deja"),
        ("it’s ‘so’", "it's 'so'"),
        ("room 12 b", "room b"),
        ("a\u00a0b\u2003c\u2028d", "a b c d"),
        ("ＡＢ ﬁ", "ab fi"),
        ("İ", "i"),
    ],
)
def test_typographic_forms_are_plain_ones(text: str, plain: str) -> None:
    np.testing.assert_array_equal(encode(text), encode(plain))
    assert "".join(SYMBOLS[number - 1] for number in encode(text)) == plain


@given(st.text())
def test_ids_are_known_and_the_length_is_theirs(text: str) -> None:
    length = encoded_length(text)
    if not length:
        with pytest.raises(ValueError, match="no character of"):
            encode(text)
        return
    ids = encode(text)
    assert (ids.dtype, ids.shape) == (np.int32, (length,))
    assert ids.min() >= 1
    assert ids.max() < VOCABULARY
    letters = "".join(SYMBOLS[number - 1] for number in ids)
    np.testing.assert_array_equal(encode(letters), ids)


@pytest.mark.parametrize("text", ["漢", "", " ", "12", "\t\n"])
def test_nothing_known_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"no character of {text!r}".replace("\\", "\\\\")):
        encode(text)
    assert encoded_length(text) == 0
