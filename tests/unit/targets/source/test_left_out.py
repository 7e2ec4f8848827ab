"""Statements of a step behind a condition: which ones, and that names keep their values where they do not run."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from xttsbench.targets.source.left_out import GUARDED, Deciding, Guard, guarding
from xttsbench.targets.source.rewritten import code_of

PRELUDE = """
class GradientTape:
    def __enter__(self): did.append("tape"); return self
    def __exit__(self, *_): pass
    def gradient(self, loss, of): did.append("gradient"); return [loss]
class Optimizer:
    def apply_gradients(self, pairs): did.append("apply"); list(pairs)
tf = __import__("types").SimpleNamespace(GradientTape=GradientTape)
class Variable:
    def assign_sub(self, change): did.append("assigned")
opt, weight, did, said = Optimizer(), Variable(), [], []
"""


class Once(Deciding):
    """Lets each group of statements run once."""

    def __init__(self) -> None:
        self.kept: dict[int, dict[str, Any]] = {}

    def runs(self, number: int) -> bool:
        return number not in self.kept

    def wrote(self, number: int, *places: dict[str, Any]) -> None:
        found = {name: at[name] for name in GUARDED[number].names for at in places[::-1] if name in at}
        self.kept[number] = found

    def values(self, number: int) -> dict[str, Any]:
        return self.kept[number]


def run(body: str, deciding: Once | None) -> dict[str, Any]:
    guard, known = Guard(), {}
    guard.deciding = deciding or guard.deciding
    with guarding(guard):
        exec(code_of((PRELUDE + textwrap.dedent(body)).encode(), "/somewhere/train.py"), known)
    return known


WRITTEN_OUT = """
for number in range(4):
    with tf.GradientTape() as tape:
        loss = number + 10
    grads = tape.gradient(loss, [])
    scaled = [one * 2 for one in grads]
    for one in scaled:
        weight.assign_sub(one)
    if number % 2 == 0:
        opt.apply_gradients(zip(scaled, [1]))
    said.append((number, loss, grads, one))
    loss = str(loss)
"""


def test_a_step_that_is_written_out_runs_once_and_its_names_keep_their_values() -> None:
    known = run(WRITTEN_OUT, Once())
    assert known["did"] == ["tape", "gradient", "assigned", "apply"]
    assert known["said"] == [(number, 10, [10], 20) for number in range(4)]


def test_everything_runs_as_long_as_nobody_decides() -> None:
    known = run(WRITTEN_OUT, None)
    assert known["did"].count("tape") == 4
    assert [loss for _, loss, _, _ in known["said"]] == [10, 11, 12, 13]


@pytest.mark.parametrize("ends", ["return tape.gradient(loss, []), loss", "return loss"])
def test_a_function_returns_what_it_once_returned(ends: str) -> None:
    body = f"""
    def step(number):
        global last
        with tf.GradientTape() as tape:
            last = loss = number
        {ends}
    first, second = step(1), step(2)
    """
    known = run(body, Once())
    assert known["first"] == known["second"]
    assert known["last"] == 1


def test_a_loop_over_gradients_as_they_are_taken_belongs_to_the_step() -> None:
    body = """
    for number in range(3):
        with tf.GradientTape() as tape:
            loss = number
        for one in tape.gradient(loss, []):
            weight.assign_sub(one)
        said.append(number)
    """
    known = run(body, Once())
    assert (known["did"], known["said"]) == (["tape", "gradient", "assigned"], [0, 1, 2])


def test_names_that_only_the_step_reads_are_told_from_those_that_others_read() -> None:
    before = len(GUARDED)
    run(WRITTEN_OUT, None)
    (found,) = [one for one in GUARDED[before:] if "loss" in one.names]
    assert set(found.names) == {"tape", "loss", "grads", "scaled", "one"}
    assert found.said == {"loss", "grads", "one"}


def test_what_leaves_the_loop_or_takes_whole_steps_always_runs() -> None:
    body = """
    for epoch in range(2):
        for number in range(5):
            with tf.GradientTape() as tape:
                if number == 2:
                    break
        said.append((epoch, number))
    """
    assert run(body, Once())["said"] == [(0, 2), (1, 2)]


def test_lines_stay_what_they_are() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        run("for number in range(2):\n    with tf.GradientTape() as tape:\n        loss = 1\n    number / 0\n", Once())
    lines = (PRELUDE + "for\n with\n  loss\n number / 0").splitlines()
    assert raised.traceback[-1].lineno + 1 == len(lines)


def test_modules_of_the_user_are_read_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{PRELUDE}def step(number):\n    with tf.GradientTape():\n        loss = number\n    return loss\n"
    (tmp_path / "steps_of_a_user.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "steps_of_a_user", raising=False)
    guard = Guard()
    guard.deciding = Once()
    with guarding(guard):
        module = importlib.import_module("steps_of_a_user")
        assert [module.step(number) for number in (3, 4)] == [3, 3]
