"""Phrases for trials: what each does and what for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xttsbench.fixes.registry import said
from xttsbench.records.fix import FixSet
from xttsbench.records.trial import TrialKind, TrialSpec


def described(spec: TrialSpec) -> str:
    """Phrase for a trial and its purpose: ``the input pipeline op by op, to see what each op costs``."""
    fixes = said(FixSet.parse(spec.fix)) if spec.fix else ""
    if spec.kind in ("arm", "elements"):
        what = "the patched source" if spec.patched and not fixes else fixes or (spec.arm or "the original")
        why = "to see whether the data stay the same" if spec.kind == "elements" else "to see what it gives"
        return f"{what}, {why}"
    if spec.also:
        return f"{_WHAT[spec.kind]}, and {_WHAT[spec.also].removeprefix('the step ')}"
    again = "; once more in a fresh process" if spec.block and spec.kind == "ladder" else ""
    return f"{_WHAT[spec.kind]}{again}"


_WHAT: Final[Mapping[TrialKind, str]] = {
    "ladder": "the target as it is, its input alone, its step alone, to see where the time goes",
    "pipeline": "the input pipeline op by op, to see what each op costs",
    "eager": "the step op by op from Python, to see what launching the ops costs",
    "graph": "the step as one graph, to see what launching the ops costs",
    "xla": "the step through XLA, to see whether it is faster",
    "precision": "the step in other precisions, to see whether it is faster",
    "batch": "the step on halves of the batches, to see what does not grow with them",
    "script": "the script, unchanged and watched, to see where the time goes",
    "service": "a batch on its way through the tf.data service, to see what that costs",
    "workers": "the input on workers of the tf.data service, to see what several give",
    "parity": "the batches of each configuration, to see whether they are the same",
}
