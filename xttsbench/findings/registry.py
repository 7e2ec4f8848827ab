"""Which rules there are, as data; all of them run over the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Rule
from xttsbench.records.report import Finding

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "In the pipeline": (
        "pipeline.python_function",
        "pipeline.sequential_map",
        "pipeline.sequential_read",
        "pipeline.thread_pool",
        "pipeline.order_sensitive",
        "pipeline.no_prefetch",
        "pipeline.redundant_prefetch",
        "pipeline.oversized_prefetch",
        "pipeline.device_prefetch_not_last",
        "pipeline.shuffle_fill",
        "pipeline.shuffle_after_batch",
        "pipeline.cacheable",
        "pipeline.cache_misuse",
        "pipeline.late_filter",
        "pipeline.per_element_overhead",
        "pipeline.input_bound",
        "pipeline.padding_waste",
        "pipeline.dynamic_shape",
        "pipeline.nan_batch",
    ),
    "In the step": (
        "step.eager_step",
        "step.launch_bound",
        "step.retracing",
        "step.xla_recompilation",
        "step.partial_batch",
        "step.xla",
        "step.precision",
        "step.cpu_placement",
        "step.host_sync",
        "step.host_stall",
        "step.python_function_in_step",
    ),
    "In time": ("time.oscillation", "time.stragglers", "time.length_variance", "time.drift"),
    "On the machine": (
        "machine.gpu_invisible",
        "machine.cpu_quota",
        "machine.core_contention",
        "machine.device_copies",
        "machine.gpu",
        "machine.gpu_activity",
        "machine.memory_leak",
        "machine.cold_storage",
    ),
    "In the source": ("source",),
}
"""Where the rules are, by what they are about: modules of this package, each with the rules that it defines."""

_GENERAL: Final = ("input-bound",)
"""Their speed-up is that of a cure of everything at once."""
_SEVERITY: Final = {"critical": 0, "warning": 1, "info": 2}


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule by its id, in the order of :data:`MODULES`."""
    return {rule.id: rule for about in MODULES for rule in rules_about(about)}


def rules_about(about: str) -> Iterator[Rule]:
    """The rules of one heading of :data:`MODULES`."""
    for name in MODULES[about]:
        module = import_module(f"xttsbench.findings.{name}")
        yield from (found for found in vars(module).values() if isinstance(found, Rule))


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings of all rules: limiting ones first, then by predicted speed-up, then by severity.

    What only says where the time goes stands below the findings that say what to mend there.
    """
    return tuple(sorted((_measured(found) for rule in rules().values() for found in rule(evidence)), key=_worth))


def _measured(finding: Finding) -> Finding:
    """The finding without the numbers that were not measured: evidence is what there is."""
    evidence = {name: value for name, value in finding.evidence.items() if value is not None}
    return finding.model_copy(update={"evidence": evidence})


def _worth(finding: Finding) -> tuple[bool, bool, float, int]:
    speedup = finding.verified_speedup or finding.predicted_speedup
    worth = speedup.estimate if speedup else 0.0
    return not finding.limiting, finding.rule in _GENERAL, -worth, _SEVERITY[finding.severity]
