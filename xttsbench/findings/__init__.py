"""Registry of the rules, by topic; all of them run over the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.findings import (
    cache,
    compilation,
    compute,
    elements,
    gpu,
    host,
    launch,
    memory,
    own_batches,
    parallel,
    prefetch,
    processors,
    python_function,
    shuffle,
    source,
    variation,
)
from xttsbench.findings.rule import Rule
from xttsbench.records.report import Finding

MODULES: Final[Mapping[str, tuple[ModuleType, ...]]] = {
    "In the pipeline": (own_batches, python_function, parallel, prefetch, shuffle, cache, elements),
    "In the step": (launch, compilation, compute, host),
    "In time": (variation,),
    "On the machine": (processors, gpu, memory),
    "In the source": (source,),
}
"""Modules of this package that define the rules, by topic."""
RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    about: tuple(found for module in modules for found in vars(module).values() if isinstance(found, Rule))
    for about, modules in MODULES.items()
}
"""The rules by what they are about."""

_GENERAL: Final = {**{found.id: 1 for found in RULES["In time"]}, "input-bound": 2}
"""Rules that say when or where time goes, below those that say what to mend there; the more general, the lower. The
last one's speed-up is that of a cure of everything at once."""
_SEVERITY: Final = {"critical": 0, "warning": 1, "info": 2}


def rules() -> Mapping[str, Rule]:
    """Every rule by its id, in the order of :data:`RULES`."""
    return {rule.id: rule for about in RULES.values() for rule in about}


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings of all rules: limiting ones first, then by predicted speed-up, then by severity.

    Before all of them stands what is worse than slow, such as memory that runs out. What only says where the time goes
    stands below the findings that say what to mend there.
    """
    return tuple(sorted((found for rule in rules().values() for found in rule(evidence)), key=worth))


_WORSE: Final = ("memory-leak", "nan-batch", "cache-misuse", "early-workers", "between-fits")


def worse_than_slow(finding: Finding) -> bool:
    """Whether a finding is of what ends a run, makes it worthless or passes beside its steps, however fast they are."""
    return finding.rule in _WORSE and finding.severity == "critical"


def worth(finding: Finding) -> tuple[bool, bool, int, float, int]:
    """Sort key of a finding, of what its fix gave where that was verified."""
    speedup = finding.verified_speedup or finding.predicted_speedup
    worth = speedup.estimate if speedup else 0.0
    general = _GENERAL.get(finding.rule, 0)
    return not worse_than_slow(finding), not finding.limiting, general, -worth, _SEVERITY[finding.severity]
