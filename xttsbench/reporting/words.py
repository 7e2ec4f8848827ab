"""What people read in place of the names that records have: parts of a step, verdicts, whether data are the same."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from xttsbench.reporting.text import plain

PARTS: Final = {
    "dispatch": "launch overhead",
    "contention": "CPU contention",
    "host": "host work",
    "residual": "unattributed",
    "inconclusive": "undecided",
}
"""Part of a step, or verdict, as the records name it, to what it is called; those not here are called what they are."""
LIKELY: Final = {
    "input": "waiting for input",
    "dispatch": "launching ops from Python",
    "compute": "the device's own work",
    "compile": "tracing or compiling again",
    "host": "host work between steps",
    "transfer": "copying batches to the device",
    "contention": "input and step competing for the processors",
}
"""Part of a step to what it is, inside a sentence."""
SAME_DATA: Final = {
    "identical": "yes, bit for bit",
    "rounding": "yes, but for rounding",
    "other order": "yes, in another order",
    "distribution": "random, drawn alike",
    "different": "NO",
    "unknown": "could not be told",
}
"""Whether a fix leaves the data alone, by how they were compared (:data:`xttsbench.records.fix.How`)."""
_KEPT: Final = 3


def part(name: str) -> str:
    """What a part of the step, or a verdict, is called."""
    return PARTS.get(name, name)


def short_path(file: str) -> str:
    """The end of a long path: ``…/my_project/data/load.py``."""
    parts = PurePath(plain(file).replace("\\", "/")).parts
    return "/".join(parts) if len(parts) <= _KEPT else "…/" + "/".join(parts[-_KEPT:])
