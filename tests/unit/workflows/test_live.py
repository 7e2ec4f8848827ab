"""Trials in the calling process: kept and journaled as elsewhere, and left out where they could tell nothing.

A dataset that changes by itself is told from one that shuffles, and from one that was only seen for longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.execution.journal import read_trials
from xttsbench.execution.limits import Limits
from xttsbench.records.pipeline import Element, Elements, Epoch, Row
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.workflows.live import LiveSession, changes_by_itself

LIMITS = Limits(10.0, 10.0)


class Counting:
    """A target whose passes yield 0, 1, ... and go on in the next one where it keeps its place."""

    def __init__(self, *, stateful: bool, raises: bool = False) -> None:
        self.stateful, self.raises = stateful, raises
        self.ran: list[tuple[str, str | None]] = []

    def measure(self, spec: TrialSpec, take: Callable[[dict[str, Any]], None], rows: RowMemory) -> None:
        self.ran.append((spec.kind, spec.fix))
        if self.raises:
            take({"status": "raised", "cause": "the fix does not apply"})
            return
        begins = len(self.ran) if self.stateful else 0
        rows = tuple(Row(hashes=(f"{begins + index:016x}",)) for index in range(3))
        elements = tuple(Element(shapes=("int64 ()",), rows=(row,)) for row in rows)
        found = Elements(spec="int64", fix=spec.fix, epochs=(Epoch(elements=elements, ended=True),))
        take({"part": "elements", "value": found.model_dump(mode="json")})
        take({"done": True})


def spec(number: int, fix: str | None = None, kind: str = "elements") -> TrialSpec:
    return TrialSpec.model_validate(
        {"trial_id": f"{number:03d}", "kind": kind, "target": "a live dataset", "fix": fix, "block": number}
    )


def session(target: Counting, directory: Path) -> LiveSession:
    return LiveSession(directory, target.measure, time.monotonic(), budget_s=100.0)


def test_each_trial_is_in_the_journal_before_the_next(tmp_path: Path) -> None:
    target = Counting(stateful=False)
    running = session(target, tmp_path)
    for number, fix in enumerate((None, None, "prefetch")):
        assert running.block == number
        running.run(spec(number, fix), LIMITS)
        assert read_trials(tmp_path) == running.trials
    assert [trial.status for trial in running.trials] == ["ok", "ok", "ok"]
    assert [trial.elements.fix for trial in running.trials if trial.elements] == [None, None, "prefetch"]


def test_after_two_passes_that_differ_nothing_is_run_to_compare_with_them(tmp_path: Path) -> None:
    target = Counting(stateful=True)
    running = session(target, tmp_path)
    records = [running.run(spec(number, fix), LIMITS) for number, fix in enumerate((None, None, None, "prefetch"))]
    assert [record.status for record in records] == ["ok", "ok", "skipped", "skipped"]
    assert len(target.ran) == 2
    assert "keeps something from pass to pass" in str(records[3].cause)


@pytest.mark.parametrize("fix", ["step:xla", "prefetch + step:graph"])
def test_a_step_is_left_as_it_is(tmp_path: Path, fix: str) -> None:
    target = Counting(stateful=False)
    record = session(target, tmp_path).run(spec(0, fix, kind="arm"), LIMITS)
    assert (record.status, target.ran) == ("skipped", [])
    assert "name an importable callable" in str(record.cause)


def test_what_a_trial_raises_is_its_end_and_not_that_of_the_run(tmp_path: Path) -> None:
    record = session(Counting(stateful=False, raises=True), tmp_path).run(spec(0, "prefetch"), LIMITS)
    assert (record.status, record.cause) == ("raised", "the fix does not apply")


def test_time_spent_is_counted_from_the_start_of_the_run(tmp_path: Path) -> None:
    running = LiveSession(tmp_path, Counting(stateful=False).measure, time.monotonic() - 50, budget_s=100.0)
    assert running.spent_s >= 50


def test_every_trial_says_that_it_ran_in_the_calling_process(tmp_path: Path) -> None:
    record = session(Counting(stateful=False), tmp_path).run(spec(0), LIMITS)
    assert record.notes[0].startswith("measured in the calling process only")


def test_windows_take_a_share_of_the_budget(tmp_path: Path) -> None:
    running = LiveSession(tmp_path, Counting(stateful=False).measure, time.monotonic(), budget_s=120.0)
    windows = {kind: running.run(spec(0, kind=kind), LIMITS).spec.window_s for kind in ("elements", "arm", "ladder")}
    assert windows == {"elements": 6.0, "arm": pytest.approx(1.2), "ladder": 6.0}


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


@pytest.mark.parametrize(
    "second",
    [seen([1, 3]), seen([2, 1]), seen([1]), seen([1, 2, 3]), seen([]), seen([1, 2], spec="float32")],
    ids=["value", "order", "fewer", "more", "empty", "spec"],
)
def test_a_counter_a_file_that_is_read_on_or_another_structure_is_a_change(second: Elements) -> None:
    assert STATEFUL in str(changes_by_itself(seen([1, 2]), second))
    assert STATEFUL in str(changes_by_itself(second, seen([1, 2])))


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
