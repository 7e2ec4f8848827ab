"""The columns of a step have one place: their names, their order and their meanings are those of the row."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from xttsbench.analysis.steps import Steps, steps_of
from xttsbench.records.step_row import COLUMNS, StepRow, absent
from xttsbench.records.trial import Segment


def test_the_columns_are_the_fields_of_the_row_in_their_order_with_a_meaning_each() -> None:
    assert tuple(COLUMNS) == StepRow._fields
    assert all(len(meaning) > 10 for meaning in COLUMNS.values())


def test_what_is_not_known_has_a_value_of_its_own() -> None:
    assert StepRow(5, 7) == StepRow(start_ns=5, wall_ns=7, batch=-1)
    assert (absent("batch"), absent("round"), absent("pause_ns"), absent("start_ns")) == (-1, 0, 0, 0)


def test_the_arrays_of_the_analysis_are_the_columns_whatever_those_are() -> None:
    in_seconds = [f"{name.removesuffix('_ns')}_s" if name.endswith("_ns") else name for name in COLUMNS]
    assert [field.name for field in fields(Steps)] == in_seconds
    rows = [StepRow(*range(first, first + len(COLUMNS))) for first in (100, 200)]
    columns = {name: tuple(getattr(row, name) for row in rows) for name in COLUMNS}
    found = steps_of(Segment(name="as_is", columns=columns))
    np.testing.assert_allclose(found.start_s, [0.0, 100e-9])
    for at, name in enumerate(COLUMNS):
        if name.endswith("_ns") and name != "start_ns":
            np.testing.assert_allclose(
                getattr(found, f"{name.removesuffix('_ns')}_s"), [(100 + at) / 1e9, (200 + at) / 1e9]
            )
        elif name != "start_ns":
            np.testing.assert_array_equal(getattr(found, name), [100 + at, 200 + at])
