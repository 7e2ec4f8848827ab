"""Which rules there are, by what they are about; all of them run over the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings import (
    batches,
    caching,
    compilation,
    elements,
    gpu,
    host_work,
    machine,
    parallel_calls,
    prefetching,
    python_functions,
    shuffling,
    source,
    step_modes,
    variation,
)
from xttsbench.findings.rule import Rule
from xttsbench.records.report import Finding

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "In the pipeline": (
        python_functions.python_function,
        parallel_calls.sequential_map,
        parallel_calls.sequential_read,
        parallel_calls.thread_pool,
        parallel_calls.order_sensitive,
        prefetching.no_prefetch,
        prefetching.redundant_prefetch,
        prefetching.oversized_prefetch,
        prefetching.device_prefetch_not_last,
        shuffling.shuffle_fill,
        shuffling.shuffle_after_batch,
        caching.cacheable,
        caching.cache_misuse,
        elements.late_filter,
        elements.per_element_overhead,
        elements.input_bound,
        batches.padding_waste,
        batches.dynamic_shape,
        batches.nan_batch,
    ),
    "In the step": (
        step_modes.eager_step,
        step_modes.launch_bound,
        compilation.retracing,
        compilation.xla_recompilation,
        compilation.partial_batch,
        step_modes.xla_untried,
        step_modes.xla_slower,
        step_modes.precision,
        step_modes.cpu_placement,
        host_work.host_sync,
        host_work.host_stall,
        host_work.python_function_in_step,
    ),
    "In time": (variation.oscillation, variation.stragglers, variation.length_variance, variation.drift),
    "On the machine": (
        gpu.gpu_invisible,
        machine.cpu_quota,
        machine.core_contention,
        gpu.device_copies,
        gpu.gpu_shared,
        gpu.gpu_throttled,
        gpu.exposed_copies,
        gpu.gpu_imbalance,
        gpu.gpu_collectives,
        machine.memory_leak,
        machine.cold_storage,
    ),
    "In the source": (
        source.autotune_arithmetic,
        source.dead_option,
        source.late_runtime_config,
        source.fixed_npy_header,
        source.memory_growth_conflict,
    ),
}
"""The rules by what they are about."""

_GENERAL: Final = ("input-bound",)
"""Their speed-up is that of a cure of everything at once."""
_SEVERITY: Final = {"critical": 0, "warning": 1, "info": 2}


def rules() -> Mapping[str, Rule]:
    """Every rule by its id, in the order of :data:`RULES`."""
    return {rule.id: rule for about in RULES.values() for rule in about}


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
