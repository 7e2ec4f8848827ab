"""The check of the storage that a data set lies on: its own files, cold and warm, against what they are needed for."""

from __future__ import annotations

from typing import Final

from xttsbench.doctor.check import Said, check
from xttsbench.records.machine import Figure, Machine, Pass, Storage
from xttsbench.records.pipeline import size

SEEK_S, BYTES_PER_S = 0.0127, 150e6
"""What one spinning disk takes to reach a file (8.5 ms to seek and 4.2 ms for half a turn at 7,200 a minute, as data
sheets of desktop disks have it), and what it then reads a second. Storage of today that is slower is ill."""
_FAR: Final = 0.5
"""Share of the bytes that must have come from storage for a reading to be called cold."""
_SHORT: Final = 0.75
"""Of what is needed: with less, a step takes a third more."""


@check("storage-speed", "reading the data set's own files, cold and warm")
def storage_speed(machine: Machine) -> Said | None:
    """Slower than a measured run needs, or where none is named than a single spinning disk."""
    found = machine.storage
    if found is None or found.cold is None:
        return None
    figures: dict[str, Figure] = {
        "files": found.files,
        "bytes": found.bytes,
        "needed_bytes_per_s": found.needed_bytes_per_s,
    }
    told = []
    for name, one, files, read in _passes(found):
        figures |= {f"{name}_bytes_per_s": read / one.seconds, f"{name}_stored_share": one.stored_share}
        told.append(f"{name} {_rate(read / one.seconds)} and {files / one.seconds:,.0f} files/s")
    seen = f"{found.files} of {found.listed} files on {found.filesystem or 'an unknown file system'}: {', '.join(told)}"
    cold = found.cold.stored_share is None or found.cold.stored_share >= _FAR
    speed = found.bytes / found.cold.seconds
    best = max(speed, found.parallel_bytes / found.parallel.seconds if found.parallel else 0.0)
    if (need := found.needed_bytes_per_s) is not None:
        seen = f"{seen}; the run needs {_rate(need)}"
        if best >= need:
            return _said(found, seen, figures, cold=cold)
        return Said("broken" if best < _SHORT * need else "note", seen, figures, _remedy(found, speed, best))
    floor_s = found.files * SEEK_S + found.bytes / BYTES_PER_S
    if found.cold.seconds > floor_s:
        share = found.cold.seconds / floor_s
        seen = f"{seen}; {share:.1f} times what a single spinning disk would take for them"
        return Said("broken", seen, figures, _remedy(found, speed, best))
    return _said(found, seen, figures, cold=cold)


def _said(found: Storage, seen: str, figures: dict[str, Figure], *, cold: bool) -> Said:
    """Fast enough, as far as the reading was a cold one."""
    if cold:
        return Said("ok", seen, figures)
    share = 0.0 if found.cold is None or found.cold.stored_share is None else found.cold.stored_share
    return Said(
        "unknown",
        f"{seen}; only {share:.0%} of it came from storage, so how fast a first epoch reads is not known",
        figures,
        "Files in memory (tmpfs), or that another process maps, cannot be made cold; measure after a restart.",
    )


def _passes(found: Storage) -> list[tuple[str, Pass, int, int]]:
    passes = (
        ("cold", found.cold, found.files, found.bytes),
        ("warm", found.warm, found.files, found.bytes),
        ("by 8 at once", found.parallel, found.parallel_files, found.parallel_bytes),
    )
    return [(name, one, files, read) for name, one, files, read in passes if one is not None and one.seconds > 0]


def _rate(speed: float) -> str:
    return f"{size(speed)}/s"


def _remedy(found: Storage, speed: float, best: float) -> str:
    several = "Read several files at once (interleave with num_parallel_calls). " if best > 2 * speed else ""
    small = found.files > 0 and found.bytes / found.files < 1e6
    packed = (
        "Pack small files into large ones (TFRecord, or the packed cache of xttsbench data precompute). "
        if small
        else ""
    )
    return f"{several}{packed}Copy the data to a local disk, or to memory where they fit (cache())."
