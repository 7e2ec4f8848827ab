"""The rule `length-variance`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule

_LENGTH_SHARE: Final = 0.50


@rule(
    "length-variance",
    evidence="share of the variance, seconds for each element, p-value",
    threshold="half of the variance at p < 1 %; never a bottleneck",
    remedy="Not a fault. For steadier steps, batch by a token budget within buckets of length.",
    false_alarms="none known",
)
def length_variance(evidence: Evidence) -> Findings:
    """Variation that the length of the batches explains: not a fault of the loop."""
    length = evidence.explanation.length if evidence.explanation else None
    if length is None or length.p_value >= 0.01 or length.share < _LENGTH_SHARE:
        return
    yield length_variance.finding(
        f"the length of batches explains {length.share:.0%} of the variation of step times",
        {
            "variance_share": length.share,
            "slope_s_per_element": length.slope_s_per_element,
            "p_value": length.p_value,
        },
    )
