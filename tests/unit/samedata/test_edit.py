"""The judgement of an edit, by fingerprints of some rows and digests of all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.samedata.elements import Run, fingerprints, noised, plain, samples, shuffled
from xttsbench.records.pipeline import Elements, Place, Whole
from xttsbench.samedata.edit import Edit, judge_edit
from xttsbench.samedata.whole import digest

ROWS = samples(64)
CHANGED = [*ROWS[:37], (ROWS[37][0] + 1, *ROWS[37][1:]), *ROWS[38:]]


def read(run: Run, *, head: int | None = None, **fields: Any) -> Elements:
    """All of a run digested; fingerprints of so many elements of each epoch, of all without a number."""
    found = fingerprints(run, **fields)
    digests = [[digest(element) for element in epoch.elements] for epoch in found.epochs]
    columns = [dict(zip(("rows", "elements", "sums"), zip(*one, strict=True), strict=True)) for one in digests]
    whole = [Whole(ended=True, **one) for one in columns]
    short = fingerprints([epoch[:head] for epoch in run], ended=head is None, **fields)
    return short.model_copy(update={"whole": tuple(whole)})


def judged(old: Run, new: Run, *, other: Run | None = None, any_order: bool = False, **fields: Any) -> Edit:
    """An edit of a run that is the same whenever it is read, but for its ``other`` seed."""
    originals = [read(old, seed=0, **fields), read(old, seed=0, **fields), read(other or old, seed=1, **fields)]
    return judge_edit(originals, read(new, **fields), any_order=any_order)


@pytest.mark.parametrize("head", [None, 3])
def test_the_same_bits_are_the_same_and_all_rows_are_checked(head: int | None) -> None:
    found = judged(plain(ROWS), plain(ROWS), head=head)
    assert (found.outcome, found.semantics.how, found.semantics.rows, found.new) == ("same", "identical", 64, None)


@pytest.mark.parametrize("head", [None, 3])
def test_one_value_is_found_at_its_place_behind_what_was_fingerprinted_too(head: int | None) -> None:
    found = judged(plain(ROWS), plain(CHANGED), head=head)
    assert found.outcome == "differs"
    named = {"row": 1, "component": "[0]"} if head is None else {}
    assert found.new == Place(epoch=0, element=9, **named)


def test_one_value_among_shuffled_samples_is_found_with_both_places() -> None:
    old, new = (shuffled(rows, seed=seed) for rows, seed in ((ROWS, 1), (CHANGED, 2)))
    found = judged(old, new, other=shuffled(ROWS, seed=3), random_ops=("ShuffleDatasetV3",))
    assert (found.outcome, found.new is not None and found.new.component) == ("differs", "[0]")
    assert found.old is not None
    assert found.new is not None
    before, after = ([row[2] for batch in run[0] for row in batch].index("clip-37") for run in (old, new))
    assert (found.old.element * 4 + (found.old.row or 0), found.new.element * 4 + (found.new.row or 0)) == (
        before,
        after,
    )


@pytest.mark.parametrize(("any_order", "outcome"), [(False, "reordered"), (True, "same")])
def test_another_order_is_no_other_data_and_has_to_be_allowed(any_order: bool, outcome: str) -> None:
    found = judged(plain(ROWS), plain(ROWS[::-1]), any_order=any_order)
    assert (found.outcome, "--any-order" in found.semantics.sentence) == (outcome, not any_order)


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("head", [None, 3])
@pytest.mark.parametrize("shuffles", [False, True])
def test_batches_of_another_size_are_other_data(any_order: bool, head: int | None, shuffles: bool) -> None:
    def made(seed: int, batch: int) -> Run:
        return shuffled(ROWS, seed=seed, batch=batch) if shuffles else plain(ROWS, batch=batch)

    found = judged(made(0, 4), made(1, 8), other=made(2, 4), any_order=any_order, head=head)
    assert found.outcome == "differs"


@pytest.mark.parametrize("head", [None, 3])
def test_a_remainder_that_is_dropped_is_seen_at_the_end_of_the_epoch(head: int | None) -> None:
    assert judged(plain(ROWS[:63]), plain(ROWS[:60]), head=head).outcome == "differs"


@pytest.mark.parametrize(("rows", "outcome"), [(63, "differs"), (64, "same")])
def test_a_remainder_that_is_dropped_behind_a_shuffle_is_seen_where_there_is_one(rows: int, outcome: str) -> None:
    old = read(plain(ROWS[:rows]))
    found = judge_edit([old] * 3, old.model_copy(update={"last_batch_kept": True}), any_order=False)
    assert (found.outcome, "only NEW keeps" in found.semantics.sentence.lower().replace("new", "NEW")) == (
        outcome,
        outcome == "differs",
    )


def test_epochs_of_other_lengths_are_told_though_none_was_read_to_its_end() -> None:
    old = read([plain(ROWS)[0][:4]], cardinality=100)
    old = old.model_copy(update={"whole": tuple(one.model_copy(update={"ended": False}) for one in old.whole)})
    epochs = tuple(one.model_copy(update={"ended": False}) for one in old.epochs)
    old = old.model_copy(update={"epochs": epochs})
    found = judge_edit([old] * 3, old.model_copy(update={"cardinality": 99}), any_order=False)
    assert (found.outcome, "100 batches in OLD, 99 in NEW" in found.semantics.sentence) == ("differs", True)


def test_large_shuffled_epochs_are_judged_by_their_digests() -> None:
    runs = [shuffled(ROWS, seed=seed) for seed in range(4)]
    found = judged(runs[0], runs[1], other=runs[2], head=3)
    assert (found.outcome, found.semantics.how, found.semantics.rows) == ("same", "other order", 64)
    frozen = judged(runs[0], shuffled(ROWS, seed=9, anew=False), other=runs[2], head=3)
    assert (frozen.outcome, "frozen" in frozen.semantics.sentence) == ("differs", True)
    other = judged(runs[0], shuffled(CHANGED, seed=9), other=runs[2], head=3)
    assert other.outcome == "differs"


def test_draws_of_the_same_distribution_are_the_same_and_wider_ones_are_not() -> None:
    originals = [read(noised(plain(ROWS), seed=seed), random_ops=("draws",), seed=seed) for seed in (1, 2, 3)]
    alike = judge_edit(originals, read(noised(plain(ROWS), seed=9)), any_order=False)
    wider = judge_edit(originals, read(noised(plain(ROWS), seed=9, size=2.0)), any_order=False)
    frozen = judge_edit(originals, read(noised(plain(ROWS), seed=9, anew=False)), any_order=False)
    assert [one.outcome for one in (alike, wider, frozen)] == ["same", "differs", "differs"]
    assert (wider.new, frozen.new) == (None, None)


def test_a_doubt_leaves_unproved_what_looked_the_same_and_says_what_would_prove_it() -> None:
    doubt = "calls that run at once would share state: count() at data.py:3 changes 'seen'; make it depend on nothing"
    found = judge_edit([read(plain(ROWS))] * 3, read(plain(ROWS), objections=(doubt,)), any_order=False)
    assert (found.outcome, found.remedy) == ("not proved", "make it depend on nothing")
    assert "count() at data.py:3" in found.semantics.sentence
