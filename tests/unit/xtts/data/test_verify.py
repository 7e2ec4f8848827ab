"""Verifying: each fault, made for real, is found in the right clip under the right rule, and mended where it can be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xttsbench.xtts.data import verification as module
from xttsbench.xtts.data.feature_cache import cache_path
from xttsbench.xtts.data.precompute import make_cache, mend
from xttsbench.xtts.data.speech_data import SpeechData, usable
from xttsbench.xtts.data.verification import Verification, verify
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.wav import write_wav

Read = Callable[[Path], SpeechData]


@pytest.fixture
def cache(speech: Path, tmp_path: Path, read: Read, features: FeatureSettings) -> Path:
    return make_cache(read(speech), features, tmp_path / "root").cache.directory


@pytest.fixture
def look(speech: Path, tmp_path: Path, features: FeatureSettings) -> Callable[..., Verification]:
    return lambda **options: verify(speech, features, tmp_path / "root", **options)


def found(verification: Verification) -> list[tuple[str, str | None]]:
    return sorted((problem.rule, problem.clip or "") for problem in verification.problems)


def rewritten(path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    np.save(path, change(np.load(path)))


def changed_at(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array[7, 5] += value
    return array


def sound(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_a_good_set_has_no_problem(cache: Path, look) -> None:
    verification = look()
    assert (verification.clips, verification.compared, verification.problems) == (6, 6, ())
    assert verification.cache == cache


def test_a_difference_within_the_tolerance_is_none(cache: Path, look) -> None:
    for path in (cache / "npy").iterdir():
        rewritten(path, lambda mel: mel + np.float32(9e-5))
    rewritten(cache / "packed.npy", lambda mel: mel + np.float32(9e-5))
    assert look().problems == ()


def test_changed_wav_files_are_stale_and_touched_ones_are_not(cache, look, speech, features, tmp_path) -> None:
    changed, sly, touched, longer = (speech / f"wavs/c{number}.wav" for number in range(4))
    status = sly.stat()
    for wav in (changed, sly):
        content = wav.read_bytes()
        wav.write_bytes(content[:2000] + bytes(500) + content[2500:])
    os.utime(sly, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(touched)
    write_wav(longer, np.zeros(9999), 22050)
    verification = look()
    assert found(verification) == [("stale-cache", "c0"), ("stale-cache", "c1"), ("stale-cache", "c3")]
    assert "same size and time of change" in next(p.what for p in verification.problems if p.clip == "c1")
    made = mend(verification, features, tmp_path / "root")
    assert made.made == 6
    assert look(everything=True).problems == ()


def test_no_cache_and_one_of_other_settings_are_stale(cache, look, speech, features, tmp_path) -> None:
    shutil.rmtree(cache / "npy")
    other = verify(speech, features.model_copy(update={"log_floor": 1e-6}), tmp_path / "root")
    assert found(other) == [("stale-cache", "")]
    assert "there is no feature cache" in other.problems[0].what
    shutil.rmtree(cache)
    verification = look()
    assert found(verification) == [("stale-cache", "")]
    made = mend(verification, features, tmp_path / "root")
    assert made.made == 6
    assert look().problems == ()


def test_new_clips_are_stale_and_a_clean_set_is_left_alone(cache, look, speech, features, tmp_path) -> None:
    assert mend(look(), features, tmp_path / "root") is None
    shutil.copy(speech / "wavs/c1.wav", speech / "wavs/new.wav")
    with (speech / "metadata.csv").open("a") as file:
        file.write("new|some words\n")
    assert found(look()) == [("stale-cache", "new")]


def test_a_sample_is_compared_where_there_are_many(cache, look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_CLIPS", 3)
    rewritten(cache / "npy/c1.npy", lambda mel: changed_at(mel, 1))
    samples = {seed: look(seed=seed) for seed in range(12)}
    assert {verification.compared for verification in samples.values()} == {3}
    assert {len(verification.problems) for verification in samples.values()} == {0, 2}
    assert found(look(seed=5)) == found(samples[5])
    whole = look(everything=True)
    assert (whole.compared, len(whole.problems)) == (6, 2)


def test_what_cannot_be_used_is_listed_clip_by_clip_and_the_rest_is_verified(cache, look, speech, features) -> None:
    wavs = speech / "wavs"
    write_wav(wavs / "c0.wav", np.zeros(9000), 44100)
    (wavs / "c1.wav").write_bytes((wavs / "c1.wav").read_bytes()[:-10])
    (wavs / "c2.wav").write_bytes(b"ID3 is no WAV file" * 9)
    (wavs / "c3.wav").unlink()
    write_wav(wavs / "c4.wav", np.zeros(400), 22050)
    with (speech / "metadata.csv").open("a") as file:
        file.write("no pipe\n../c0|words\n/etc/passwd|words\nc\0d|words\nempty|\nc5|again\n")
    rewritten(cache / "npy/c5.npy", lambda mel: changed_at(mel, 1))
    before = sound(speech)
    verification = look()
    by_clip = {problem.clip: problem for problem in verification.problems if problem.clip}
    assert found(verification) == sorted(
        [
            *[("bad-metadata", "")] * 6,
            ("bad-metadata", "c3"),
            *(("unsupported-audio", f"c{number}") for number in (0, 1, 2, 4)),
            ("corrupt-cache", "c5"),
            ("feature-mismatch", "c5"),
        ]
    )
    assert "44100 Hz" in by_clip["c0"].what
    assert by_clip["c0"].remedy == f"run 'xttsbench data import {speech} --out NEW' and use NEW"
    assert "is truncated" in by_clip["c1"].what
    assert "is no sound file that can be read" in by_clip["c2"].what
    assert "there is no wavs/c3.wav" in by_clip["c3"].what
    assert "lasts 400 samples" in by_clip["c4"].what
    lines = [problem.what for problem in verification.problems if problem.rule == "bad-metadata"]
    assert any("metadata.csv:8: the id '../c0' is a path" in line for line in lines)
    assert (verification.clips, len(verification.data)) == (12, 1)
    assert mend(verification, features, cache.parents[2]) is not None
    assert {problem.rule for problem in look().problems} == {"bad-metadata", "unsupported-audio"}
    assert sound(speech) == before


def test_clips_too_short_for_the_settings_are_listed(speech: Path, features: FeatureSettings) -> None:
    write_wav(speech / "wavs/c2.wav", np.zeros(800), 22050)
    long = features.model_copy(update={"n_fft": 2048, "window_samples": 2048})
    data, clips, problems = usable(speech, long)
    assert [(problem.rule, problem.clip) for problem in problems] == [("unsupported-audio", "c2")]
    assert "has 800 samples, and these features need 897" in problems[0].what
    assert (len(data), clips) == (5, 6)


def test_a_set_without_a_usable_clip_is_listed_too(speech: Path, features: FeatureSettings, tmp_path: Path) -> None:
    shutil.rmtree(speech / "wavs")
    (speech / "wavs").mkdir()
    verification = verify(speech, features, tmp_path / "root")
    assert verification.data is None
    assert [problem.clip for problem in verification.problems] == [f"c{number}" for number in range(6)]
    assert mend(verification, features, tmp_path / "root") is None
    assert not cache_path(speech, features, tmp_path / "root").exists()
