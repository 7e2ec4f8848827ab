"""Rates by hand in place of trials, for the rules of sweeps."""

from __future__ import annotations

import math
from collections.abc import Mapping

from xttsbench.analysis.evidence import paired
from xttsbench.comparison.sweep import Seen

WOBBLE = (0.01, -0.01, 0.003, -0.003, 0.006, -0.006, 0.008, -0.008)


def seen(rates: Mapping[str, list[float]], gone: Mapping[str, str] | None = None) -> Seen:
    """Blocks of one round each, from each arm's rates; ``nan`` is a block that it was not in."""

    def versus(over: str, under: str):
        pairs = zip(rates.get(over, []), rates.get(under, []), strict=False)
        ratios = [math.log(a / b) for a, b in pairs if not math.isnan(a + b)]
        return paired(ratios) if ratios else None

    processes = {name: sum(not math.isnan(rate) for rate in own) for name, own in rates.items()}
    return Seen(versus, gone or {}, processes, max(map(len, rates.values()), default=0))
