r"""How many independent values a sample is worth, where those of one element or of one epoch may share a draw.

The design effect :math:`1 + (m - 1) \rho` of Kish (1965) divides their number, with :math:`\rho` the intraclass
correlation of the ranks (from the analysis of variance) and :math:`m` the typical size of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from xttsbench.samedata.seen import Codes, Floats, Seen

_SURE_F: Final = 20.0
"""Ratio of variances between and within epochs from which on they differ; with two epochs, 1 in 100,000 by chance."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Numbers of one run or several, with the element and the epoch that each row was in."""

    values: Floats
    """Rows x numbers."""
    elements: Codes
    epochs: Codes

    def rows(self, chosen: Codes, less: Floats) -> Sample:
        """Some of the rows, with other numbers taken off."""
        return Sample(self.values[chosen] - less, self.elements[chosen], self.epochs[chosen])

    def worth(self, values: Floats) -> float:
        """How many independent values these, one of each row, are worth."""
        return _worth(values, self.elements)[0]

    def epochs_differ(self, values: Floats) -> bool:
        """Whether whole epochs share what was drawn: then there are no more draws than epochs."""
        return _worth(values, self.epochs)[1] > _SURE_F


def sample(run: Seen, values: Floats) -> Sample:
    """Numbers of the rows of a run."""
    epochs = np.repeat(np.arange(len(run.passes)), [part.rows for part in run.passes]).astype(np.int64)
    # Rows after the last whole round of an endless dataset are in no epoch.
    return Sample(values[: epochs.size], run.elements[: epochs.size], epochs)


def _worth(values: Floats, groups: Codes) -> tuple[float, float]:
    """Independent values, and the ratio of the variances between and within groups."""
    _, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    total, count = values.size, sizes.size
    if total <= count:
        return float(total), 0.0
    if count < 2:
        return 1.0, 0.0
    # Ranks, since one far value must not decide; equal values have equal ones.
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties + 1) / 2)[place]
    means = np.bincount(inverse, ranks) / sizes
    between = float((sizes * (means - ranks.mean()) ** 2).sum() / (count - 1))
    within = float(((ranks - means[inverse]) ** 2).sum() / (total - count))
    typical = (total - float((sizes**2).sum()) / total) / (count - 1)
    spread = between + (typical - 1) * within
    share = min(max((between - within) / spread, 0.0), 1.0) if spread > 0 else 0.0
    ratio = between / within if within > 0 else float("inf") if between > 0 else 0.0
    return total / (1 + (typical - 1) * share), ratio
