"""Other data sets in canonical form: every kind of sound, nothing from outside, whole or not at all."""

from __future__ import annotations

import errno
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from tests.unit.xtts.test_wav import NAMES
from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.xtts.data import importing
from xttsbench.xtts.data.importing import ImportedData, import_data
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.wav import read_canonical_wav, read_sound_header

LayOut = Callable[[Path, dict[str, str | bytes]], Path]
Build = Callable[..., bytes]
RATE = 22050


def tone(hertz: float, rate: int, seconds: float = 0.2, level: float = 0.5) -> list[float]:
    return [level * math.sin(2 * math.pi * hertz * number / rate) for number in range(round(seconds * rate))]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def samples_of(out: Path, clip: str) -> npt.NDArray[np.float32]:
    return read_canonical_wav(out / "wavs" / f"{clip}.wav", RATE)


@pytest.fixture
def good(wav: Build) -> bytes:
    return wav(tone(440, RATE))


@pytest.fixture
def imported(tmp_path: Path, laid_out: LayOut) -> Callable[..., ImportedData]:
    """Imports files, by their paths in the directory ``in``, to ``out``."""
    return lambda files, **options: import_data(laid_out(tmp_path / "in", files), tmp_path / "out", **options)


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(("sample_format", "named"), NAMES.items())
def test_every_format_rate_and_number_of_channels_becomes_the_same_sound(
    tmp_path, wav, imported, sample_format, named, extensible
) -> None:
    rates = (8000, 22050, 48000)
    files = {"metadata.csv": "".join(f"r{rate}|text\n" for rate in rates)}
    for rate in rates:
        both = [sample for value in tone(440, rate) for sample in (1.5 * value, 0.5 * value)]  # unlike channels
        form = {"channels": 2, "sample_format": sample_format, "extensible": extensible}
        files[f"wavs/r{rate}.wav"] = wav(both, rate=rate, **form)
    record = imported(files)
    expected = np.array(tone(440, RATE), np.float32)
    inner = slice(500, -500)
    for rate in rates:
        made = samples_of(tmp_path / "out", f"r{rate}")
        assert len(made) == len(expected)
        np.testing.assert_allclose(made[inner], expected[inner], atol=0.01 if sample_format == "uint8" else 3e-4)
    assert record.forms == {f"{rate} Hz, 2 channels, {named}": 1 for rate in rates}
    assert (record.clips, record.eval_clips, record.clipped, record.skipped) == (3, None, 0, ())


def test_another_rate_can_be_asked_for(tmp_path: Path, laid_out: LayOut, good: bytes) -> None:
    source = laid_out(tmp_path / "in", {"metadata.csv": "a|text", "wavs/a.wav": good})
    record = import_data(source, tmp_path / "out", sample_rate_hz=16000)
    header = read_sound_header(tmp_path / "out" / "wavs" / "a.wav")
    assert (header.sample_rate_hz, header.frames, record.seconds) == (16000, 3200, 0.2)
    with pytest.raises(UsageError, match="--rate: 1000 to 768000 Hz are possible, got 10"):
        import_data(source, tmp_path / "other", sample_rate_hz=10)


def test_floats_out_of_range_are_cut_and_counted(tmp_path, wav, imported, good) -> None:
    loud = wav(tone(440, RATE, level=2.5), sample_format="float32")
    record = imported({"metadata.csv": "a|x\nb|x\n", "wavs/a.wav": good, "wavs/b.wav": loud})
    assert (record.clipped, record.peak) == (1, pytest.approx(2.5, rel=1e-3))
    made = samples_of(tmp_path / "out", "b")
    np.testing.assert_allclose(made, np.clip(tone(440, RATE, level=2.5), -1, 1), atol=1e-4)


def test_the_whole_layout(tmp_path: Path, laid_out: LayOut, good: bytes) -> None:
    source = laid_out(
        tmp_path / "in",
        {
            "metadata_train.csv": "audio_file|text|speaker_name\nanna/1.wav|One, two.|anna\nben/1.wav|Three.|ben\n",
            "metadata_eval.csv": "audio_file|text|speaker_name\nanna/2.wav|Four.|anna\n",
            "anna/1.wav": good,
            "ben/1.wav": good,
            "anna/2.wav": good,
            "unused.wav": b"",
        },
    )
    out = tmp_path / "deep" / "out"
    record = import_data(source, out)
    assert names(out) == ["import.json", "metadata.csv", "metadata_eval.csv", "speakers.csv", "wavs"]
    assert names(out.parent) == ["out"]
    assert (out / "metadata.csv").read_text() == "anna-1|One, two.|One, two.\nben-1|Three.|Three.\n"
    assert (out / "metadata_eval.csv").read_text() == "anna-2|Four.|Four.\n"
    assert (out / "speakers.csv").read_text() == "anna-1|anna\nben-1|ben\nanna-2|anna\n"
    assert (record.clips, record.eval_clips, record.speakers) == (3, 1, 2)
    assert record.bytes == sum(path.stat().st_size for path in (out / "wavs").iterdir())
    assert ImportedData.model_validate_json((out / "import.json").read_bytes()) == record
    data = read_speech_data(out, sample_rate_hz=RATE, split="eval")
    assert (data.id(0), data.text(0), data.speaker_names[data.speakers[0]]) == ("anna-2", "Four.", "anna")


def test_an_imported_set_can_be_imported(tmp_path: Path, laid_out: LayOut, good: bytes) -> None:
    listing = "audio_file|text|speaker_name\na.wav|One.|anna\nb.wav|Two.|ben\n"
    source = laid_out(tmp_path / "in", {"metadata.csv": listing, "a.wav": good, "b.wav": good})
    import_data(source, tmp_path / "once")
    import_data(tmp_path / "once", tmp_path / "twice")
    for name in ("metadata.csv", "speakers.csv", "wavs/a.wav", "wavs/b.wav"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_bytes_do_not_depend_on_the_workers(tmp_path: Path, wav: Build, laid_out: LayOut) -> None:
    ids = [f"c{number}" for number in range(40)]
    files: dict[str, str | bytes] = {"metadata.csv": "".join(f"{clip}|text\n" for clip in ids)}
    files |= {f"wavs/{clip}.wav": wav(tone(100 + 10 * n, RATE, 0.05), channels=2) for n, clip in enumerate(ids)}
    source = laid_out(tmp_path / "in", files)
    for workers in (1, 2):
        import_data(source, tmp_path / f"out{workers}", workers=workers)
    for path in sorted((tmp_path / "out1").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "out2" / path.relative_to(tmp_path / "out1")).read_bytes()


def test_where_sound_is_looked_for(tmp_path, imported, good) -> None:
    lines = ["x|here", "y.wav|in wavs", "sub/z|with an ending", "wavs\\w.wav|from Windows", "beside.wav|the listing"]
    lines += ["v.1|a dot", "cv.mp3|converted since", "sub/f.flac|converted beside it"]
    paths = ["x.wav", "v.1.wav", "lists/beside.wav", "wavs/y.wav", "wavs/w.wav"]
    paths += ["clips/cv.wav", "sub/z.wav", "sub/f.WAV"]
    files = {"lists/m.csv": "\n".join(["audio_file|text|speaker_name", *lines, ""])} | dict.fromkeys(paths, good)
    imported(files | {"sub/f.flac": b"fLaC"}, metadata=Path("lists/m.csv"))
    made = ["cv.wav", "lists-beside.wav", "sub-f.wav", "sub-z.wav", "v.1.wav", "w.wav", "x.wav", "y.wav"]
    assert names(tmp_path / "out" / "wavs") == made


@pytest.mark.parametrize("suffix", ["aif", "aiff", "flac", "mp3", "ogg"])
@pytest.mark.parametrize("named", ["a", "a.{suffix}"])
def test_a_sound_of_another_kind_is_found_with_and_without_its_ending(tmp_path, imported, suffix, named) -> None:
    sound = io.BytesIO()
    soundfile.write(sound, tone(440, RATE, 0.5), RATE, format={"aif": "AIFF"}.get(suffix, suffix.upper()))
    listed = named.format(suffix=suffix)
    imported({"metadata.csv": f"{listed}|text|ben", f"wavs/a.{suffix}": sound.getvalue()})
    assert names(tmp_path / "out" / "wavs") == ["a.wav"]
    speaker = "ben" if listed != "a" else "speaker"  # a third field is Coqui's speaker where the first is a file
    assert (tmp_path / "out" / "speakers.csv").read_text() == f"a|{speaker}\n"


def test_a_listing_elsewhere_does_not_widen_where_sound_is_looked_for(tmp_path, laid_out, good) -> None:
    laid_out(tmp_path, {"lists/m.csv": "a.wav|x|anna\nb.wav|x|anna\n", "lists/b.wav": good, "in/a.wav": good})
    with pytest.raises(InvalidInputError, match=r"1 of 2 clips .*m.csv:2: there is no file 'b.wav'"):
        import_data(tmp_path / "in", tmp_path / "out", metadata=tmp_path / "lists" / "m.csv")


def test_a_full_path_inside_is_taken(tmp_path, imported, good) -> None:
    imported({"clips/a.wav": good, "metadata.csv": f"{tmp_path}/in/clips/a.wav|text|anna\n"})
    assert names(tmp_path / "out" / "wavs") == ["a.wav"]


@pytest.mark.parametrize(
    ("audio", "words"),
    [
        ("../secret.wav", "leads out of the directory"),
        ("sub/../../secret.wav", "leads out of the directory"),
        ("{root}/secret.wav", "leads out of the directory"),
        ("/etc/passwd", "leads out of the directory"),
        ("link.wav", "leads out of the directory, through a link"),
        ("folder/secret.wav", "leads out of the directory, through a link"),
        ("a\0b.wav", "control characters"),
        ("..", "leads out of the directory"),
    ],
)
def test_nothing_outside_is_read(tmp_path: Path, laid_out: LayOut, good: bytes, audio: str, words: str) -> None:
    laid_out(tmp_path, {"secret.wav": good})
    listing = f"audio_file|text|speaker_name\nfine.wav|x\n{audio.format(root=tmp_path)}|x\n"
    source = laid_out(tmp_path / "in", {"metadata.csv": listing, "fine.wav": good, "sub/b.wav": good})
    (source / "link.wav").symlink_to(tmp_path / "secret.wav")
    (source / "folder").symlink_to(tmp_path)
    with pytest.raises(InvalidInputError, match=f"1 of 2 clips cannot be used.*metadata.csv:3: .*{words}"):
        import_data(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_within_is_followed(tmp_path: Path, laid_out: LayOut, good: bytes) -> None:
    source = laid_out(tmp_path / "in", {"metadata.csv": "a|x\n", "deep/real.wav": good})
    (source / "a.wav").symlink_to("deep/real.wav")
    assert import_data(source, tmp_path / "out").clips == 1


@pytest.fixture
def bad(wav, good) -> dict[str, str | bytes]:
    """A data set with one good clip and one of each kind that is not."""
    clips = {
        "good": good,
        "mp3": b"ID3" + bytes(50),
        "cut": good[:-100],
        "nan": wav([0.0] * 1000 + [math.nan], sample_format="float32"),
        "short": wav([0.0] * 100),
        "adpcm": wav([0.0] * 1000, code=2),
        "slow": wav([0.0] * 1000, rate=10),
    }
    lines = [f"{name}|text of {name}" for name in clips]
    lines += ["absent|text", "flac|text", "good|again", "silent|", "numbers|12", "no pipe"]
    clips |= {"silent": good, "numbers": good}
    files = {f"wavs/{name}.wav": content for name, content in clips.items()}
    return {"metadata.csv": "\n".join(lines), **files, "wavs/flac.flac": b"fLaC"}


REASONS = {
    "wavs/mp3.wav": "is no sound file that can be read (libsndfile: ",
    "wavs/cut.wav": "is truncated",
    "wavs/nan.wav": "not a number",
    "wavs/short.wav": "lasts 100 samples, and 0.02 s is the least",
    "wavs/adpcm.wav": "(libsndfile: Error in ADPCM WAV file. Invalid bit width)",
    "wavs/slow.wav": "says 10 Hz, which no speech has",
    "metadata.csv:8": "there is no file 'absent'",
    "wavs/flac.flac": "is no sound file that can be read (libsndfile: ",
    "metadata.csv:10": "the clip 'good' is listed at metadata.csv:1 too",
    "metadata.csv:11": "the text is empty",
    "metadata.csv:12": "no character of '12'",
    "metadata.csv:13": "expected 'id|text|normalised text' or",
}


def test_bad_clips_are_counted_and_the_first_named(tmp_path, imported, bad) -> None:
    with pytest.raises(InvalidInputError, match=r"11 of 13 clips cannot be used.*--skip-unreadable") as caught:
        imported(bad)
    assert str(caught.value).count("wavs/") == 5
    assert names(tmp_path) == ["in"]


def test_bad_clips_are_skipped_when_asked_and_listed(tmp_path, imported, bad) -> None:
    record = imported(bad, skip_unreadable=True)
    assert record.clips == 1
    assert names(tmp_path / "out" / "wavs") == ["good.wav"]
    skipped = {entry.where: entry.reason for entry in record.skipped}
    assert skipped.keys() == REASONS.keys()
    for where, words in REASONS.items():
        assert words in skipped[where]
    listed = json.loads((tmp_path / "out" / "import.json").read_text())["skipped"]
    assert {entry["where"] for entry in listed} == REASONS.keys()


def test_nothing_left_is_an_error_even_when_skipping(imported) -> None:
    with pytest.raises(InvalidInputError, match=r"1 of 1 clip cannot be used .*No clip is left"):
        imported({"metadata.csv": "a|x\n", "wavs/a.wav": b""}, skip_unreadable=True)
    with pytest.raises(InvalidInputError, match="names no clip"):
        imported({"metadata.csv": "audio_file|text|speaker_name\n"})


def test_some_clips_must_be_left_to_train_on(imported, good) -> None:
    with pytest.raises(InvalidInputError, match="all 1 usable clips are held out"):
        imported({"metadata.csv": "a|x\n", "metadata_eval.csv": "b|x\n", "wavs/b.wav": good}, skip_unreadable=True)


def test_a_clip_is_not_trained_on_and_held_out(imported, good) -> None:
    with pytest.raises(InvalidInputError, match=r"metadata_eval.csv:1: the clip 'a' is listed at metadata.csv:1 too"):
        imported({"metadata.csv": "a|x\n", "metadata_eval.csv": "a|x\n", "wavs/a.wav": good})


def test_ids_that_fall_together_are_refused(imported, good) -> None:
    with pytest.raises(InvalidInputError, match=r"the clip 'a-b' is listed at metadata.csv:2 too"):
        imported(
            {"metadata.csv": "audio_file|text|speaker_name\na/b.wav|x\na-b.wav|y\n", "a/b.wav": good, "a-b.wav": good}
        )


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="none: there is no such directory"):
        import_data(tmp_path / "none", tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="file: is a file"):
        import_data(tmp_path / "file", tmp_path / "out")


def test_the_target_must_be_free(tmp_path: Path, laid_out: LayOut, good: bytes) -> None:
    source = laid_out(tmp_path / "in", {"metadata.csv": "a|x\n", "wavs/a.wav": good})
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"holds '.*' already"):
        import_data(source, source)
    with pytest.raises(UsageError, match="is a file"):
        import_data(source, source / "metadata.csv")
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before
    assert import_data(source, source / "inside").clips == 1


def test_a_disk_that_fills_up_leaves_nothing(tmp_path, imported, good, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(importing, "write_wav", full)
    with pytest.raises(InvalidInputError, match=r"out: the disk or a limit is full: about 0.0 MB are needed"):
        imported({"metadata.csv": "a|x\n", "wavs/a.wav": good})
    assert names(tmp_path) == ["in"]
