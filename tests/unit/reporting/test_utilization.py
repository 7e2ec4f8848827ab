"""Utilization over time: shares of windows that add up to the time of computing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.reporting.utilization import trace


def test_a_trace_by_hand() -> None:
    # Busy from 0 to 1, 3 to 4, 4 to 6: in windows of two seconds a half, a half, all.
    middle_s, share = trace([1.0, 4.0, 6.0], [1.0, 1.0, 2.0], window_s=2)
    assert middle_s.tolist() == [1, 3, 5]
    assert share == pytest.approx([0.5, 0.5, 1])


def test_no_steps_no_trace() -> None:
    middle_s, share = trace([], [], window_s=1)
    assert middle_s.size == share.size == 0
    with pytest.raises(ValueError, match="positive window"):
        trace([1.0], [1.0], window_s=0)


@given(
    st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=30),
    st.floats(0.05, 5),
    st.floats(0, 1e4),
)
def test_windows_add_up_to_the_compute_time(steps: list[tuple[float, float]], window_s: float, start_s: float) -> None:
    wall_s = np.array([wall for wall, _ in steps])
    compute_s = wall_s * [share for _, share in steps]
    end_s = start_s + np.cumsum(wall_s)
    middle_s, share = trace(end_s, compute_s, window_s=window_s)
    edges = np.concatenate([middle_s[:-1] - window_s / 2, middle_s[-1:] * 2 - end_s[-1], end_s[-1:]])
    assert np.sum(share * np.diff(edges)) == pytest.approx(compute_s.sum(), abs=1e-6)
    assert ((share >= 0) & (share <= 1)).all()
