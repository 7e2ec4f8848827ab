"""Formant-synthesised speech and data sets of it: seeded real WAV input without a download, written whole, made once.

A letter is a phone, so that text and sound belong together and a model can learn to read. A clip is a pulse train
(the voice) and white noise (the fricatives), each shaped frame by frame by the resonances of a vocal tract (Fant,
"Acoustic Theory of Speech Production", 1960). Speakers differ in pitch and in the length of the tract.

``made.json`` beside the clips says what a set was made from, so that the same call finds it and another one is refused.
Sets are kept in one place per user, the default set among them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import platformdirs
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import Draft, draft, first_entry, not_written, require_space, sync, write_lines
from xttsbench.inputs import read_bytes
from xttsbench.records.base import Record
from xttsbench.xtts.data.metadata import METADATA, SPEAKERS
from xttsbench.xtts.data.pool import Progress, in_chunks
from xttsbench.xtts.data.speech_data import MADE
from xttsbench.xtts.wav import wav_bytes, write_wav

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


MAKER_VERSION: Final = 3
"""Version of the bytes that :mod:`xttsbench.xtts.data.make` writes; part of a set's name, so that old sets are left."""

DEFAULT_CLIPS: Final = 256
DEFAULT_MIN_S: Final = 1.0
DEFAULT_MAX_S: Final = 10.0
DEFAULT_SEED: Final = 0
DEFAULT_SPEAKERS: Final = 4
MAX_CLIPS: Final = 1_000_000
MIN_S: Final = 0.3
MAX_S: Final = 60.0
"""Bounds of what may be asked for."""
_CLIPS_A_JOB: Final = 8
_METADATA_BYTES_A_CLIP: Final = 300
_BLOCK_BYTES: Final = 4096  # what a file takes at least on most file systems
Wanted = tuple[int, int, int, float, float, int]


def cache_directory() -> Path:
    """Return where made data are kept, as an absolute path: ``XTTSBENCH_CACHE``, else the user's cache directory."""
    return Path(os.environ.get("XTTSBENCH_CACHE") or platformdirs.user_cache_dir("xttsbench")).absolute()


def made_data(clips: int, seed: int, min_s: float, max_s: float, speakers: int = DEFAULT_SPEAKERS) -> Path:
    """Return where the set that these arguments make is kept; it need not be there yet."""
    fewer = "" if speakers == DEFAULT_SPEAKERS else f"-{speakers}speakers"
    return cache_directory() / f"speech-v{MAKER_VERSION}-{clips}x{min_s:g}-{max_s:g}s-seed{seed}{fewer}"


def default_data() -> Path:
    """Return where the set that every command without ``--data`` uses is kept; it need not be there yet."""
    return made_data(DEFAULT_CLIPS, DEFAULT_SEED, DEFAULT_MIN_S, DEFAULT_MAX_S)


class MadeData(Record):
    """A made set: what it was made from, and what it holds."""

    maker_version: int
    clips: int
    seed: int
    min_s: float
    max_s: float
    sample_rate_hz: int
    seconds: float
    """Duration of all clips."""
    speakers: int
    bytes: int
    """Size of the WAV files."""

    def wanted(self) -> Wanted:
        """Settings that determine every byte of the set."""
        return self.maker_version, self.clips, self.seed, self.min_s, self.max_s, self.speakers


def ensure_default_data(progress: Progress | None = None) -> Path:
    """Return the directory of the set that every command without ``--data`` uses, made now if it was not there.

    Raises:
        XttsbenchError: as :func:`make_data`.
    """
    directory = default_data()
    make_data(directory, DEFAULT_CLIPS, DEFAULT_SEED, DEFAULT_MIN_S, DEFAULT_MAX_S, progress=progress)
    return directory


def make_data(
    directory: Path,
    count: int,
    seed: int,
    min_s: float,
    max_s: float,
    *,
    speakers: int = len(VOICES),
    workers: int | None = None,
    progress: Progress | None = None,
) -> MadeData:
    """Make a set unless it is there: ``metadata.csv``, ``speakers.csv``, ``wavs/`` and ``made.json``.

    The same arguments give the same bytes, whatever the number of workers. Two processes may make the same set at the
    same time; one of them gives it its name, and both succeed. The directory is empty, missing, or the same set. The
    allowed cores work, and one where the work is small, unless ``workers`` says how many.

    Raises:
        UsageError: a value is out of range, or the directory holds something else or cannot be made.
        InvalidInputError: the disk is full, or the set that is there was damaged.
    """
    if not (1 <= count <= MAX_CLIPS and 0 <= seed < 2**63 and MIN_S <= min_s <= max_s <= MAX_S):
        raise UsageError(
            f"1 <= utterances <= {MAX_CLIPS}, 0 <= seed < 2**63 and {MIN_S} <= min-s <= max-s <= {MAX_S:g} must hold; "
            f"got {count}, {seed}, {min_s:g} and {max_s:g}"
        )
    if not 1 <= speakers <= len(VOICES):
        raise UsageError(f"1 <= speakers <= {len(VOICES)} must hold; got {speakers}")
    directory = directory.resolve()
    wanted = (MAKER_VERSION, count, seed, float(min_s), float(max_s), min(count, speakers))
    if found := _existing(directory, wanted):
        return found
    seconds = count * (min_s + max_s) / 2
    needed_bytes = round(2 * seconds * SAMPLE_RATE_HZ) + count * (_BLOCK_BYTES // 2 + _METADATA_BYTES_A_CLIP)
    require_space(directory, needed_bytes)
    try:
        with draft(directory) as made:
            record = _fill(made, wanted, workers, progress)
            if made.publish():
                return record
    except OSError as error:
        raise not_written(error, directory, needed_bytes) from error
    # Another process was faster; what it made has our bytes, or is something else and refused.
    if found := _existing(directory, wanted):
        return found
    raise InvalidInputError(f"{directory} was made and removed by another process meanwhile; run again")


def _fill(made: Draft, wanted: Wanted, workers: int | None, progress: Progress | None) -> MadeData:
    version, count, seed, min_s, max_s, voices = wanted
    wavs = made.directory / "wavs"
    wavs.mkdir()
    make = partial(_make_clips, wavs, (seed, min_s, max_s, voices))
    clips = []
    for _, some in in_chunks(make, range(count), _CLIPS_A_JOB, workers, "clips made", progress, as_job=int):
        clips += some
    write_lines(made.directory / METADATA, (f"{clip_id}|{text}|{text}\n" for clip_id, text, _ in clips))
    write_lines(made.directory / SPEAKERS, (f"{clip_id}|{clip_id.partition('-')[0]}\n" for clip_id, _, _ in clips))
    record = MadeData(
        maker_version=version,
        clips=count,
        seed=seed,
        min_s=min_s,
        max_s=max_s,
        sample_rate_hz=SAMPLE_RATE_HZ,
        seconds=round(sum(samples for _, _, samples in clips) / SAMPLE_RATE_HZ, 3),
        speakers=voices,
        bytes=sum(wav_bytes(samples) for _, _, samples in clips),
    )
    write_lines(made.directory / MADE, [record.model_dump_json(indent=2), "\n"])
    return record


def _make_clips(
    wavs: Path, wanted: tuple[int, float, float, int], indices: Sequence[int]
) -> list[tuple[str, str, int]]:
    """Write some clips, and return the id, text and samples of each; runs in a process of its own."""
    made = []
    for index in indices:
        clip = utterance(index, *wanted)
        path = wavs / f"{clip.id}.wav"
        write_wav(path, clip.samples, SAMPLE_RATE_HZ)
        sync(path)
        made.append((clip.id, clip.text, len(clip.samples)))
    return made


def _existing(directory: Path, wanted: Wanted) -> MadeData | None:
    """Return the record of a set that is there, or None where there is nothing yet."""
    taken = first_entry(directory)
    if taken is None:
        return None
    try:
        record = MadeData.model_validate_json(read_bytes(directory / MADE))
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{directory} holds {taken!r} and is not a set that 'xttsbench data make' made; "
            "name a directory that is empty or does not exist"
        ) from error
    if record.wanted() != wanted:
        raise UsageError(
            f"{directory} holds another set: version {record.maker_version}, --utterances {record.clips} "
            f"--seed {record.seed} --min-s {record.min_s:g} --max-s {record.max_s:g} --speakers {record.speakers}; "
            "name another directory"
        )
    # Clips may have been lost or cut since; sizes are compared, not bytes.
    try:
        sizes = [entry.stat().st_size for entry in os.scandir(directory / "wavs") if entry.name.endswith(".wav")]
        files = all((directory / name).stat().st_size for name in (METADATA, SPEAKERS))
    except OSError:
        sizes, files = [], False
    if not files or (len(sizes), sum(sizes)) != (record.clips, record.bytes):
        raise InvalidInputError(
            f"{directory}: the set was changed since it was made: {len(sizes)} WAV files of {sum(sizes)} bytes where "
            f"{record.clips} of {record.bytes} were; delete the directory and run again"
        )
    return record
