"""What a line reads and its loop changes from round to round."""

from __future__ import annotations

import textwrap

import pytest

from xttsbench.pipeline.definitions import tree_of
from xttsbench.pipeline.python.rounds import carried

_CUT = """
def cut(most, at, *sequences):
    while True:
        lengths = [len(one) for one in sequences]
        if sum(lengths) <= most:
            return sequences
        longest = np.argmax(lengths)  #
        sequences[longest].pop(at)
"""
_ITEMS = """
def batches(paths):
    while True:
        rows, number = [], 0
        for path, boxes in paths:
            boxes = boxes / 255
            number += 1
            rows.append(match(boxes, number))  #
            if len(rows) == 8:
                yield rows
                rows = []
"""
_STACKED = """
def batches(self, rows):
    for row in rows:
        self.kept.append(row)
        if len(self.kept) == 8:
            yield self.stack(self.kept)  #
"""
_WALK = """
def walk(state):
    for _ in range(9):
        state = step(state)  #
        yield state
"""


@pytest.mark.parametrize(
    ("source", "names"),
    [(_CUT, ("lengths",)), (_ITEMS, ()), (_STACKED, ("self.kept",)), (_WALK, ("state",)), ("a = f(b)  #", ())],
)
def test_what_hangs_on_the_rounds_before_is_named(tmp_path, source, names) -> None:
    file = tmp_path / "code.py"
    file.write_text(textwrap.dedent(source))
    line = next(number for number, text in enumerate(source.splitlines(), 1) if text.endswith("#"))
    assert carried(tree_of(str(file)), line) == names
