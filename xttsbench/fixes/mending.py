"""What verifying a fix says of the findings that it mends: each finding gets the result of the best fix of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from xttsbench.records.fix import FixResult, is_of_step, kind_of
from xttsbench.records.report import Finding

CURES: Final[Mapping[str, tuple[str, ...]]] = {
    "sequential-map": ("parallel-map",),
    "sequential-read": ("parallel-interleave",),
    "no-prefetch": ("prefetch",),
    "redundant-prefetch": ("drop-prefetch",),
    "oversized-prefetch": ("buffer",),
    "thread-pool": ("thread-pool",),
    "cacheable": ("cache", "cache-file"),
    "cache-misuse": ("cache", "cache-file"),
    "late-filter": ("filter-first",),
    "per-element-overhead": ("batch-first", "rebatch"),
    "order-sensitive": ("any-order",),
    "eager-step": ("step:graph", "step:xla"),
    "retracing": ("step:graph", "step:buckets"),
    "xla-recompilation": ("step:buckets", "step:graph"),
    "xla-untried": ("step:xla",),
    "dynamic-shape": ("step:buckets",),
    "python-function": ("processes", "thread-pool", "parallel-map", "cache", "cache-file"),
    "input-bound": (),
}
"""Rule -> kinds of fixes that mend what it sees; of ``input-bound`` that is every fix of the dataset."""


def with_fixes(findings: Sequence[Finding], results: Sequence[FixResult]) -> tuple[Finding, ...]:
    """The findings with the verified speed-up, the equivalence and the patch of the fix that mends each.

    A fix that changes the data is never a speed-up: its finding says that the data are not the same, and no number.
    """
    return tuple(_with(finding, mending(finding, results)) for finding in findings)


def mending(finding: Finding, results: Sequence[FixResult]) -> FixResult | None:
    """The fix that mends a finding: one that was accepted, else one whose data were compared, else one that was not.

    The last two tell by ``why`` what became of them; ``None`` where no fix is for the finding.
    """
    kinds = CURES.get(finding.rule)
    if kinds is None:
        return None
    own = [one for one in results if _mends(one, kinds)]
    accepted = [one for one in own if one.outcome == "accepted"]
    tried = [one for one in own if one.semantics is not None]
    return next(iter((*accepted, *tried, *own)), None)


def _mends(result: FixResult, kinds: Sequence[str]) -> bool:
    found = {kind_of(part) for part in result.fixes}
    return bool(found & set(kinds)) if kinds else any(not is_of_step(kind) for kind in found)


def _with(finding: Finding, fix: FixResult | None) -> Finding:
    if fix is None:
        return finding
    same = fix.semantics.equivalent if fix.semantics else None
    return finding.model_copy(
        update={
            "verified_speedup": fix.verified_speedup if same else None,
            "equivalent": same,
            "patch": fix.patch.diff if fix.patch and fix.patch.diff else finding.patch,
        }
    )
