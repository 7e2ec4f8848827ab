"""Starvation of a training run: its waiting for data, with the first thing that should be changed.

No experiment is made while a run goes on, but each way of making batches has its own known cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.analysis.attribution import THRESHOLD
from xttsbench.records.report import Finding

STARVING: Final = THRESHOLD
"""Share of the time that is waiting for data, above which training starves: the threshold of a verdict."""
_AGAIN_S: Final = 120.0  # Between two sentences on the same state
_PACK: Final = "take the loader packed, whose features 'xttsbench data precompute' makes once"


def explain(config: Mapping[str, Any], *, overlap: bool, input_workers: int, share: float) -> Finding:
    """The finding that explains the waiting best.

    The configuration has the keys of ``best.yaml``; the share is of the time that is waiting for data, 0..1.
    """
    rule, cause, remedy = _cause(str(config.get("loader")), config, overlap, input_workers)
    return Finding(
        rule=rule,
        severity="warning",
        limiting=share >= STARVING,
        title=f"{share:.0%} of the time is waiting for data: {cause}",
        evidence={
            "wait_share": share,
            "loader": str(config.get("loader")),
            "input_workers": input_workers,
            **{key: config[key] for key in ("prefetch", "workers", "threads") if key in config},
        },
        remedy=f"{remedy[0].upper()}{remedy[1:]}.",
    )


def _cause(loader: str, config: Mapping[str, Any], overlap: bool, input_workers: int) -> tuple[str, str, str]:
    if not overlap:
        return "no-prefetch", "no batch is made while a step runs (--no-overlap)", "leave out --no-overlap"
    if config.get("prefetch") == 0 and not config.get("device_prefetch"):
        return "no-prefetch", "no batch is made ahead", "set prefetch to -1, where tf.data decides"
    if loader.startswith("numpy_") and not input_workers:
        cause = f"the loader {loader} makes batches in Python, which holds the interpreter's lock"
        return "python-function", cause, f"{_PACK}, or give it processes of its own (--input-workers 2)"
    if loader in ("numpy_wav", "tf_wav") and not config.get("cache"):
        return "cacheable", f"the loader {loader} computes the features of each clip anew in every epoch", _PACK
    if config.get("workers") == 0:
        return "sequential-map", "one batch is made after the other", "set workers to -1, where tf.data decides"
    if loader in ("numpy_cache", "tf_cache"):
        return "per-element-overhead", f"the loader {loader} reads one file for each clip", _PACK
    cause = "nothing in the configuration explains it: slow storage, or processors that others use"
    return "input-bound", cause, "measure the input alone: 'xttsbench diagnose'"


@dataclass(frozen=True, slots=True)
class Starvation:
    """Whether training starves, and when that was last said; seconds are on any one clock."""

    said_s: float | None = None
    """``None`` where it does not starve."""

    def after(self, finding: Finding, share: float, now_s: float) -> tuple[Starvation, str | None]:
        """The state after an interval, and a sentence where there is something new to say.

        The share is of the interval that was waiting for data, 0..1.
        """
        if share < STARVING:
            over = f"Training waits no more: {share:.0%} of the last interval." if self.said_s is not None else None
            return Starvation(), over
        if self.said_s is not None and now_s - self.said_s < _AGAIN_S:
            return self, None
        return Starvation(now_s), f"Training starves: {finding.title} [{finding.rule}]. {finding.remedy}"
