"""A dataset that changes by itself is told from one that shuffles, and from one that was only seen for longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.records.elements import Element, Elements, Epoch, Row
from xttsbench.workflows.live import changes_by_itself

STATEFUL = "it changes between two passes of its own"


def seen(*epochs: list[int], ended: bool = True, **fields: object) -> Elements:
    made = tuple(
        Epoch(
            elements=tuple(Element(shapes=("int64 ()",), rows=(Row(hashes=(f"{value:016x}",)),)) for value in epoch),
            ended=ended,
        )
        for epoch in epochs
    )
    return Elements.model_validate({"spec": "int64", "epochs": made} | fields)


def test_the_same_passes_are_no_change() -> None:
    assert changes_by_itself(seen([1, 2], [1, 2]), seen([1, 2], [1, 2])) is None


@pytest.mark.parametrize(
    "second",
    [seen([1, 3]), seen([2, 1]), seen([1]), seen([1, 2, 3]), seen([]), seen([1, 2], spec="float32")],
    ids=["value", "order", "fewer", "more", "empty", "spec"],
)
def test_a_counter_a_file_that_is_read_on_or_another_structure_is_a_change(second: Elements) -> None:
    assert STATEFUL in str(changes_by_itself(seen([1, 2]), second))
    assert STATEFUL in str(changes_by_itself(second, seen([1, 2])))


def test_a_change_in_a_later_epoch_counts() -> None:
    assert STATEFUL in str(changes_by_itself(seen([1, 2], [3, 4]), seen([1, 2], [5, 6])))


def test_what_shuffles_or_promises_no_order_may_differ() -> None:
    assert changes_by_itself(seen([1, 2], random_ops=("ShuffleDataset/_3",)), seen([2, 1])) is None
    assert changes_by_itself(seen([1, 2], ordered=False), seen([2, 1])) is None


def test_of_passes_that_were_cut_off_only_what_both_saw_is_compared() -> None:
    assert changes_by_itself(seen([1, 2], ended=False), seen([1, 2, 3], ended=False)) is None
    assert changes_by_itself(seen([1], ended=False), seen([1, 2])) is None


def test_a_pass_that_ended_must_not_go_on_in_one_that_was_cut_off() -> None:
    assert STATEFUL in str(changes_by_itself(seen([1, 2]), seen([1, 2, 3], ended=False)))


@given(st.lists(st.lists(st.integers(0, 9), min_size=1), min_size=1), st.data())
def test_any_one_value_that_differs_is_seen(epochs: list[list[int]], data: st.DataObject) -> None:
    epoch = data.draw(st.integers(0, len(epochs) - 1))
    place = data.draw(st.integers(0, len(epochs[epoch]) - 1))
    changed = [list(values) for values in epochs]
    changed[epoch][place] += 100
    assert changes_by_itself(seen(*epochs), seen(*epochs)) is None
    assert changes_by_itself(seen(*epochs), seen(*changed)) is not None
