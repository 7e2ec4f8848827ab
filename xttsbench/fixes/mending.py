"""What verifying a fix says of the findings that it mends: each finding gets the result of the best fix of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xttsbench.fixes.registry import SPECS
from xttsbench.records.fix import FixResult
from xttsbench.records.fix_set import Fix, FixSet
from xttsbench.records.report import Finding

_INPUT: Final = "input-bound"
"""The rule whose finding every fix of the dataset mends."""


def with_fixes(findings: Sequence[Finding], results: Sequence[FixResult]) -> tuple[Finding, ...]:
    """The findings with the verified speed-up, the equivalence and the patch of the fix that mends each.

    A fix that changes the data is never a speed-up: its finding says that the data are not the same, and no number.
    """
    return tuple(_with(finding, mending(finding, results)) for finding in findings)


def mending(finding: Finding, results: Sequence[FixResult]) -> FixResult | None:
    """The fix that mends a finding: one that was accepted, else one whose data were compared, else one that was not.

    The last two tell by ``why`` what became of them; ``None`` where no fix is for the finding.
    """
    own = [one for one in results if any(_mends(fix, finding.rule) for fix in FixSet.of(one.fixes))]
    accepted = [one for one in own if one.outcome == "accepted"]
    tried = [one for one in own if one.semantics is not None]
    return next(iter((*accepted, *tried, *own)), None)


def _mends(fix: Fix, rule: str) -> bool:
    return not fix.is_of_step if rule == _INPUT else fix.kind in SPECS and rule in SPECS[fix.kind].mends


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
