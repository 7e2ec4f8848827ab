"""Data sets in LJSpeech's layout: reading what people have, and writing whole sets or none."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.xtts import ljspeech, synthesis


def tree(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def lay_out(directory: Path, metadata: str, *ids: str) -> Path:
    (directory / "wavs").mkdir()
    (directory / "metadata.csv").write_text(metadata, encoding="utf-8")
    for clip_id in ids:
        ljspeech.write_wav(directory / "wavs" / f"{clip_id}.wav", np.zeros(600, np.float32), 22050)
    return directory


def test_a_set_is_made_once_and_the_same_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ljspeech.make_synthetic(tmp_path / "deep" / "a", 4, 0, 0.4, 0.6)
    assert capsys.readouterr() == ("", f"making 4 clips of synthetic speech in {first} (once)\n")
    made = tree(first)
    assert sorted(path.name for path in first.parent.iterdir()) == ["a"]
    assert len(made) == 5
    assert tree(ljspeech.make_synthetic(tmp_path / "b", 4, 0, 0.4, 0.6)) == made
    capsys.readouterr()
    (first / "metadata.csv").write_text("kept")
    ljspeech.make_synthetic(first, 4, 0, 0.4, 0.6)
    assert (first / "metadata.csv").read_text() == "kept"
    assert capsys.readouterr().err == ""


def test_what_was_made_reads_back(tmp_path: Path) -> None:
    directory = ljspeech.make_synthetic(tmp_path / "set", 3, 5, 0.4, 0.6)
    clips = ljspeech.read_clips(directory)
    for index, clip in enumerate(clips):
        made = synthesis.utterance(index, 5, 0.4, 0.6)
        assert (clip.id, clip.text) == (made.id, made.text)
        samples = ljspeech.read_wav(clip.wav, synthesis.SAMPLE_RATE_HZ)
        np.testing.assert_allclose(samples, made.samples, atol=0.51 / 32768)
        assert ljspeech.wav_frames(clip.wav, synthesis.SAMPLE_RATE_HZ) == len(samples)
    assert len(clips) == 3


def test_a_set_broken_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(index: int, *_: object) -> synthesis.Utterance:
        if index == 2:
            raise KeyboardInterrupt
        return synthesis.Utterance(f"x-{index}", "ma", np.zeros(600, np.float32))

    monkeypatch.setattr(synthesis, "utterance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ljspeech.make_synthetic(tmp_path / "set", 4, 0, 0.4, 0.6)
    assert list(tmp_path.iterdir()) == []


def test_a_set_that_another_process_finished_first_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "set"
    write = ljspeech._write

    def late(draft: Path, *arguments: object) -> None:
        write(draft, *arguments)  # type: ignore[arg-type]
        target.mkdir()
        (target / "metadata.csv").write_text("theirs")

    monkeypatch.setattr(ljspeech, "_write", late)
    ljspeech.make_synthetic(target, 2, 0, 0.4, 0.6)
    assert tree(target) == {"metadata.csv": b"theirs"}
    assert list(tmp_path.iterdir()) == [target]


def test_samples_beyond_one_are_clipped(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    ljspeech.write_wav(path, np.array([-2, -1, 0, 1, 2], np.float32), 22050)
    np.testing.assert_allclose(ljspeech.read_wav(path, 22050), [-1, -1, 0, 1, 1], atol=1 / 32768)


def test_thirds_may_be_missing_or_empty_and_pipes_too_many(tmp_path: Path) -> None:
    directory = lay_out(tmp_path, "a|Mr. A|mister a\nb|only\n\nc|raw|  \nd|raw|norm|more|\n", "a", "b", "c", "d")
    assert [clip.text for clip in ljspeech.read_clips(directory)] == ["mister a", "only", "raw", "norm"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("", "names no clip"),
        ("a\n", r"metadata.csv:1: expected 'id\|text\|normalised text', got 'a'"),
        ("a|x\n|y\n", "metadata.csv:2: expected"),
        ("a|x\nb|y\n", "metadata.csv:2: the clip 'b' has no file"),
    ],
)
def test_bad_metadata_are_named_with_their_line(tmp_path: Path, metadata: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ljspeech.read_clips(lay_out(tmp_path, metadata, "a"))


def test_a_directory_without_metadata_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"metadata.csv: no readable LJSpeech metadata"):
        ljspeech.read_clips(tmp_path / "nowhere")


def test_other_formats_are_named_with_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(44100)
        file.writeframes(bytes(400))
    with pytest.raises(InvalidInputError, match=r"x.wav: expected 22050 Hz.* got 44100 Hz, 2, 2"):
        ljspeech.read_wav(path, 22050)
    path.write_bytes(b"RIFF")
    with pytest.raises(InvalidInputError, match="not a readable WAV file"):
        ljspeech.read_wav(path, 22050)
