"""Several candidates against one baseline, decided together, so that the best of many equal ones is not a winner.

Six blocks give a sign-flip p of 3.1 % at least, so Holm's correction of that test could let nothing pass beside a
second candidate, however large the effect. Multiplicity is therefore controlled on the paired t test, whose p has no
such floor; the sign-flip test and the interval (:func:`xttsbench.analysis.decision.decide`) have to agree for each
candidate by itself. Both conditions together name fewer false winners than either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from xttsbench.analysis.decision import Decision, decide, holm


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision on one candidate among several."""

    decision: Decision
    p_value: float
    """Of the paired t test, with Holm's correction for all candidates."""


def paired_t_p(log_ratios: npt.ArrayLike) -> float:
    """Two-sided p of Student's paired t test that the mean log ratio is zero.

    Raises:
        ValueError: there are fewer than two blocks, or a ratio is not finite.
    """
    ratios = np.asarray(log_ratios, dtype=np.float64).ravel()
    if ratios.size < 2 or not np.isfinite(ratios).all():
        raise ValueError(f"a paired t test needs two finite log ratios at least; got {ratios.tolist()}")
    error = float(ratios.std(ddof=1)) / np.sqrt(ratios.size)
    mean = abs(float(ratios.mean()))
    if error <= 1e-12 * mean or error == 0:
        return 0.0 if mean > 0 else 1.0
    return float(2 * special.stdtr(ratios.size - 1, -mean / error))


def decide_together(
    log_ratios: Mapping[str, Sequence[float]], *, margin: float = 0.02, alpha: float = 0.05, min_blocks: int = 6
) -> dict[str, Decided]:
    """Decide on each candidate; faster and slower only where that holds with Holm's correction.

    Args:
        log_ratios: candidate -> ``log(candidate's speed / baseline's speed)``, one per block, two blocks at least.
        margin: the smallest difference that matters, as a share.
        alpha: level of the tests, for all candidates together.
        min_blocks: fewer leave a candidate inconclusive.

    Raises:
        ValueError: a candidate has fewer than two blocks, or a ratio is not finite.
    """
    adjusted = holm([paired_t_p(ratios) for ratios in log_ratios.values()])
    found = {}
    for (name, ratios), p_value in zip(log_ratios.items(), adjusted, strict=True):
        decision = decide(ratios, margin=margin, alpha=alpha, min_blocks=min_blocks)
        if decision.decision in ("faster", "slower") and p_value >= alpha:
            decision = replace(decision, decision="inconclusive")
        found[name] = Decided(decision, p_value)
    return found
