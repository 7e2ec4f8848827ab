"""Formant-synthesised speech: a letter is a phone, so that text and sound belong together and can be learnt.

A clip is a pulse train (the voice) and white noise (the fricatives), each shaped frame by frame by the resonances of a
vocal tract (Fant, "Acoustic Theory of Speech Production", 1960). Speakers differ in pitch and in the length of the
tract. The same seed gives the same clip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SAMPLE_RATE_HZ: Final = 22_050
_N_FFT: Final = 1024
_HOP: Final = 256
_CONSONANTS: Final = "mnlsf"
_VOWELS: Final = "aeiou"


@dataclass(frozen=True, slots=True)
class Phone:
    """Formant targets and sources of one letter."""

    formants_hz: tuple[float, float, float]
    voice: float
    """Level of the voiced source, 0..1."""
    noise: float = 0.0
    """Level of the noise source, 0..1."""
    noise_hz: float = 4000.0
    duration_s: float = 0.1


@dataclass(frozen=True, slots=True)
class Speaker:
    """Pitch and size of a speaker."""

    name: str
    f0_hz: float
    tract_scale: float
    """Factor on all formants: above 1 is a shorter vocal tract."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One clip: its id (speaker and number), what is said, and the samples at :data:`SAMPLE_RATE_HZ` in -1..1."""

    id: str
    text: str
    samples: npt.NDArray[np.float32]


# Vowels: averages for men in Peterson and Barney, "Control methods used in a study of the vowels" (1952).
PHONES: Final = {
    "a": Phone((730, 1090, 2440), 1.0, duration_s=0.13),
    "e": Phone((530, 1840, 2480), 0.9, duration_s=0.11),
    "i": Phone((270, 2290, 3010), 0.8, duration_s=0.10),
    "o": Phone((570, 840, 2410), 0.9, duration_s=0.12),
    "u": Phone((300, 870, 2240), 0.8, duration_s=0.11),
    "m": Phone((250, 1000, 2200), 0.35, duration_s=0.08),
    "n": Phone((250, 1500, 2500), 0.35, duration_s=0.08),
    "l": Phone((350, 1200, 2700), 0.5, duration_s=0.07),
    "s": Phone((400, 1700, 2600), 0.0, noise=0.5, noise_hz=6500, duration_s=0.10),
    "f": Phone((400, 1400, 2400), 0.0, noise=0.2, noise_hz=3500, duration_s=0.09),
    " ": Phone((500, 1500, 2500), 0.0, duration_s=0.08),
}
VOICES: Final = (
    Speaker("low", 105.0, 1.00),
    Speaker("middle", 150.0, 1.07),
    Speaker("high", 205.0, 1.15),
    Speaker("child", 265.0, 1.28),
)


def utterance(index: int, seed: int, min_s: float, max_s: float, speakers: int = len(VOICES)) -> Utterance:
    """Return the ``index``-th clip of a seed, which does not depend on how many others are made.

    Speakers take turns, from the first of :data:`VOICES`; ``min_s`` is at least 0.3.
    """
    speaker, duration_s, text, rng = _drawn(index, seed, min_s, max_s, speakers)
    return Utterance(f"{speaker.name}-{index:05d}", text, speak(text, speaker, duration_s, rng))


def letters_at(places: Array, index: int, seed: int, min_s: float, max_s: float, speakers: int) -> npt.NDArray[np.intp]:
    """Return which letter of its text the clip of :func:`utterance` says at some places, by number, ``[n]``.

    The places, ``[n]``, are in samples at :data:`SAMPLE_RATE_HZ`; the other arguments are those of :func:`utterance`.
    """
    _, duration_s, text, rng = _drawn(index, seed, min_s, max_s, speakers)
    letters = _letters(text, _frames(duration_s), rng)
    return letters[np.clip(np.rint(places / _HOP).astype(np.intp), 0, len(letters) - 1)]


def speak(text: str, speaker: Speaker, duration_s: float, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return ``round(duration_s * SAMPLE_RATE_HZ)`` samples of a speaker saying letters of :data:`PHONES`.

    Raises:
        ValueError: the text is empty or holds a letter that is not a phone.
    """
    unknown = sorted(set(text) - set(PHONES))
    if not text or unknown:
        raise ValueError(f"the text is made of the letters {''.join(PHONES)!r}, got {text!r}")
    n_samples, n_frames = round(duration_s * SAMPLE_RATE_HZ), _frames(duration_s)
    phones = [PHONES[letter] for letter in text]
    which = _letters(text, n_frames, rng)

    def track(values: list[float]) -> Array:
        """One value per frame, smoothed over three frames (35 ms): phones run into each other."""
        return np.convolve(np.pad(np.asarray(values)[which], 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")

    formants = [speaker.tract_scale * track([phone.formants_hz[k] for phone in phones]) for k in range(3)]
    voice, noise = track([phone.voice for phone in phones]), track([phone.noise for phone in phones])
    noise_hz = track([phone.noise_hz for phone in phones])

    size = (n_frames - 1) * _HOP + _N_FFT
    pulses = _pulses(size, speaker.f0_hz, rng)
    bins_hz: Array = np.fft.rfftfreq(_N_FFT, 1 / SAMPLE_RATE_HZ).astype(np.float64)
    tract = _tract(bins_hz, formants, speaker.tract_scale) * voice[:, None]
    hiss = noise[:, None] * np.exp(-(((bins_hz - noise_hz[:, None]) / (0.35 * noise_hz[:, None])) ** 2))
    hiss += 2e-3  # a room's noise, so that silence is not digital zero
    spectra = _spectra(pulses) * tract + _spectra(0.05 * rng.standard_normal(size)) * hiss
    clip = _overlap_add(np.fft.irfft(spectra, axis=-1))[_N_FFT // 2 :][:n_samples]
    return (0.7 * clip / np.max(np.abs(clip))).astype(np.float32)


def _drawn(
    index: int, seed: int, min_s: float, max_s: float, speakers: int
) -> tuple[Speaker, float, str, np.random.Generator]:
    """Return who says what in a clip, how long it lasts, and the generator that decides the rest."""
    if index < 0 or seed < 0 or not 0.3 <= min_s <= max_s or not 1 <= speakers <= len(VOICES):
        raise ValueError(
            f"index, seed >= 0, 0.3 <= min_s <= max_s and 1 <= speakers <= {len(VOICES)} must hold, "
            f"got {index}, {seed}, {min_s}, {max_s}, {speakers}"
        )
    rng = np.random.default_rng([seed, index])
    duration_s = float(rng.uniform(min_s, max_s))
    return VOICES[index % speakers], duration_s, _sentence(duration_s, rng), rng


def _frames(duration_s: float) -> int:
    """Return how many frames a clip is shaped in: one for each hop, centred on its start, and some to spare."""
    return round(duration_s * SAMPLE_RATE_HZ) // _HOP + 5


def _letters(text: str, n_frames: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return which letter each frame says, by number; the first of what a clip's generator draws for its sound."""
    ends = np.cumsum([PHONES[letter].duration_s * rng.uniform(0.85, 1.15) for letter in text])
    return np.searchsorted(ends / ends[-1], np.linspace(0, 1, n_frames, endpoint=False), side="right")


def _sentence(duration_s: float, rng: np.random.Generator) -> str:
    """Return words of open and closed syllables that take so long to say, to half a letter.

    The last word ends where the time does: a text that was stretched to its clip would have a tempo of its own, and no
    listener or model could know from the text where in it a frame lies.
    """
    words: list[str] = []
    left_s = duration_s
    while left_s > 0 or not words:
        word = "".join(
            rng.choice(list(_CONSONANTS)) + rng.choice(list(_VOWELS)) for _ in range(int(rng.integers(1, 4)))
        ) + str(rng.choice(["", "n", "s", "l"]))
        words.append(word)
        left_s -= sum(PHONES[letter].duration_s for letter in f"{word} ")
    text = " ".join(words)
    ends_s = np.cumsum([PHONES[letter].duration_s for letter in text])
    return text[: 1 + int(np.argmin(np.abs(ends_s - duration_s)))].rstrip()


def _pulses(size: int, f0_hz: float, rng: np.random.Generator) -> Array:
    """Return a pulse train whose pitch declines by a fifth and wanders by some per cent."""
    time = np.linspace(0, 1, size)
    wander = np.interp(time, np.linspace(0, 1, 8), rng.normal(0, 0.04, 8))
    phase = np.cumsum(f0_hz * (1.1 - 0.2 * time) * (1 + wander) / SAMPLE_RATE_HZ)
    pulses = np.zeros(size)
    pulses[np.flatnonzero(np.diff(np.floor(phase)))] = 1.0
    return pulses


def _tract(bins_hz: Array, formants_hz: list[Array], scale: float) -> Array:
    """Return the magnitude response, ``[frames, bins]``: resonances in cascade under a tilt of 6 dB per octave."""
    fixed = [np.full_like(formants_hz[0], scale * hertz) for hertz in (3500.0, 4500.0)]
    response = np.broadcast_to(1 / (1 + bins_hz / 300), (len(formants_hz[0]), len(bins_hz))).copy()
    for number, centre in enumerate([*formants_hz, *fixed]):
        f, bandwidth = centre[:, None], 70.0 + 40.0 * number
        response *= f**2 / np.sqrt((f**2 - bins_hz**2) ** 2 + (bandwidth * bins_hz) ** 2)
    return response


def _spectra(source: Array) -> npt.NDArray[np.complex128]:
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_N_FFT) / _N_FFT)
    frames = np.lib.stride_tricks.sliding_window_view(source, _N_FFT)[::_HOP]
    spectra: npt.NDArray[np.complex128] = np.fft.rfft(frames * window, axis=-1)
    return spectra


def _overlap_add(frames: Array) -> Array:
    """Return the sum of frames at the hop; the Hann windows of a quarter's hop add up to a constant."""
    out = np.zeros((len(frames) - 1) * _HOP + _N_FFT)
    for number, frame in enumerate(frames):
        out[number * _HOP : number * _HOP + _N_FFT] += frame
    return out
