"""Data sets in LJSpeech's layout: ``metadata.csv`` (``id|text|normalised text``) beside ``wavs/<id>.wav``.

Synthetic sets are written whole or not at all, so that a run broken off, or two at once, leave nothing half-made.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.xtts import synthesis


@dataclass(frozen=True, slots=True)
class Clip:
    """One line of the metadata: where the sound is and what is said in it."""

    id: str
    text: str
    wav: Path


def read_clips(directory: Path) -> list[Clip]:
    """Return the clips of a data set, in the order of its metadata.

    A missing or empty third field falls back to the second.

    Raises:
        InvalidInputError: the metadata are missing, empty or malformed, or a WAV file that they name is missing.
    """
    metadata = directory / "metadata.csv"
    try:
        lines = metadata.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{metadata}: no readable LJSpeech metadata: {error}") from error
    clips = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        fields = line.split("|")
        if len(fields) < 2 or not fields[0].strip():
            raise InvalidInputError(f"{metadata}:{number}: expected 'id|text|normalised text', got {line!r}")
        clip_id = fields[0].strip()
        text = fields[2] if len(fields) > 2 and fields[2].strip() else fields[1]
        wav = directory / "wavs" / f"{clip_id}.wav"
        if not wav.is_file():
            raise InvalidInputError(f"{metadata}:{number}: the clip {clip_id!r} has no file {wav}")
        clips.append(Clip(clip_id, text.strip(), wav))
    if not clips:
        raise InvalidInputError(f"{metadata}: names no clip")
    return clips


def wav_frames(path: Path, sample_rate_hz: int) -> int:
    """Return the number of samples that a WAV file's header states; raises as :func:`read_wav` does."""
    with _open(path, sample_rate_hz) as file:
        return file.getnframes()


def read_wav(path: Path, sample_rate_hz: int) -> npt.NDArray[np.float32]:
    """Return the samples of a 16-bit mono WAV file, ``[n]`` in -1..1.

    Raises:
        InvalidInputError: the file cannot be read, or has another sample width, rate or number of channels.
    """
    with _open(path, sample_rate_hz) as file:
        data = file.readframes(file.getnframes())
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)


def write_wav(path: Path, samples: npt.NDArray[np.float32], sample_rate_hz: int) -> None:
    """Write samples in -1..1 as a 16-bit mono WAV file; what lies outside is clipped."""
    pcm = np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate_hz)
        file.writeframes(pcm.tobytes())


def make_synthetic(directory: Path, count: int, seed: int, min_s: float, max_s: float) -> Path:
    """Make a synthetic data set unless it is there; says so in one line on standard error.

    Args:
        directory: where the set will be; made whole in a temporary directory beside it, then renamed.
        count: number of clips.
        seed: seed of the set; the same arguments give the same bytes.
        min_s: shortest clip in seconds.
        max_s: longest clip in seconds.

    Returns:
        ``directory``.
    """
    if directory.is_dir():
        return directory
    print(f"making {count} clips of synthetic speech in {directory} (once)", file=sys.stderr, flush=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _write(draft, count, seed, min_s, max_s)
        draft.rename(directory)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        # Another process may have made the same set meanwhile; its bytes are ours.
        if not (isinstance(error, OSError) and directory.is_dir()):
            raise
    return directory


def _write(directory: Path, count: int, seed: int, min_s: float, max_s: float) -> None:
    (directory / "wavs").mkdir()
    lines = []
    for index in range(count):
        clip = synthesis.utterance(index, seed, min_s, max_s)
        write_wav(directory / "wavs" / f"{clip.id}.wav", clip.samples, synthesis.SAMPLE_RATE_HZ)
        lines.append(f"{clip.id}|{clip.text}|{clip.text}\n")
    (directory / "metadata.csv").write_text("".join(lines), encoding="utf-8")


def _open(path: Path, sample_rate_hz: int) -> wave.Wave_read:
    try:
        file = wave.open(str(path), "rb")  # noqa: SIM115 - the caller closes it
    except (OSError, EOFError, wave.Error) as error:
        raise InvalidInputError(f"{path}: not a readable WAV file: {error}") from error
    found = (file.getframerate(), file.getnchannels(), file.getsampwidth())
    if found != (sample_rate_hz, 1, 2):
        file.close()
        raise InvalidInputError(
            f"{path}: expected {sample_rate_hz} Hz, 1 channel, 2 bytes a sample; "
            f"got {found[0]} Hz, {found[1]}, {found[2]}; convert the file"
        )
    return file
