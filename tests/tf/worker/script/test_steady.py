"""The quick path of a loop in Python: its rows are those of the slow one, and whatever happens is seen on it too."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.worker.channel import DirectChannel, ScriptReport
from xttsbench.worker.script.patches import Patches, patch_tensorflow
from xttsbench.worker.script.watched import Watched
from xttsbench.worker.script.whole_run import WholeRunRecorder

WEIGHTS = 3


class Run:
    """A watched process, in this one."""

    def __init__(self) -> None:
        self.rows = RowMemory(mmap.mmap(-1, RowMemory.size_bytes(600)))
        spec = TrialSpec(trial_id="watch", kind="script", target="none.py")
        report = ScriptReport(spec, DirectChannel(lambda _: None, self.rows))
        self.watched = Watched(report, lambda _: None, WholeRunRecorder(report))
        self.watched.active = True
        self.weights = tf.Variable(tf.zeros([WEIGHTS]))

        @tf.function
        def step(batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(self.weights * tf.reduce_sum(batch))
            self.weights.assign_sub(tape.gradient(loss, self.weights))
            return loss

        self.step = step

    @property
    def steady(self) -> bool:
        return self.watched.eager.steady.iterator() is not None

    def steps(self, data: tf.data.Dataset, each: Callable[[int], None] = lambda _: None, most: int = 1000) -> None:
        for number, batch in enumerate(data):
            self.step(batch)
            each(number)
            if number + 1 == most:
                break

    def columns(self) -> dict[str, tuple[int, ...]]:
        self.watched.eager.open = None
        (found,) = [one for one in self.rows.read() if one.name == "as_is"]
        return found.columns


@pytest.fixture
def run() -> Iterator[Run]:
    made, patches = Run(), Patches()
    patch_tensorflow(made.watched, patches)
    with made.watched.recorder.watch:
        yield made
    made.watched.active = False
    patches.undo()


def data(steps: int, shape: tuple[int, ...] = (4, 3)) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(tf.ones(shape)).repeat(steps)


def test_every_step_has_its_row_and_the_times_have_no_gaps(run: Run) -> None:
    seen = []
    run.steps(data(60), lambda number: seen.append(run.steady))
    assert seen[-30:] == [True] * 30
    found = run.columns()
    # All but two to warm up and those whose ops are counted.
    assert len(found["wall_ns"]) >= 60 - 6
    ends = [
        start - pause + wall
        for start, pause, wall in zip(*(found[name] for name in ("start_ns", "pause_ns", "wall_ns")), strict=True)
    ]
    begins = [start - pause for start, pause in zip(found["start_ns"], found["pause_ns"], strict=True)]
    assert begins[-30:] == ends[-31:-1]
    for wall, wait, step, pause in zip(
        *(found[name] for name in ("wall_ns", "wait_ns", "step_ns", "pause_ns")), strict=True
    ):
        assert wall == wait + step + pause
        assert min(wait, step) > 0
    assert set(found["calls"]) == {1}
    assert all(0 < calls <= step for calls, step in zip(found["calls_ns"], found["step_ns"], strict=True))
    assert set(found["batch_size"]) == {4}
    assert set(found["batch_elements"]) == {12}
    assert set(found["batch"]) == {-1}
    loop = run.watched.recorder.results.loops.main
    assert loop is not None
    assert loop.steps == len(found["wall_ns"]) + 2


def test_a_trace_a_fetch_and_another_shape_are_in_the_step_in_which_they_are(run: Run) -> None:
    shapes = data(50).concatenate(data(1, (2, 3))).concatenate(data(9))

    def fetch(number: int) -> None:
        if number == 45:
            float(run.weights.read_value()[0])

    run.steps(shapes, fetch)
    found = run.columns()
    count = len(found["wall_ns"])
    assert [at - count for at, traces in enumerate(found["traces"]) if traces][-1] == -10
    assert [at - count for at, syncs in enumerate(found["syncs"]) if syncs] == [-15]
    assert [at - count for at, size in enumerate(found["batch_size"]) if size == 2] == [-10]
    assert run.watched.recorder.watch.traces[-1].step == 50 - 2  # the steps that are counted are no rows


def test_epochs_follow_one_another_and_no_iterator_and_no_batch_is_kept(run: Run) -> None:
    run.steps(data(40))
    again, seen = data(20), []
    run.steps(again, lambda number: seen.append(run.steady), most=10)
    assert seen == [True] * 10
    gc.collect()
    assert [one for one in gc.get_objects() if type(one) is OwnedIterator and one._dataset is again] == []
    run.steps(data(5))
    found = run.columns()
    assert set(found["epoch"]) == {0, 1, 2}


def test_validation_within_the_loop_is_in_no_step(run: Run) -> None:
    valid = data(7, (1, 3))

    def validate(number: int) -> None:
        if number % 20 == 19:
            for batch in valid:
                tf.reduce_sum(batch)

    run.steps(data(70), validate)
    found = run.columns()
    assert set(found["batch_size"]) == {4}
    assert len(found["wall_ns"]) >= 70 - 8
    assert run.steady is False  # it was left when the columns were read


def test_an_error_of_the_data_reaches_the_loop_and_the_next_one_is_seen(run: Run) -> None:
    def fails() -> Iterator[Any]:
        for _ in range(40):
            yield tf.ones([4, 3])
        raise ValueError("no more")

    broken = tf.data.Dataset.from_generator(fails, output_signature=tf.TensorSpec([4, 3]))
    with pytest.raises(tf.errors.OpError, match="no more"):
        run.steps(broken)
    before = len(run.columns()["wall_ns"])
    run.steps(data(30))
    assert len(run.columns()["wall_ns"]) >= before + 30


def test_many_calls_in_a_step_are_counted_no_more(run: Run) -> None:
    def more(number: int) -> None:
        if number >= 30:
            for _ in range(20):
                run.step(tf.ones([4, 3]))

    run.steps(data(50), more)
    run.watched.eager.steady.settle()
    before = run.watched.recorder.watch.counters()[0]
    run.step(tf.ones([4, 3]))
    assert run.watched.recorder.watch.counters()[0] == before
