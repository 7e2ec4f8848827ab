"""The line that most of a function's time goes through, by stacks that are given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from xttsbench.pipeline.python.slow_line import Lines


def stack(*lines: int):
    """A frame of the user's file at the last of some lines, called from those before it."""
    frame = None
    for line in lines:
        code = SimpleNamespace(co_filename="/home/me/boxes.py")
        frame = SimpleNamespace(f_code=code, f_lineno=line, f_back=frame)
    return frame


@pytest.mark.parametrize(
    ("stacks", "line", "share"),
    [
        ({(3, 7): 15, (3, 8): 15}, 3, 1.0),
        ({(3, 7): 25, (3, 8): 5, (4, 9, 10, 11): 2}, 7, 25 / 32),
        ({(3,): 15, (4,): 15}, None, None),
        ({(3, 7): 10}, None, None),
    ],
)
def test_the_innermost_line_that_has_most_of_the_time_is_told(stacks, line, share) -> None:
    lines = Lines()
    for one, times in stacks.items():
        for _ in range(times):
            lines.add(stack(*one), 0.005)
    found = lines.line
    assert (found and found.location.line) == line
    assert found is None or (found.share, found.ops_share) == (pytest.approx(share), 0.0)
