"""How many draws a sample holds: closed forms of the two ends, and what lies between."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.samedata.drawn import Sample

RNG = np.random.default_rng(0)


def sample(values, elements, epochs=None) -> Sample:
    groups = np.zeros(len(values), dtype=np.int64) if epochs is None else epochs
    return Sample(np.asarray(values, dtype=np.float64)[:, None], np.asarray(elements), groups)


def test_one_draw_for_each_element_is_worth_as_many_as_there_are_elements():
    values, elements = np.repeat(RNG.standard_normal(50), 8), np.repeat(np.arange(50), 8)
    assert sample(values, elements).worth(values) == pytest.approx(50, rel=0.02)


def test_one_draw_for_each_sample_is_worth_nearly_all():
    values = RNG.standard_normal(400)
    assert sample(values, np.repeat(np.arange(50), 8)).worth(values) > 200
    assert sample(values, np.arange(400)).worth(values) == 400


def test_a_single_element_is_one_draw():
    values = RNG.standard_normal(400)
    assert sample(values, np.zeros(400)).worth(values) == 1


def test_epochs_that_share_a_draw_are_told_from_those_that_do_not():
    epochs = np.repeat(np.arange(2), 200)
    values = RNG.standard_normal(400)
    assert not sample(values, np.arange(400), epochs).epochs_differ(values)
    assert sample(values, np.arange(400), epochs).epochs_differ(values + epochs)
