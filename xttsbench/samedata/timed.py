"""Whether timed runs were given the same batches: digests of those that both have, number by number. Pure.

That is a check of the whole run, where the fingerprints of the guard are of a part of the data; it tells only where the
original itself gives the same batch under the same number each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.records.elements import Contents

_FORM: Final = 32
"""Bits of a digest below which dtypes and shapes are."""
Digests = dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Timed:
    """What the batches of timed runs show.

    Attributes:
        same: whether those of a fix are the original's; ``None`` where they cannot be compared.
        compared: batches that both have.
        of: batches that the fix was timed on; the original may have been timed on fewer.
        sentence: where they differ first, or why they cannot be compared.
    """

    same: bool | None
    compared: int = 0
    of: int = 0
    sentence: str = ""


Timings = Mapping[Any, Sequence[Contents]]
"""By block, whose seeds are its own."""


def compare_timed(originals: Timings, fixed: Timings, *, bits: bool) -> Timed:
    """Compare the batches of a fix with the original's, process by process.

    Args:
        originals: what runs of the original were given.
        fixed: what the fix gave.
        bits: whether values have to be the same bits; else dtypes and shapes alone are compared.
    """
    of = sum(run.seen for runs in fixed.values() for run in runs)
    twice = False
    known: dict[Any, Digests] = {}
    for block, runs in originals.items():
        for run in runs:
            own = _digests(run, bits=bits)
            before = known.setdefault(block, Digests())
            both = own.keys() & before.keys()
            twice = twice or bool(both)
            if any(own[place] != before[place] for place in both):
                return Timed(None, 0, of, "the original's own batches differ from run to run")
            before.update(own)
    compared = 0
    for block, runs in fixed.items():
        before = known.get(block, {})
        for run in runs:
            own = _digests(run, bits=bits)
            shared = sorted(own.keys() & before.keys())
            compared += len(shared)
            for epoch, batch in shared:
                if own[epoch, batch] != before[epoch, batch]:
                    formed = own[epoch, batch] >> _FORM == before[epoch, batch] >> _FORM
                    what = "other values" if formed else "another dtype or shape"
                    where = f"batch {batch + 1:,} of epoch {epoch + 1}, as it was timed, has {what} than the original's"
                    return Timed(False if twice else None, compared, of, where)
    if not compared:
        return Timed(None, 0, of, "there are none of both")
    return Timed(True, compared, of)


def _digests(run: Contents, *, bits: bool) -> Digests:
    places = zip(run.epochs, run.batches, strict=True)
    return {
        place: digest if bits else digest >> _FORM << _FORM for place, digest in zip(places, run.digests, strict=True)
    }
