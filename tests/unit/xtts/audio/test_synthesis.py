"""Synthetic speech: reproducible, of the length asked for, and with the pitch and spectra that its phones have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from xttsbench.xtts.audio.synthesis import PHONES, SAMPLE_RATE_HZ, SPEAKERS, Speaker, speak, utterance


def say(text: str, speaker: Speaker = SPEAKERS[0]) -> npt.NDArray[np.float32]:
    return speak(text, speaker, 1.0, np.random.default_rng(3))


def energy(samples: npt.NDArray[np.float32], low_hz: float, high_hz: float) -> float:
    power = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    hertz = np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE_HZ)
    return float(power[(hertz >= low_hz) & (hertz < high_hz)].sum())


def test_the_same_index_and_seed_give_the_same_clip() -> None:
    one, again = utterance(5, 7, 1, 2), utterance(5, 7, 1, 2)
    assert (one.id, one.text) == (again.id, again.text)
    np.testing.assert_array_equal(one.samples, again.samples)
    assert utterance(5, 8, 1, 2).text != one.text
    assert utterance(9, 7, 1, 2).text != one.text


def test_speakers_take_turns_and_ids_are_unique() -> None:
    clips = [utterance(index, 0, 0.5, 0.6) for index in range(8)]
    assert [clip.id.split("-")[0] for clip in clips] == [speaker.name for speaker in SPEAKERS] * 2
    assert len({clip.id for clip in clips}) == 8


def test_length_and_level() -> None:
    for index in range(4):
        clip = utterance(index, 1, 1.0, 3.0)
        assert 1.0 * SAMPLE_RATE_HZ - 1 <= len(clip.samples) <= 3.0 * SAMPLE_RATE_HZ + 1
        assert np.max(np.abs(clip.samples)) == pytest.approx(0.7)
        assert set(clip.text) <= set(PHONES)
    assert len(speak("ma", SPEAKERS[0], 0.731, np.random.default_rng(0))) == round(0.731 * SAMPLE_RATE_HZ)


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)
def test_pitch_is_the_speakers(speaker: Speaker) -> None:
    middle = say("a", speaker)[6000:16000].astype(np.float64)
    correlation = np.correlate(middle, middle, "full")[len(middle) - 1 :]
    shortest = SAMPLE_RATE_HZ // 400
    period = shortest + int(np.argmax(correlation[shortest : SAMPLE_RATE_HZ // 80]))
    assert SAMPLE_RATE_HZ / period == pytest.approx(speaker.f0_hz, rel=0.15)


def test_vowels_differ_by_their_formants() -> None:
    # /a/ has its first formant at 730 Hz and /i/ at 270; the second at 1,090 and 2,290.
    a, i = say("a"), say("i")
    assert energy(a, 600, 1250) > 3 * energy(a, 150, 400)
    assert energy(i, 150, 400) > 3 * energy(i, 600, 1250)
    assert energy(i, 2000, 2800) / energy(i, 600, 1250) > 5 * energy(a, 2000, 2800) / energy(a, 600, 1250)


def test_a_fricative_is_noise_at_the_top_and_a_pause_is_quiet() -> None:
    s = say("s")
    assert energy(s, 4000, 9000) > 20 * energy(s, 0, 2000)
    phrase = say("aaaa    aaaa").astype(np.float64)
    middle = len(phrase) // 2
    assert np.std(phrase[middle - 400 : middle + 400]) < 0.02 * np.std(phrase[4000:8000])


def test_a_shorter_tract_has_higher_formants() -> None:
    long, short = Speaker("long", 120, 1.0), Speaker("short", 120, 1.3)
    low, high = say("i", long), say("i", short)
    assert energy(low, 2100, 2500) > 2 * energy(low, 2800, 3200) * energy(high, 2100, 2500) / energy(high, 2800, 3200)


@pytest.mark.parametrize("text", ["", "xyz"])
def test_letters_that_are_no_phones_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="made of the letters"):
        say(text)


@pytest.mark.parametrize("arguments", [(-1, 0, 1, 2), (0, -1, 1, 2), (0, 0, 2, 1), (0, 0, 0.1, 1)])
def test_values_out_of_range_are_refused(arguments: tuple[int, int, float, float]) -> None:
    with pytest.raises(ValueError, match="must hold, got"):
        utterance(*arguments)
