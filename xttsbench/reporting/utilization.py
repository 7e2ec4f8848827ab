"""Utilization over time, as plots and time lines draw it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.steps import FloatArray


def trace(end_s: npt.ArrayLike, compute_s: npt.ArrayLike, *, window_s: float) -> tuple[FloatArray, FloatArray]:
    """Utilization in windows, from the start of the first step's compute to the end of the last.

    Each step ended at ``end_s``, on any clock, and the accelerator computed for ``compute_s`` up to then; both have the
    shape ``(n,)``.

    Returns:
        The middle of each window on the same clock, and the share of it spent computing (0..1). The last window is as
        wide as what is left. Both are empty where there are no steps.

    Raises:
        ValueError: the width is not positive.
    """
    if window_s <= 0:
        raise ValueError(f"a utilization trace needs a positive window; got {window_s} s")
    ends = np.asarray(end_s, dtype=np.float64)
    computes = np.asarray(compute_s, dtype=np.float64)
    if ends.size == 0:
        return np.empty(0), np.empty(0)
    # Total compute time up to any moment rises only between the start and the end of each step's compute.
    begins = np.maximum(ends - computes, np.concatenate([ends[:1] - computes[:1], ends[:-1]]))
    knots_s = np.column_stack([begins, ends]).ravel()
    busy = np.cumsum(ends - begins)
    busy_s = np.column_stack([np.concatenate([[0.0], busy[:-1]]), busy]).ravel()
    # A remainder of a billionth of a window is rounding, not a window.
    windows = max(1, int(np.ceil((knots_s[-1] - knots_s[0]) / window_s - 1e-9)))
    edges = np.append(knots_s[0] + window_s * np.arange(windows), knots_s[-1])
    widths = np.diff(edges)
    busy_in = np.diff(np.interp(edges, knots_s, busy_s))
    share = np.divide(busy_in, widths, out=np.zeros_like(widths), where=widths > 0)
    return (edges[:-1] + edges[1:]) / 2, np.clip(share, 0, 1)
