"""The plots of a report, in order, and what each shows; Markdown and HTML refer to them by these names."""

from __future__ import annotations

from typing import Final

CAPTIONS: Final = {
    "attribution": "Where the mean time of a step goes",
    "timeline": "Steps, waits and utilization over time",
    "distribution": "Distribution of the step time",
    "autocorrelation": "Autocorrelation of the step time",
    "periodogram": "Periodogram of the step time",
}
"""Plot's name (``plots/<name>.png`` and ``.svg``) to its caption."""
