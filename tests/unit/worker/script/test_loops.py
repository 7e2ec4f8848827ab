"""Which loop of a script is the one to measure."""

from __future__ import annotations

from xttsbench.records.step_row import StepRow
from xttsbench.worker.script.loops import Loop, Loops, send_rows


def _run(loop: Loop, steps: int, wall_ns: int = 10, *, traced: bool = False) -> None:
    for step in range(steps):
        loop.add(StepRow(step, wall_ns), traced=traced)


def test_the_first_loop_that_takes_gradients_is_chosen_and_stays() -> None:
    loops = Loops(patience_ns=1000)
    statistics, training = loops.get("a", "next()"), loops.get("b", "next()")
    _run(statistics, 50)
    assert loops.choose() is None
    _run(training, 2)
    training.trains = True
    assert loops.choose() is training
    _run(statistics, 500)
    assert loops.choose() is training


def test_without_gradients_the_longest_loop_is_chosen_when_patience_or_the_script_ends() -> None:
    loops = Loops(patience_ns=1000)
    short, long = loops.get("a", "next()"), loops.get("b", "next()")
    _run(short, 50)
    _run(long, 60)
    assert loops.choose() is None
    assert loops.choose(over=True) is long
    impatient = Loops(patience_ns=1000)
    _run(impatient.get("a", "next()"), 100)
    assert impatient.choose() is impatient.get("a", "next()")


def test_a_loop_without_steps_is_never_chosen() -> None:
    loops = Loops(patience_ns=0)
    loops.get("a", "next()").trains = True
    assert loops.choose(over=True) is None


def test_the_warm_up_ends_with_a_step_that_traces_nothing() -> None:
    loop = Loop("a", "next()")
    _run(loop, 4, traced=True)
    _run(loop, 3)
    assert [segment for segment, _ in loop.rows] == ["warm_up"] * 5 + ["as_is"] * 2
    assert loop.measured == 2


def test_a_loop_that_traces_in_every_step_is_measured_after_ten() -> None:
    loop = Loop("a", "next()")
    _run(loop, 12, traced=True)
    assert [segment for segment, _ in loop.rows].count("warm_up") == 10


def test_rows_are_sent_once() -> None:
    loop, sent = Loop("a", "next()"), []
    _run(loop, 3)
    for _ in range(2):
        send_rows(loop, lambda segment, row: sent.append((segment, row)))
    assert [(segment, row.start_ns) for segment, row in sent] == [("warm_up", 0), ("warm_up", 1), ("as_is", 2)]
