from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.records.pipeline import Elements
from xttsbench.samedata.tolerance import STATE_TOLERANCE, same_training


def _of(losses: tuple[float, ...] = (1.0, 0.9), state: tuple[tuple[float, ...], ...] = ((0.5, 2.0),)) -> Elements:
    return Elements(spec="TensorSpec", losses=losses, state=state)


def test_the_same_numbers_are_identical() -> None:
    found = same_training(_of(), _of(), _of())
    assert (found.equivalent, found.how) == (True, "identical")


def test_rounding_is_allowed_and_named() -> None:
    found = same_training(_of(), _of(), _of(losses=(1.0 + 1e-5, 0.9)))
    assert (found.equivalent, found.how) == (True, "rounding")


@pytest.mark.parametrize(
    "changed",
    [
        _of(losses=(1.0, 0.91)),
        _of(losses=(1.0,)),
        _of(state=((0.5, 2.1),)),
        _of(state=((0.5, 2.0), (1.0,))),
        _of(state=((0.5,),)),
    ],
)
def test_another_loss_or_variable_is_another_training(changed: Elements) -> None:
    assert same_training(_of(), _of(), changed).equivalent is False


def test_a_step_that_differs_from_itself_is_compared_at_its_own_noise() -> None:
    original, again = _of(losses=(1.0, 0.900)), _of(losses=(1.0, 0.902))
    assert same_training(original, again, _of(losses=(1.0, 0.904))).equivalent is True
    assert same_training(original, again, _of(losses=(1.0, 0.950))).equivalent is False
    wild = _of(losses=(1.0, 0.5))
    assert same_training(original, wild, original).equivalent is None


@pytest.mark.parametrize(
    ("trained", "words"),
    [
        (_of(), "losses of 2 steps and 1 variable after them are the same"),
        (
            _of(losses=(), state=((0.5,), (1.0,))),
            "2 variables after the first steps, which return no loss, are the same",
        ),
        (_of(state=()), "losses of 2 steps are the same"),
    ],
)
def test_what_was_compared_is_said(trained: Elements, words: str) -> None:
    assert same_training(trained, trained, trained).sentence.startswith(words)


def test_without_a_loss_and_a_variable_nothing_is_known() -> None:
    nothing = _of(losses=(), state=())
    assert same_training(nothing, nothing, nothing).equivalent is None


def test_a_changed_step_that_did_not_run_is_not_said_to_learn_something_else() -> None:
    found = same_training(_of(), _of(), Elements(spec="", unknown={"losses": "no step of the script ended"}))
    assert (found.equivalent, found.how) == (None, "unknown")
    assert found.sentence == "the changed step could not be compared: no step of the script ended"


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=6),
    st.integers(0, 5),
    st.floats(0.01, 10),
)
def test_no_change_beyond_the_tolerance_passes(values: list[float], place: int, share: float) -> None:
    scale = float(np.abs(values).max())
    if scale == 0:
        return
    changed = list(values)
    changed[place % len(values)] += share * scale
    found = same_training(
        _of(losses=tuple(values), state=()), _of(losses=tuple(values), state=()), _of(losses=tuple(changed), state=())
    )
    assert found.equivalent is not (share / (1 + share) > STATE_TOLERANCE)
