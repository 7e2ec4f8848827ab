from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.reporting.bar import cells, visible, widths
from xttsbench.reporting.palette import PART_COLORS
from xttsbench.reporting.sections.report import Part


def parts(**shares: float) -> tuple[Part, ...]:
    return tuple(Part(name, "", shares.get(name, 0.0), "") for name in PART_COLORS)


def test_the_residual_is_always_listed_and_nothing_is_not() -> None:
    assert [part.name for part in visible(parts(input=0.6, compute=0.4))] == ["input", "compute", "residual"]


def test_a_negative_residual_takes_no_width() -> None:
    assert dict(widths(parts(dispatch=0.84, compute=0.21, residual=-0.05))) == pytest.approx(
        {"dispatch": 0.8, "compute": 0.2}
    )


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=8), st.integers(1, 200))
def test_the_cells_fill_the_bar_and_none_is_a_cell_off_its_share(shares: list[float], width: int) -> None:
    drawn = parts(**dict(zip(PART_COLORS, shares, strict=False)))
    counts = dict(cells(drawn, width))
    assert sum(counts.values()) == width
    for name, share in widths(drawn):
        assert abs(counts.get(name, 0) - share * width) < 1
