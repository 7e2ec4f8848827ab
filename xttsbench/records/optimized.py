"""``optimized.yaml``: fixes that were verified, to be applied again later without looking for them."""

from __future__ import annotations

from typing import Any

from xttsbench.records.base import SCHEMA_VERSION, Estimate, Record
from xttsbench.records.elements import GraphIdentity


class Optimized(Record):
    """What a run of ``xttsbench optimize`` found, as far as another process needs it."""

    schema_version: int = SCHEMA_VERSION
    run: str
    """Directory of the run."""
    target: str
    kwargs: dict[str, Any] = {}
    fixes: tuple[str, ...]
    """In the order in which they are applied; empty where nothing was better than the original."""
    identity: GraphIdentity | None
    """Of the pipeline as it was, and must be again."""
    speedup: Estimate | None
    """Verified, against the original."""
    equivalent: bool | None
    data: str
    """What was found about the data, in a sentence."""
    proven: bool
    """True only where the interval clears 1 and the data are the same."""
    blocks: int = 0
    accelerator: str = "real device"
    cache_directory: str | None = None
    """Where a cache on disk is kept."""
    fingerprint: str = ""
    """Of the machine and the versions that it was measured on."""
    xttsbench_version: str = ""
