"""Accelerator utilization as MLPerf Storage defines it, over the run and over time.

The share of the wall time in which the (real or emulated) accelerator computed; 90 % is MLPerf Storage's pass mark for
a vision model. An emulated accelerator has to be labelled so by whoever shows the number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def accelerator_utilization(compute_s: npt.ArrayLike, wall_s: npt.ArrayLike) -> float:
    """Compute time over wall time, 0..1 (MLPerf Storage rules, "accelerator utilization").

    Both are seconds per step, shape ``(n,)``, or totals. The first step is the caller's to leave out.

    Raises:
        ValueError: there is no wall time.
    """
    total_s = float(np.sum(np.asarray(wall_s, dtype=np.float64)))
    if total_s <= 0:
        raise ValueError(f"accelerator utilization needs a positive wall time; got {total_s} s")
    return float(np.sum(np.asarray(compute_s, dtype=np.float64))) / total_s


def trace(end_s: npt.ArrayLike, compute_s: npt.ArrayLike, *, window_s: float) -> tuple[FloatArray, FloatArray]:
    """Utilization in windows, from the start of the first step's compute to the end of the last.

    Args:
        end_s: when each step ended, seconds on any clock, ascending, shape ``(n,)``.
        compute_s: how long the accelerator computed in it, up to its end, shape ``(n,)``.
        window_s: width of a window.

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
