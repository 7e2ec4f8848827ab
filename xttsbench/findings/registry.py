"""All rules run over the evidence, and their findings ordered by what the fix is worth."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.machine import cold_storage as storage
from xttsbench.findings.machine import cores as machine
from xttsbench.findings.machine import gpu
from xttsbench.findings.machine import memory_leak as memory
from xttsbench.findings.pipeline import batches
from xttsbench.findings.pipeline import input_bound as pipeline
from xttsbench.findings.source import source
from xttsbench.findings.step import host as step
from xttsbench.findings.time import variation as time
from xttsbench.records.report import Finding

RULES: Final = (
    *pipeline.RULES,
    *batches.RULES,
    *step.RULES,
    *time.RULES,
    *machine.RULES,
    *gpu.RULES,
    *memory.RULES,
    *storage.RULES,
    *source.RULES,
)

_GENERAL: Final = ("input-bound",)
"""Their speed-up is that of a cure of everything at once."""
_SEVERITY: Final = {"critical": 0, "warning": 1, "info": 2}


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings of all rules: limiting ones first, then by predicted speed-up, then by severity.

    What only says where the time goes stands below the findings that say what to mend there.
    """
    findings = [_measured(finding) for rule in RULES for finding in rule(evidence)]
    return tuple(sorted(findings, key=_worth))


def _measured(finding: Finding) -> Finding:
    """The finding without the numbers that were not measured: evidence is what there is."""
    evidence = {name: value for name, value in finding.evidence.items() if value is not None}
    return finding.model_copy(update={"evidence": evidence})


def _worth(finding: Finding) -> tuple[bool, bool, float, int]:
    speedup = finding.verified_speedup or finding.predicted_speedup
    worth = speedup.estimate if speedup else 0.0
    return not finding.limiting, finding.rule in _GENERAL, -worth, _SEVERITY[finding.severity]
