"""What a file that is not a usable WAV file looks like, so that an error can say so."""

from __future__ import annotations

from typing import Final

COMPRESSED: Final = {
    0x0002: "Microsoft ADPCM",
    0x0006: "A-law",
    0x0007: "mu-law",
    0x0011: "IMA ADPCM",
    0x0031: "GSM 6.10",
    0x0050: "MPEG audio",
    0x0055: "MP3",
    0x00FF: "AAC",
}
"""Formats that a WAV file may hold besides PCM and floating point, by the code in its ``fmt `` chunk."""

_MAGIC: Final = (
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"ID3", "MP3"),
    (0, b"RIFX", "a big-endian WAV file (RIFX)"),
    (0, b"RF64", "a 64-bit WAV file (RF64)"),
    (0, b"BW64", "a 64-bit WAV file (BW64)"),
    (0, b"riff", "a Wave64 file"),
    (0, b"FORM", "AIFF"),
    (0, b".snd", "AU"),
    (0, b"NIST_1A", "NIST SPHERE"),
    (0, b"#!AMR", "AMR"),
    (0, b"\x1aE\xdf\xa3", "Matroska or WebM"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"version https://git-lfs", "a Git LFS pointer, whose file was not fetched"),
    (0, b"<", "an HTML or XML page"),
    (4, b"ftyp", "MP4 or M4A"),
    (8, b"AVI ", "an AVI file"),
)


def kind_of(head: bytes, file_bytes: int) -> str:
    """Return in words what the first bytes of a file look like."""
    if not file_bytes:
        return "it is empty"
    for offset, magic, name in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return f"it looks like {name}"
    # Eleven bits of synchronisation, then the version, the layer (not 00) and the rate (not 11) of MPEG audio; AAC in
    # ADTS has the layer 00.
    if len(head) >= 3 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x18 != 0x08:
        return "it looks like MP3" if head[1] & 0x06 else "it looks like AAC"
    if not any(head[:64]):
        return "it begins with zeros"
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head[:64]):
        return f"it looks like text, {head[:24].decode('ascii')!r}"
    return f"it begins with {head[:4]!r}"
