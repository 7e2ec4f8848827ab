"""Samples without their order: counted by epochs, by rounds, and before a cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.samedata.elements import batched, fingerprints
from xttsbench.samedata.epochs import round_length, same_bags
from xttsbench.samedata.runs import runs_of


def run(*epochs, ended=True, batch=3):
    return fingerprints([batched([(number,) for number in epoch], batch) for epoch in epochs], ended=ended)


def bags(first, second):
    return same_bags(*runs_of([first, second]), [0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_whole_epochs_are_the_same_where_their_sorted_samples_are(ours, theirs):
    assert bags(run(ours), run(theirs)).same is (sorted(ours) == sorted(theirs))


def test_what_differs_is_counted():
    assert bags(run([1, 2, 3, 4]), run([4, 3, 3, 9])).sentence == (
        "epoch 1 had 4 samples and has 4; 2 missing, 1 new, 1 more often there than before"
    )


def test_a_part_of_an_epoch_must_be_part_of_it():
    assert bags(run([1, 2, 3]), run([3, 1], ended=False)).same is None
    assert bags(run([1, 2, 3]), run([3, 3], ended=False)).same is False
    assert bags(run([1, 2, 3], ended=False), run([3, 1])).same is False


def test_rounds_of_an_endless_dataset_are_found_and_no_others():
    rounds = [[1, 2, 3, 4], [3, 1, 4, 2], [2, 4, 1, 3]]
    endless = run([number for part in rounds for number in part], ended=False)
    assert round_length(runs_of([endless]), [0]) == 4
    assert round_length(runs_of([run(range(12), ended=False)]), [0]) is None
    assert round_length(runs_of([run(*rounds)]), [0]) is None
