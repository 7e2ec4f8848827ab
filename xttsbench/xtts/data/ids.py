"""Ids of clips: which may become the name of a file, and which side of a split each is on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

MAX_ID_BYTES: Final = 240
"""Longest id in UTF-8: file systems allow 255 bytes for a name, and an ending and a draft's prefix are added."""

HELD_OUT: Final = 16
"""One clip in so many is held out where a data set does not say itself which."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,200}").fullmatch


def why_not_an_id(clip_id: str) -> str | None:
    """Return why a clip's id cannot be the name of a file in its data set's directory, or None where it can.

    Ids come from files that others wrote; one like ``../x`` or ``/etc/x`` must not lead out of the directory.
    """
    if _PLAIN(clip_id):
        return None
    if not clip_id:
        return "the id is empty"
    if "/" in clip_id or "\\" in clip_id:
        return f"the id {clip_id!r} is a path; an id is the name of a file in wavs/ without '.wav'"
    if "|" in clip_id:
        return f"the id {clip_id!r} holds a pipe"
    if clip_id in (".", ".."):
        return f"the id {clip_id!r} names a directory"
    if not clip_id.isprintable():
        return f"the id {clip_id!r} holds control characters"
    if len(clip_id.encode()) > MAX_ID_BYTES:
        return f"the id {clip_id[:40]!r}... is longer than {MAX_ID_BYTES} bytes"
    return None


def key_maker(seed: int) -> Callable[[bytes], int]:
    """Return the function that hashes an id (UTF-8) with the seed to 64 bits; the same in every process and version."""
    base = hashlib.blake2b(f"{seed}|".encode(), digest_size=8)

    def key(clip_id: bytes) -> int:
        own = base.copy()
        own.update(clip_id)
        return int.from_bytes(own.digest(), "little")

    return key


def held_out(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return which clips are held out, ``[n]``: those whose key (:func:`key_maker`) is in the lowest sixteenth.

    A clip's side depends on its own id and the seed, so that clips added later move no other; save that of two or more
    clips at least one is on each side.
    """
    out = keys < np.uint64(2**64 // HELD_OUT)
    if len(keys) > 1 and not out.any():
        out[np.argmin(keys)] = True
    elif len(keys) > 1 and out.all():
        out[np.argmax(keys)] = False
    return out
