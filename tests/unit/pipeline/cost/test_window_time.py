"""What a disturbed run would have taken alone, from hand-made windows."""

from __future__ import annotations

import pytest

from xttsbench.pipeline.cost.window_time import Timed, least_contended, uncontended_s


def test_queueing_counts_only_where_computing_fills_the_time():
    assert uncontended_s(2.0, 1.0, 1.0) == pytest.approx(1.0)
    assert uncontended_s(10.0, 1.0, 9.0) == pytest.approx(1.0)  # nine others had the processor in turn
    assert uncontended_s(2.0, 1.9, 0.1) == pytest.approx(1.9)
    assert uncontended_s(2.0, 0.2, 0.5) == 2.0  # it waits; other threads queue
    assert uncontended_s(2.0, 4.0, 3.0) == 2.0  # several threads compute at once
    assert uncontended_s(0.0, 0.0, 1.0) == 0.0


def test_disturbed_windows_are_left_out():
    calm, other, disturbed = Timed(1, 1.0, 1.0, 0.0), Timed(1, 1.2, 1.2, 0.01), Timed(1, 3.0, 1.0, 2.0)
    assert set(least_contended([calm, disturbed, other, calm])) == {calm, other}
    assert least_contended([disturbed, disturbed]) == [disturbed]


def test_windows_of_unlike_elements_are_all_kept_since_a_share_of_queueing_favours_the_long():
    short, long = Timed(1, 1.0, 0.1, 0.3), Timed(1, 60.0, 0.1, 0.3)
    assert least_contended([short, short, short, long]) == [short, short, short, long]
