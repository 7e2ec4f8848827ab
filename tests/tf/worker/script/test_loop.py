"""Which loop of a script is the one to measure, and that its rows are the ones that are read."""

from __future__ import annotations

import time
from unittest.mock import MagicMock

import tensorflow as tf

from xttsbench.records.rows import RowMemory, StepRow
from xttsbench.worker.script.graph import FitSteps
from xttsbench.worker.script.loop import Loop, Loops


def _loops(patience_ns: int = 1000) -> tuple[Loops, RowMemory]:
    memory = RowMemory(bytearray(RowMemory.size_bytes(1024)))
    return Loops(patience_ns, memory), memory


def _run(loops: Loops, loop: Loop, steps: int, wall_ns: int = 10, *, traced: bool = False) -> None:
    for step in range(steps):
        loops.add(loop, StepRow(step, wall_ns), traced=traced)


def _starts(memory: RowMemory) -> dict[str, tuple[int, ...]]:
    return {one.name: one.columns["start_ns"] for one in memory.read()}


def test_the_first_loop_that_takes_gradients_is_chosen_and_stays() -> None:
    loops, _ = _loops()
    statistics, training = loops.get("a", "next()"), loops.get("b", "next()")
    _run(loops, statistics, 50)
    assert loops.choose() is None
    _run(loops, training, 2)
    training.trains = True
    assert loops.choose() is training
    _run(loops, statistics, 500)
    assert loops.choose() is training


def test_without_gradients_the_longest_loop_is_chosen_when_patience_or_the_script_ends() -> None:
    loops, _ = _loops()
    short, long = loops.get("a", "next()"), loops.get("b", "next()")
    _run(loops, short, 50)
    _run(loops, long, 60)
    assert loops.choose() is None
    assert loops.choose(over=True) is long
    impatient, _ = _loops()
    _run(impatient, impatient.get("a", "next()"), 100)
    assert impatient.choose() is impatient.get("a", "next()")


def test_a_loop_without_steps_is_never_chosen() -> None:
    loops, _ = _loops(0)
    loops.get("a", "next()").trains = True
    assert loops.choose(over=True) is None


def test_the_warm_up_ends_with_a_step_that_traces_nothing() -> None:
    loops, memory = _loops()
    loop = loops.get("a", "next()")
    _run(loops, loop, 4, traced=True)
    _run(loops, loop, 3)
    loops.choose(over=True)
    assert _starts(memory) == {"warm_up": (0, 1, 2, 3, 0), "as_is": (1, 2)}
    assert loop.measured == 2
    assert {one.name: one.warmup_steps for one in memory.read()} == {"warm_up": 0, "as_is": 1}


def test_a_loop_that_traces_in_every_step_is_measured_after_ten() -> None:
    loops, memory = _loops()
    _run(loops, loops.get("a", "next()"), 12, traced=True)
    loops.choose(over=True)
    assert {name: len(starts) for name, starts in _starts(memory).items()} == {"warm_up": 10, "as_is": 2}


def test_rows_of_the_main_loop_are_read_also_those_from_before_it_was_chosen_and_no_others() -> None:
    loops, memory = _loops()
    other, main = loops.get("a", "next()"), loops.get("b", "next()")
    _run(loops, other, 5)
    for step in range(3):
        loops.add(main, StepRow(100 + step, 10), traced=False)
    assert memory.read() == []
    main.trains = True
    loops.choose()
    _run(loops, other, 5)
    loops.add(main, StepRow(103, 10), traced=False)
    assert _starts(memory) == {"warm_up": (100, 101), "as_is": (102, 103)}
    assert other.steps == 10


def test_loops_beyond_those_that_there_is_room_for_are_recorded_from_when_they_are_chosen() -> None:
    loops, memory = _loops()
    for number in range(40):
        _run(loops, loops.get(number, "next()"), 4)
    late = loops.get(39, "next()")
    assert late.segments == {}
    late.trains = True
    assert loops.choose() is late
    loops.add(late, StepRow(7, 10), traced=False)
    assert _starts(memory) == {"as_is": (7,)}


class _Model:
    def train_step(self) -> None:
        pass


def test_the_time_between_calls_of_fit_with_other_datasets_is_counted() -> None:
    recorder = MagicMock()
    recorder.results.between_fits_ns, recorder.results.datasets = 0, 0
    recorder.results.loops.get.return_value = Loop("a", "fit")
    model, one, other = _Model(), tf.data.Dataset.range(1), tf.data.Dataset.range(1)
    fits, counted = FitSteps(recorder, lambda: None), []
    for dataset in (one, one, other):
        fits.begin(model, dataset)
        counted.append(recorder.results.between_fits_ns)
        time.sleep(0.01)
    assert counted[:2] == [0, 0], "the same dataset is the same training"
    assert counted[2] >= 10_000_000
