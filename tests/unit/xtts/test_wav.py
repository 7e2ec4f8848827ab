"""WAV files: every form that is read, every fault that is named, and rates that are changed without aliasing."""

from __future__ import annotations

import math
import os
import pickle
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.wav import (
    WavError,
    canonical_samples,
    factors,
    read_canonical_wav,
    read_sound,
    read_sound_header,
    resample,
    wav_bytes,
    write_wav,
)

Build = Callable[..., bytes]
VALUES = [0.0, 0.5, -0.5, 0.25, -1.0, 0.75, 0.125, -0.875]
NAMES = {
    **{"uint8": "PCM_U8", "int16": "PCM_16", "int24": "PCM_24", "int32": "PCM_32"},
    **{"float32": "FLOAT", "float64": "DOUBLE"},
}
"""Formats of samples, in libsndfile's words."""
FORMATS = tuple(NAMES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clip.wav"


def refused(path: Path, content: bytes, words: str) -> WavError:
    path.write_bytes(content)
    with pytest.raises(WavError, match=words) as caught:
        read_sound(path)
    return caught.value


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(("sample_format", "named"), NAMES.items())
def test_every_format_gives_the_same_samples(
    path, wav: Build, sample_format: str, named: str, extensible: bool
) -> None:
    path.write_bytes(wav(VALUES, sample_format=sample_format, rate=8000, extensible=extensible))
    header = read_sound_header(path)
    assert (header.sample_rate_hz, header.channels, header.sample_format, header.frames) == (8000, 1, named, 8)
    samples, rate = read_sound(path)
    assert (rate, samples.dtype) == (8000, np.float32)
    np.testing.assert_array_equal(samples, VALUES)  # all are exact in eight bits


@pytest.mark.parametrize("sample_format", FORMATS)
def test_channels_are_averaged(path: Path, wav: Build, sample_format: str) -> None:
    path.write_bytes(wav([0.5, -0.5, 0.25, 0.75, -1.0, -0.5], sample_format=sample_format, channels=2))
    np.testing.assert_array_equal(read_sound(path)[0], [0.0, 0.5, -0.75])
    path.write_bytes(wav([0.75, 0.0, 0.0, 0.0, 0.75, 0.75], sample_format=sample_format, channels=3))
    np.testing.assert_allclose(read_sound(path)[0], [0.25, 0.5], atol=1e-7)


@pytest.mark.parametrize("extra", [1, 2, 5, 600, 70_001])
@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_other_chunks_are_passed_over(path, wav, riff_chunk, place, extra) -> None:
    path.write_bytes(wav(VALUES, **{place: riff_chunk(b"LIST", b"d" * extra)}))
    np.testing.assert_array_equal(read_sound(path)[0], VALUES)
    if place == "before" or extra % 2:  # tf.audio.decode_wav reads neither
        with pytest.raises(WavError, match=r"unusual chunks.*data import"):
            canonical_samples(path, 22050)
    else:
        np.testing.assert_array_equal(read_canonical_wav(path, 22050), VALUES)


def test_what_simple_readers_do_not_take_is_imported_and_not_canonical(path: Path, wav: Build) -> None:
    odd = wav(VALUES, data_bytes=15)
    for content in (wav(VALUES, extensible=True), odd, wav(VALUES, byte_rate=1), wav(VALUES, after=b"xyz")):
        path.write_bytes(content)
        assert len(read_sound(path)[0]) == (7 if content is odd else 8)
        with pytest.raises(WavError, match=r"unusual chunks.*data import"):
            read_canonical_wav(path, 22050)


def test_a_length_that_a_pipe_could_not_know_means_all_that_follows(path: Path, wav: Build) -> None:
    path.write_bytes(wav(VALUES, data_bytes=0xFFFFFFFF))
    np.testing.assert_array_equal(read_sound(path)[0], VALUES)
    with pytest.raises(WavError, match="data import"):
        canonical_samples(path, 22050)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"rate": 44100}, "is 44100 Hz, 1 channel, PCM_16, and 22050 Hz, 1 channel, PCM_16 is expected"),
        ({"channels": 2}, "is 22050 Hz, 2 channels, PCM_16"),
        ({"sample_format": "int24"}, "is 22050 Hz, 1 channel, PCM_24"),
        ({"sample_format": "float32"}, "is 22050 Hz, 1 channel, FLOAT"),
    ],
)
def test_other_forms_are_not_canonical(path: Path, wav: Build, form: dict[str, object], words: str) -> None:
    path.write_bytes(wav(VALUES, **form))
    for read in (canonical_samples, read_canonical_wav):
        with pytest.raises(WavError, match=f"clip.wav: {words}.*run 'xttsbench data import'"):
            read(path, 22050)


def test_truncated_files_are_refused_and_not_padded(path: Path, wav: Build) -> None:
    whole = wav([0.5] * 100)
    error = refused(path, whole[:-60], "its header says 200 bytes of samples, the file has 140")
    assert isinstance(error, InvalidInputError)
    for read in (canonical_samples, read_canonical_wav):
        with pytest.raises(WavError, match="is truncated"):
            read(path, 22050)


@pytest.mark.parametrize("content", [b"", b"fLaC", b"<!DOCTYPE html>", bytes(100), b"RIFF"])
def test_what_is_no_sound_is_refused_in_libsndfiles_words(path: Path, content: bytes) -> None:
    refused(path, content, r"\(libsndfile: Format not recognised\); fetch it again, or convert it.*ffmpeg")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"code": 0x55}, "Malformed 'fmt ' chunk"),
        ({"bits": 20}, "contradicts itself: 1 channels of 20 bits, 2 bytes a frame"),
        ({"channels": 0}, "Channel count is zero"),
        ({"rate": 0}, "is no sound file that can be read"),
        ({"block": 4}, "contradicts itself.*4 bytes a frame"),
        ({"data_bytes": 0}, "holds no sample"),
    ],
)
def test_headers_that_cannot_be_used(path: Path, wav: Build, fields: dict[str, int], words: str) -> None:
    refused(path, wav(VALUES, **fields), words)


def test_chunks_that_are_missing_or_misplaced(path, wav, riff_chunk) -> None:
    header = b"RIFF\x24\0\0\0WAVE"
    for content in (header, wav(VALUES)[:36], header + riff_chunk(b"data", bytes(8)), header + bytes(100_000)):
        refused(path, content, "No 'data' chunk")
    refused(path, header + riff_chunk(b"fmt ", bytes(8)), "Short 'fmt ' chunk")
    unknown = wav(VALUES, extensible=True).replace(bytes.fromhex("00aa00389b71"), bytes(6))
    refused(path, unknown, "unimplemented format")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_samples_that_are_no_numbers_are_refused(path: Path, wav: Build, value: float) -> None:
    refused(path, wav([0.0, value], sample_format="float64"), "infinite or not a number")


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.wav"
    os.mkfifo(fifo)
    for path, words in (
        (fifo, "not a regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none.wav", "there is no such file"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "a\0b", "cannot be read"),
    ):
        with pytest.raises(WavError, match=words):
            read_sound_header(path)


def test_an_error_keeps_its_parts_between_processes(tmp_path: Path) -> None:
    with pytest.raises(WavError) as caught:
        read_sound(tmp_path / "none.wav")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.reason) == (str(caught.value), "there is no such file")
    assert str(again).startswith(f"{tmp_path / 'none.wav'}: there is no such file; ")


def test_what_is_written_is_canonical_and_reads_elsewhere(path: Path) -> None:
    samples = np.random.default_rng(0).uniform(-1, 1, 1000).astype(np.float32)
    write_wav(path, samples, 16000)
    assert path.stat().st_size == wav_bytes(1000)
    assert canonical_samples(path, 16000) == 1000
    np.testing.assert_allclose(read_canonical_wav(path, 16000), samples, atol=0.501 / 32768)
    with wave.open(str(path)) as file:
        assert file.getparams()[:4] == (1, 2, 16000, 1000)
        values = np.frombuffer(file.readframes(1000), "<i2")
    np.testing.assert_array_equal(read_canonical_wav(path, 16000), values / np.float32(32768))


def test_writing_clips_and_refuses_what_is_no_clip(path: Path) -> None:
    write_wav(path, np.array([-2, -1, 0, 1, 2], np.float32), 22050)
    np.testing.assert_allclose(read_canonical_wav(path, 22050), [-1, -1, 0, 1, 1], atol=1 / 32768)
    for bad in (np.zeros(0), np.zeros((2, 2)), np.array([0, np.nan])):
        with pytest.raises(ValueError, match="a clip is one row"):
            write_wav(path, bad, 22050)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), sample_format=st.sampled_from(FORMATS), extensible=st.booleans())
def test_damaged_files_raise_nothing_else(path, wav, data, sample_format, extensible) -> None:
    content = bytearray(wav(VALUES, sample_format=sample_format, extensible=extensible))
    content = content[: data.draw(st.integers(0, len(content)), label="length")]
    for _ in range(data.draw(st.integers(0, 3), label="changes")):
        if content:
            place = data.draw(st.integers(0, min(len(content) - 1, 80)), label="place")
            content[place] = data.draw(st.integers(0, 255), label="byte")
    path.write_bytes(content)
    try:
        header = read_sound_header(path)
        samples, _ = read_sound(path)
    except WavError:
        pass
    else:
        assert len(samples) == header.frames
        assert np.isfinite(samples).all()


@pytest.mark.parametrize("form", ["FLAC", "OGG", "MP3", "AIFF"])
def test_other_formats_are_read_whole_or_refused(path: Path, form: str) -> None:
    tone = np.sin(np.arange(22050) * 0.05).astype(np.float32) / 2
    soundfile.write(path, tone, 22050, format=form)
    header = read_sound_header(path)
    assert (header.sample_rate_hz, header.channels, header.frames) == (22050, 1, 22050)
    assert form in header.form
    np.testing.assert_allclose(read_sound(path)[0], tone, atol=0.1 if form in ("OGG", "MP3") else 1e-4)
    with pytest.raises(WavError, match=f"is 22050 Hz, 1 channel, {form}.*data import"):
        canonical_samples(path, 22050)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(WavError, match=r"copy the file again|libsndfile"):
        read_sound(path)


def test_formats_that_may_end_early_without_a_word_are_refused(path: Path) -> None:
    soundfile.write(path, np.zeros(100), 22050, format="RF64")
    with pytest.raises(WavError, match=r"WAV, AIFF, FLAC, Ogg and MP3 are read; convert it.*ffmpeg"):
        read_sound_header(path)


RATE = 22050
Floats = npt.NDArray[np.float32]


def tone(hertz: float, rate: int, seconds: float = 0.5) -> Floats:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)


def level_db(samples: Floats) -> float:
    middle = samples[len(samples) // 5 : -len(samples) // 5].astype(np.float64)
    return float(20 * np.log10(np.sqrt(2 * np.mean(middle**2)) + 1e-12))


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 24000, 44100, 48000, 96000, 44101])
def test_a_tone_stays_that_tone(rate: int) -> None:
    hertz = 0.85 * min(rate, RATE) / 2
    there = resample(tone(hertz, rate), rate, RATE)
    expected = tone(hertz, RATE)[: len(there)]
    inner = slice(len(there) // 5, -len(there) // 5)
    # In phase as well: within a thousandth at every sample.
    np.testing.assert_allclose(there[inner], expected[inner], atol=1e-3)


@pytest.mark.parametrize("above", [1.01, 1.05, 1.3, 1.9])
@pytest.mark.parametrize("rate", [44100, 48000, 96000])
def test_a_tone_above_the_new_nyquist_frequency_does_not_come_back_below_it(rate: int, above: float) -> None:
    assert level_db(resample(tone(above * RATE / 2, rate), rate, RATE)) < -75


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 3000),
    rates=st.sampled_from([(44100, RATE), (48000, RATE), (16000, RATE), (8000, 48000), (RATE, 16000)]),
)
def test_the_length(count: int, rates: tuple[int, int]) -> None:
    resampled = resample(np.ones(count, np.float32), *rates)
    assert len(resampled) == math.ceil(count * rates[1] / rates[0])
    assert resampled.dtype == np.float32


@pytest.mark.parametrize("rate", range(8000, 8100))
def test_usual_ratios_are_exact_and_odd_ones_near(rate: int) -> None:
    up, down = factors(rate, RATE)
    assert up * rate == down * RATE


@pytest.mark.parametrize("rates", [(0, RATE), (RATE, 999), (1_000_000, RATE), (-1, RATE)])
def test_rates_that_no_speech_has_are_refused(rates: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="Hz can be converted"):
        resample(tone(100, RATE), *rates)


def test_a_ratio_of_primes_is_replaced_by_one_close_by() -> None:
    up, down = factors(192_001, RATE)
    assert max(up, down) <= 50_000
    assert up / down == pytest.approx(RATE / 192_001, rel=1e-4)
