"""Health of a run: rows of steps left out, and losses that blow up."""

from __future__ import annotations

import pytest

from xttsbench.training.health import HealthState, blown_up, skipping
from xttsbench.xtts.training_settings import HealthSettings

SETTINGS = HealthSettings(skipped_in_a_row=3, blow_up=4, rate_factor=0.5, rollbacks=2)


@pytest.mark.parametrize(
    ("pieces", "is_too_many"),
    [
        (["1001"], False),
        (["10001"], True),
        (["0", "00"], True),
        (["00", "", "0"], True),
        (["00", "10", "01"], False),
        (["1", "0001111"], True),
    ],
)
def test_steps_left_out_count_in_a_row_however_they_are_fetched(pieces: list[str], is_too_many: bool) -> None:
    state = HealthState()
    for piece in pieces:
        state = state.after_steps([step == "1" for step in piece])
    assert (skipping(state, SETTINGS) is not None) == is_too_many
    assert skipping(state.judged(), SETTINGS) is None, "what was judged is not judged again"


def test_a_row_goes_on_after_it_was_judged() -> None:
    state = HealthState().after_steps([False, False]).judged().after_steps([False])
    assert skipping(state, SETTINGS) == "3 steps in a row had a gradient or a loss that was not finite"


def test_a_loss_is_compared_with_the_lowest_before_it() -> None:
    state = HealthState()
    assert blown_up(state, SETTINGS, 1e9) is None
    for loss in (3.0, 2.0, None, 5.0):
        assert blown_up(state, SETTINGS, loss) is None
        state = state.after_interval(loss)
    assert state.lowest == 2.0
    assert blown_up(state, SETTINGS, 8.0) is None
    assert blown_up(state, SETTINGS, None) is None
    assert blown_up(state, SETTINGS, 8.1) == "the mean loss rose to 8.1, more than 4 times the lowest so far, 2"


def test_going_back_lowers_the_rate_and_keeps_what_the_checkpoint_knew() -> None:
    then = HealthState(skipped_in_a_row=2, longest_skipped=2, lowest=1.5)
    now = HealthState(skipped_in_a_row=9, lowest=1.0, rollbacks=1)
    assert then.rolled_back(now) == HealthState(lowest=1.5, rollbacks=2)
    assert [HealthState(rollbacks=count).rate(SETTINGS) for count in (0, 1, 2)] == [1, 0.5, 0.25]
