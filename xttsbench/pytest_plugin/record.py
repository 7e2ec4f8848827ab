"""What a test leaves in ``extra_info`` of pytest-benchmark's JSON: plain values, ``null`` with a reason beside it."""

from __future__ import annotations

from typing import Any, Final

import xttsbench
from xttsbench.pytest_plugin.measuring import Asked, Measured
from xttsbench.records.base import Estimate

_NOT_ASKED: Final = "the target was measured and not diagnosed; ask with diagnose=True"
_OF_ARM: Final = ("throughput_per_s", "input_wait_fraction", "utilization", "utilization_of", "cv", "steps")
_OF_VERDICT: Final = ("step_time_s", "step_time_median_s", "step_time_p95_s")


def extra_info(asked: Asked, measured: Measured) -> dict[str, Any]:
    """The record of a measurement; its intervals are the report's, over processes and blocks of steps.

    ``unmeasured`` has a reason for each ``None``. ``per_process`` is what a later run is compared with.
    """
    report, arm = measured.report, measured.report.arms[0]
    told = measured.diagnosis or report
    found: dict[str, Any] = {
        "xttsbench_version": xttsbench.__version__,
        "run": str(measured.directory),
        "target": asked.target,
        "kwargs": dict(asked.kwargs),
        "accelerator": {"kind": report.accelerator["kind"], "label": report.accelerator["label"]},
        "fingerprint": report.environment.get("fingerprint"),
        "verdict": {
            "bottleneck": told.verdict.bottleneck,
            "confidence": told.verdict.confidence,
            "summary": told.verdict.summary,
            "diagnosed": measured.diagnosis is not None,
        },
        **{name: _plain(getattr(report.verdict, name)) for name in _OF_VERDICT},
        **{name: _plain(getattr(arm, name)) for name in _OF_ARM},
        "processes": arm.blocks,
        "warm_up_steps_cut": report.warm_up.steps_cut,
        "steady_state": report.warm_up.steady_state,
        "per_process": {name: list(values) or None for name, values in measured.per_process.items()},
        "findings": None,
        "gates": [],
        "warnings": list(report.warnings),
    }
    reasons = {name: report.unmeasured.get(f"verdict.{name}") for name in _OF_VERDICT}
    reasons |= {name: report.unmeasured.get(f"arms.0.{name}") for name in _OF_ARM}
    reasons["utilization_of"] = reasons["utilization"]
    if measured.diagnosis is None:
        reasons["findings"] = _NOT_ASKED
    else:
        found["findings"] = [
            finding.model_dump(include={"rule", "severity", "limiting", "title", "remedy"})
            for finding in measured.diagnosis.findings
        ]
        found["warnings"] += measured.diagnosis.warnings
    found["utilization_of"] = found["utilization_of"] or None
    found["unmeasured"] = {name: reasons.get(name) or "not known" for name, value in found.items() if value is None}
    return found


def _plain(value: object) -> object:
    return value.model_dump() if isinstance(value, Estimate) else value
