"""Hand-built WAV files and data sets, with struct alone, so that what reads them is not also what wrote them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xttsbench.shipped import shipped
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.recipe import Recipe, load_recipe
from xttsbench.xtts.wav import write_wav

GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")
CODES = {"uint8": (1, 8), "int16": (1, 16), "int24": (1, 24), "int32": (1, 32), "float32": (3, 32), "float64": (3, 64)}


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def encoded(values: list[float], sample_format: str) -> bytes:
    """Samples in -1..1, interleaved, as a format stores them."""
    if sample_format == "uint8":
        return bytes(round(value * 128) + 128 for value in values)
    if sample_format == "int24":
        return b"".join(round(value * 2**23).to_bytes(3, "little", signed=True) for value in values)
    letter, scale = {"int16": ("h", 2**15), "int32": ("i", 2**31), "float32": ("f", 0), "float64": ("d", 0)}[
        sample_format
    ]
    return struct.pack(f"<{len(values)}{letter}", *(round(value * scale) if scale else value for value in values))


def wav_content(
    values: list[float],
    *,
    sample_format: str = "int16",
    rate: int = 22050,
    channels: int = 1,
    extensible: bool = False,
    before: bytes = b"",
    between: bytes = b"",
    after: bytes = b"",
    data_bytes: int | None = None,
    **fmt: int,
) -> bytes:
    """The bytes of a WAV file; ``fmt`` overrides fields of its header by name, ``data_bytes`` what it says it holds."""
    code, bits = CODES[sample_format]
    block = channels * bits // 8
    fields = {"code": code, "channels": channels, "rate": rate, "byte_rate": rate * block, "block": block, "bits": bits}
    fields |= fmt
    subformat = b""
    if extensible:
        subformat = struct.pack("<HHIH", 22, bits, 0, fields["code"]) + GUID_TAIL
        fields["code"] = 0xFFFE
    header = chunk(b"fmt ", struct.pack("<HHIIHH", *fields.values()) + subformat)
    data = chunk(b"data", encoded(values, sample_format))
    if data_bytes is not None:
        data = data[:4] + struct.pack("<I", data_bytes) + data[8:]
    body = b"WAVE" + before + header + between + data + after
    return b"RIFF" + struct.pack("<I", len(body)) + body


def lay_out(directory: Path, files: dict[str, str | bytes]) -> Path:
    """Write files by their path in a directory."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return directory


@pytest.fixture(scope="session")
def riff_chunk() -> Callable[[bytes, bytes], bytes]:
    return chunk


@pytest.fixture(scope="session")
def wav() -> Callable[..., bytes]:
    return wav_content


@pytest.fixture(scope="session")
def laid_out() -> Callable[[Path, dict[str, str | bytes]], Path]:
    return lay_out


CLIPS = 6


def write_noise(directory: Path, clips: int = CLIPS, seed: int = 0) -> Path:
    """Write clips ``c0``, ``c1``, ... of 0.2 to 0.45 s, each of another length."""
    rng = np.random.default_rng(seed)
    (directory / "wavs").mkdir(parents=True)
    for number in range(clips):
        samples = 0.1 * rng.normal(size=4500 + 977 * (number % 6))
        write_wav(directory / "wavs" / f"c{number}.wav", samples, 22050)
    (directory / "metadata.csv").write_text("".join(f"c{number}|some words\n" for number in range(clips)))
    return directory


@pytest.fixture(scope="session")
def noise() -> Callable[..., Path]:
    return write_noise


@pytest.fixture(scope="session")
def features() -> FeatureSettings:
    return load_recipe(shipped("training", "tiny")).features


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """The directory of a data set."""
    return write_noise(tmp_path / "speech")


@pytest.fixture(scope="session")
def read() -> Callable[[Path], SpeechData]:
    return lambda directory: read_speech_data(directory, sample_rate_hz=22050, split="all")


@pytest.fixture(scope="session")
def tiny() -> Recipe:
    return load_recipe(shipped("training", "tiny"))
