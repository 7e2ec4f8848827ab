"""The soak's judging: growth that was planted is found, noise and a single step are not."""

import numpy as np
import pytest
from growth import judge, table


def noisy(count: int, growth: float, *, seed: int, noise: float = 2.0, level: float = 140.0) -> list[float]:
    """Megabytes of repetitions: a level, Gaussian noise, a growth from the first to the last, and a tenth disturbed."""
    drawn = np.random.default_rng(seed)
    values = level + drawn.normal(0, noise, count) + np.linspace(0, growth, count)
    disturbed = drawn.random(count) < 0.1
    return (values + disturbed * drawn.uniform(10, 60, count)).tolist()


@pytest.mark.parametrize("count", [12, 40, 100])
def test_noise_is_steady_and_planted_growth_is_found(count: int) -> None:
    still = [judge("peak_mb", noisy(count, 0, seed=seed)).verdict for seed in range(50)]
    grown = [judge("peak_mb", noisy(count, 30, seed=seed)).verdict for seed in range(50)]
    assert still.count("grows") == 0
    assert grown.count("grows") >= 45


def test_a_leak_of_one_in_several_repetitions_is_found() -> None:
    for every in (1, 3, 8):
        assert judge("descriptors", [7 + number // every for number in range(40)]).verdict == "grows"
    shaken = [7 + number // 3 + number % 2 for number in range(40)]
    assert judge("descriptors", shaken).verdict == "grows"


@pytest.mark.parametrize(
    "steps",
    [[3, 3, 3, 5, 5, 5, 5, 8, 8, 8, 8], [4, 4, 4, 4, 5, 5, 5, 5, 5, 6, 6, 6], [2] * 20 + [6] * 9 + [9] * 8 + [10] * 3],
    ids=["eleven", "twelve", "forty"],
)
def test_a_staircase_is_growth_though_it_stands_still_most_of_the_time(steps: list[int]) -> None:
    assert judge("tmp", steps).verdict == "grows"
    shaken = [value + (number % 4 == 1) for number, value in enumerate(steps)]
    assert judge("tmp", shaken).verdict == "grows"


@pytest.mark.parametrize("chance", [0.05, 0.2])
def test_a_count_that_is_disturbed_now_and_then_is_steady(chance: float) -> None:
    drawn = np.random.default_rng(28)
    verdicts = [judge("tmp", (7 + (drawn.random(40) < chance) * drawn.integers(1, 4, 40)).tolist()) for _ in range(200)]
    assert sum(found.verdict == "grows" for found in verdicts) <= 1


def test_what_comes_once_is_no_growth() -> None:
    assert judge("rss_mb", [100, 300, 420, 480, *[500] * 16]).verdict == "steady"  # imports and caches
    assert judge("threads", [3] * 12 + [4] * 12).verdict == "steady"
    assert judge("descriptors", [8, 9, 8, 11, 8, 8, 9, 8, 8, 8, 10, 8]).verdict == "steady"
    assert judge("tmp", [4] * 30).verdict == "steady"


def test_few_repetitions_say_nothing_and_a_child_left_behind_fails_at_once() -> None:
    assert judge("descriptors", range(7)).verdict == "too few"
    assert judge("children", [0, 1, 0]).verdict == "grows"
    assert judge("children", [0] * 3).verdict == "steady"
    assert judge("peak_mb", []).verdict == "too few"


def test_the_table_names_what_grows() -> None:
    text, failed = table({"watch": {"peak_mb": [90.0] * 10, "threads": list(range(10))}})
    assert failed
    assert [line.split()[-1] for line in text.splitlines()[1:]] == ["steady", "grows"]
    assert not table({"watch": {"peak_mb": [90.0] * 10}})[1]
