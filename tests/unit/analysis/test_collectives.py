"""Arithmetic of ranks that train together, on simulated collectives whose answer is known."""

import numpy as np
import pytest

from tests.unit.diagnosis.jobs import COMMON_S, job, rank_run
from xttsbench.analysis import ranks as told


def test_the_cost_of_collectives_is_that_after_the_last_arrival() -> None:
    found = told.together(job(late_s={1: 0.004}))
    assert found.cost_s.mean() == pytest.approx(COMMON_S, rel=0.05)
    assert found.quiet_s == pytest.approx(COMMON_S, rel=0.2)
    assert found.waits_s[:, 0].mean() == pytest.approx(0.004, rel=0.1)
    assert found.waits_s[:, 1].mean() == pytest.approx(0.0, abs=2e-4)


def test_the_late_rank_is_named_and_by_how_much() -> None:
    found = told.together(job(ranks=4, late_s={2: 0.005}))
    late = told.stragglers(found, 0.02, 1.0)
    assert list(late) == [2]
    assert late[2] == pytest.approx(0.005, rel=0.1)


def test_a_rank_that_is_late_now_and_then_is_named() -> None:
    found = told.together(job(late_s={0: 0.3}, every=20))
    late = told.stragglers(found, 0.02, 1.0)
    assert list(late) == [0]
    assert late[0] == pytest.approx(0.3 / 20, rel=0.1)


def test_ranks_that_take_turns_being_late_are_not_named() -> None:
    assert told.stragglers(told.together(job(jitter_s=0.008)), 0.02, 1.0) == {}


def test_few_collectives_name_nobody() -> None:
    assert told.stragglers(told.together(job(late_s={1: 0.005}, steps=12)), 0.02, 1.0) == {}


def test_hosts_whose_clocks_differ_are_compared_by_the_ends() -> None:
    found = told.together(job(ranks=3, late_s={2: 0.005}, clocks_s=(0.0, 1234.5, -77.0)))
    assert list(told.stragglers(found, 0.02, 1.0)) == [2]
    assert found.waits_s[:, 0].mean() == pytest.approx(0.005, rel=0.1)


def test_collectives_that_one_rank_left_out_are_left_out() -> None:
    first, second = job(late_s={1: 0.005})
    thinned = second.model_copy(update={"collectives": second.collectives[::2]})
    assert len(told.together([first, thinned])) == len(thinned.collectives)


def test_warm_up_is_left_out() -> None:
    first, second = job()
    later = first.model_copy(update={"since_ns": first.collectives[50][1] - 1_000_000})
    assert len(told.together([later, second])) == len(first.collectives) - 50


def test_the_part_in_which_a_rank_exceeds_the_others_is_its_cause() -> None:
    runs = [rank_run(0, input=0.1), rank_run(1, input=0.1, host=0.8), rank_run(2, input=0.2)]
    assert told.cause_of(1, runs) == ("host", pytest.approx(0.8 / 100))


def test_the_same_samples_on_two_ranks_are_seen() -> None:
    runs = [rank_run(rank, hashes=range(1000)) for rank in (0, 1)]
    shards = told.shards_of(runs)
    assert shards is not None
    assert shards.common == 1.0


def test_samples_of_which_a_part_was_looked_at_are_estimated() -> None:
    rng = np.random.default_rng(0)
    looked = [sorted(rng.choice(4000, 1000, replace=False).tolist()) for _ in range(2)]
    shards = told.shards_of([rank_run(rank, hashes=looked[rank], samples=4000) for rank in (0, 1)])
    assert shards is not None
    assert shards.common == pytest.approx(1.0, abs=0.15)


def test_ranks_that_looked_at_different_parts_are_estimated_by_the_other_ones_part() -> None:
    rng = np.random.default_rng(0)
    data = np.arange(4000), np.r_[np.arange(3800, 4000), np.arange(4000, 7800)]  # 5 % in common
    looked = [sorted(rng.choice(data[rank], size, replace=False).tolist()) for rank, size in ((0, 400), (1, 3600))]
    shards = told.shards_of([rank_run(rank, hashes=looked[rank], samples=4000) for rank in (0, 1)])
    assert shards is not None
    assert shards.common == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize("both", [0, 3])
def test_little_in_common_says_nothing_where_few_were_looked_at(both: int) -> None:
    firsts = 0, 100 - both
    runs = [rank_run(rank, hashes=range(first, first + 100), samples=4000) for rank, first in enumerate(firsts)]
    shards = told.shards_of(runs)
    assert shards is not None
    assert (shards.common, shards.why) == (None, "too few samples were looked at")


def test_disjoint_shards_have_nothing_in_common() -> None:
    shards = told.shards_of([rank_run(rank, hashes=range(rank, 2000, 2)) for rank in (0, 1)])
    assert shards is not None
    assert shards.common == 0.0


def test_hashes_beyond_the_lowest_bound_are_left_out() -> None:
    runs = [rank_run(0, hashes=range(0, 500)), rank_run(1, hashes=range(400, 1500), below=1500)]
    bound = [one.model_copy(update={"epochs": (one.epochs[0].model_copy(update={"below": 500}),)}) for one in runs]
    shards = told.shards_of(bound)
    assert shards is not None
    assert shards.common == 1.0  # of the hundred that are left of rank 1


def test_samples_that_look_alike_tell_nothing() -> None:
    shards = told.shards_of([rank_run(rank, hashes=range(100), repeats=300) for rank in (0, 1)])
    assert shards is not None
    assert shards.common is None


def test_augmented_samples_are_said_to_tell_little() -> None:
    shards = told.shards_of([rank_run(rank, hashes=range(rank, 400, 2), then=range(500, 700)) for rank in (0, 1)])
    assert shards is not None
    assert "augmented" in shards.why


@pytest.mark.parametrize(
    ("samples", "named"), [((100, 100), []), ((100, 50), [1]), ((100, 96, 99), []), ((40, 100, 100), [0])]
)
def test_a_starved_shard_is_one_with_far_fewer_samples(samples: tuple[int, ...], named: list[int]) -> None:
    assert list(told.starved(samples)) == named


def test_a_stall_of_another_rank_does_not_hide_the_late_one() -> None:
    runs = job(late_s={1: 0.005}, stall_s=1.5)
    assert list(told.stragglers(told.together(runs), 0.02, 1.0)) == [1]
