"""What a test demands, checked, and held against what was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from xttsbench.errors import UsageError
from xttsbench.pytest_plugin.gates import Gate, limit, not_compared, regression
from xttsbench.pytest_plugin.saved import Saved
from xttsbench.pytest_plugin.share import share
from xttsbench.records.report import Report, Severity

_SEVERITIES: Final = get_args(Severity)


@dataclass(frozen=True)
class Demands:
    """The limits of a test; ``None`` where there is none."""

    max_regression: float | None = None
    min_throughput: float | None = None
    max_step_time_s: float | None = None
    min_utilization: float | None = None
    fail_on: Severity | None = None

    @classmethod
    def of(
        cls,
        diagnose: bool,
        max_regression: float | str | None,
        min_throughput: float | None,
        max_step_time_s: float | None,
        min_utilization: float | None,
        fail_on: Severity | None,
    ) -> Demands:
        """The limits as a test gives them.

        Raises:
            UsageError: one of them cannot be.
        """
        if fail_on is not None and fail_on not in _SEVERITIES:
            raise UsageError(f"xttsbench_benchmark: fail_on is one of {', '.join(_SEVERITIES)}; got {fail_on!r}.")
        if fail_on is not None and not diagnose:
            raise UsageError("xttsbench_benchmark: fail_on is about findings, which diagnose=True alone gives.")
        try:
            most = None if max_regression is None else share(max_regression, "max_regression")
        except ValueError as error:
            raise UsageError(f"xttsbench_benchmark: {error}.") from error
        return cls(most, min_throughput, max_step_time_s, min_utilization, fail_on)


def judged(demands: Demands, found: Mapping[str, Any], saved: Saved | str | None, session_noise: float) -> list[Gate]:
    """Every limit held against what was measured.

    Args:
        demands: the limits.
        found: the ``extra_info`` of this run.
        saved: the run to compare with, or why there is none (see :func:`xttsbench.pytest_plugin.saved.saved_run`).
        session_noise: what two sessions on one machine differ by, as a share.
    """
    own = {name: values or [] for name, values in found["per_process"].items()}
    gates = []
    if demands.max_regression is not None:
        gates.append(_against(saved, found, demands.max_regression, session_noise))
    if (floor := demands.min_throughput) is not None:
        gates.append(limit("min_throughput", own["throughput_per_s"], unit=" samples/s", floor=floor))
    if (ceiling := demands.max_step_time_s) is not None:
        gates.append(limit("max_step_time_s", own["step_time_s"], unit=" s", ceiling=ceiling))
    if (floor := demands.min_utilization) is not None:
        gates.append(limit("min_utilization", own["utilization"], floor=floor))
    return gates


def too_severe(demands: Demands, diagnosis: Report | None) -> list[str]:
    """The limiting findings that fail a test, one sentence each."""
    if demands.fail_on is None or diagnosis is None:
        return []
    least = _SEVERITIES.index(demands.fail_on)
    return [
        f"fail_on={demands.fail_on!r}: {finding.rule} ({finding.severity}): {finding.title}"
        for finding in diagnosis.findings
        if finding.limiting and _SEVERITIES.index(finding.severity) >= least
    ]


def _against(saved: Saved | str | None, found: Mapping[str, Any], most: float, session_noise: float) -> Gate:
    """The gate against a saved run, unless that one was measured on something else."""
    if saved is None:
        saved = "no saved run is named; give --benchmark-compare or --xttsbench-baseline FILE"
    if isinstance(saved, str):
        return not_compared(most, saved)
    then = saved.extra_info
    for name, what in (("fingerprint", "machine or TensorFlow"), ("accelerator", "accelerator")):
        if then.get(name) != found[name]:
            return not_compared(
                most, f"{saved.source} was measured on another {what} ({then.get(name)}, here {found[name]})"
            )
    before = (then.get("per_process") or {}).get("throughput_per_s")
    if not isinstance(before, list) or not all(isinstance(rate, float) and rate > 0 for rate in before):
        return not_compared(most, f"{saved.source} does not hold the throughput of each process")
    now = found["per_process"]["throughput_per_s"] or []
    return regression(now, before, most=most, source=saved.source, session_noise=session_noise)
