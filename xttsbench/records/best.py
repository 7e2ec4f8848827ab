"""``best.yaml``: the configuration that won, the evidence for it, and where it was found."""

from __future__ import annotations

from typing import Any

from xttsbench.records.base import SCHEMA_VERSION, Estimate, Record


class Fingerprint(Record):
    """Where a winner was found; it holds where all of this is the same."""

    environment: str
    """Of machine and versions together; the fields below say which of them differs."""
    cpu: str | None = None
    cpus: float | None = None
    """Processors that a process may use."""
    gpus: tuple[str, ...] = ()
    gpu_driver: str | None = None
    tensorflow: str | None = None
    code: str | None = None
    data: str | None = None


class Best(Record):
    """The content of ``best.yaml``; also what a report says of a sweep's winner."""

    schema_version: int = SCHEMA_VERSION
    run: str
    """Directory of the run."""
    target: str | None = None
    workload: str | None = None
    """``xtts`` in place of a target."""
    arm: str
    config: dict[str, Any]
    """All keyword arguments that were set: the base and what the arm changes of it."""
    proven: bool
    """Shown to be faster than the baseline, in two processes at least."""
    decided: bool
    """Whether the question is answered; a baseline may be kept for want of evidence."""
    why: str
    """The decision in one sentence."""
    effect: Estimate | None
    """Speed against the baseline; ``None`` where the baseline was kept."""
    baseline: dict[str, Any]
    """The baseline's id and configuration."""
    blocks: int
    """Processes of each side that this rests on."""
    accelerator: dict[str, Any]
    """``kind`` (real or emulated), ``label`` and the source of recorded step times."""
    steps_per_trial: int
    tied_with: tuple[str, ...] = ()
    smallest_visible_effect: float | None = None
    fingerprint: Fingerprint
    xttsbench_version: str
    rounds: int = 0
    """Paired rounds of these processes."""
    evidence: float | None = None
    """The e-value of the winner; ``None`` where the baseline was kept."""
