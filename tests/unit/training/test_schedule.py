"""The learning rate in closed form: the warm-up's line, the root, the cosine, and where they meet."""

from __future__ import annotations

import math

import pytest

from xttsbench.training.schedule import learning_rate
from xttsbench.xtts.training_settings import ScheduleSettings


def rates(steps: int = 20, highest: float = 2.0, **settings: object) -> list[float]:
    chosen = ScheduleSettings.model_validate(settings)
    return [learning_rate(chosen, highest, step, steps) for step in range(steps)]


@pytest.mark.parametrize("kind", ["constant", "noam", "cosine"])
def test_the_warm_up_is_a_line_to_the_highest_rate(kind: str) -> None:
    assert rates(kind=kind, warmup_steps=8)[:8] == pytest.approx([2.0 * n / 8 for n in range(1, 9)])


def test_without_a_schedule_the_rate_is_the_same_in_all_steps() -> None:
    assert rates(kind="constant") == [2.0] * 20
    assert rates(kind="constant", warmup_steps=3)[3:] == [2.0] * 17


def test_noam_falls_with_the_root_of_the_step() -> None:
    assert rates(kind="noam", warmup_steps=4) == pytest.approx(
        [2.0 * min(n / 4, math.sqrt(4 / n)) for n in range(1, 21)]
    )


@pytest.mark.parametrize("final_share", [0.0, 0.1, 1.0])
def test_the_cosine_goes_from_the_highest_rate_to_the_final_one(final_share: float) -> None:
    found = rates(kind="cosine", warmup_steps=4, final_share=final_share)
    assert found[3] == found[4] == 2.0
    assert found[12] == pytest.approx(2.0 * (1 + final_share) / 2)  # half of the 16 steps after the warm-up
    assert found[19] == pytest.approx(2.0 * (final_share + (1 - final_share) * (1 + math.cos(math.pi * 15 / 16)) / 2))
    assert found[4:] == sorted(found[4:], reverse=True)


def test_beyond_the_last_step_the_cosine_stays_at_its_end() -> None:
    settings = ScheduleSettings(kind="cosine", final_share=0.25)
    assert [learning_rate(settings, 2.0, step, 20) for step in (20, 1000)] == pytest.approx([0.5, 0.5])


def test_a_run_that_ends_with_its_warm_up_has_a_rate_in_each_step() -> None:
    assert rates(steps=4, kind="cosine", warmup_steps=4) == [0.5, 1.0, 1.5, 2.0]
