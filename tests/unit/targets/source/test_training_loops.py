"""Where loops that train get their batches: what is told, and that the code does the same as without it."""

from __future__ import annotations

import textwrap
import traceback
from typing import Any

import pytest

from xttsbench.targets.source.rewritten import code_of
from xttsbench.targets.source.training_loops import Hearing, Loops, hearing

PRELUDE = """
class Tape:
    def __enter__(self): return self
    def __exit__(self, *_): pass
class tf:
    GradientTape = Tape
    @staticmethod
    def function(step): return step
seen = []
def step(batch):
    with tf.GradientTape() as tape:
        seen.append(batch)
"""


class Recording(Hearing):
    """Writes down what it hears."""

    def __init__(self, loops: Loops) -> None:
        self.places = loops.places
        self.told: list[Any] = []

    def over(self, iterable: Any, number: int, anew: Any) -> Any:
        """Goes over the same, and tells of each element."""
        for element in iterable:
            self.told.append((self.places[number].text, element))
            yield element

    def take(self, make: Any, number: int) -> Any:
        """Tells of what the call gives."""
        self.told.append((self.places[number].text, batch := make()))
        return batch

    def asks(self, number: int) -> None:
        """Tells so."""
        self.told.append(f"asks {self.places[number].line}")

    def came(self, number: int) -> None:
        """Tells so."""
        self.told.append("came")

    def got(self, batch: Any, number: int) -> None:
        """Tells so."""
        self.told.append((self.places[number].text, batch))


def ran(body: str, *, heard: bool = True) -> tuple[list[Any], dict[str, Any]]:
    """Runs a script: what was told, and its names."""
    loops, known = Loops(), {}
    recording = Recording(loops)
    if heard:
        loops.hearing = recording
    with hearing(loops):
        exec(code_of((PRELUDE + textwrap.dedent(body)).encode(), "/somewhere/train.py"), known)
    return recording.told, known


SAME = [("for x in [1, 2]", 1), ("for x in [1, 2]", 2)]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("for x in [1, 2]:\n    step(x)", SAME),
        ("train = tf.function(step)\nfor x in [1, 2]:\n    train(x)", SAME),
        ("def once(x):\n    step(x)\nfor epoch in range(1):\n    for x in [1, 2]:\n        once(x)", SAME),
        ("for x in [1, 2]:\n    with tf.GradientTape():\n        seen.append(x)", SAME),
        ("for x in [1, 2]:\n    if x:\n        step(x)\n    else:\n        pass", SAME),
        ("def main():\n    for x in [1, 2]:\n        step(x)\nmain()", SAME),
        ("for number, (x, y) in enumerate([(1, 2)]):\n    step(x)",
         [("for number, (x, y) in enumerate([(1, 2)])", (1, 2))]),
        # A loop over numbers, whose batch a statement asks for.
        ("it = iter([5, 6])\nfor number in range(2):\n    x = next(it)\n    step(x)",
         ["asks 15", "came", ("x = next(it)", (5,)), "asks 15", "came", ("x = next(it)", (6,))]),
        ("n, it = 0, iter([5])\nwhile n < 1:\n    a = next(it)\n    b = [a, 7][1]\n    y = 3\n    step((b, y))\n"
         "    n += 1",
         ["asks 15", "came", ("a = next(it)", (7,))]),
        ("it = iter([5])\nwhile True:\n    try:\n        x = next(it)\n        step(x)\n    except StopIteration:\n"
         "        break", ["asks 16", "came", ("x = next(it)", (5,)), "asks 16", "came"]),
        ("it = iter([5])\nfor n in range(1):\n    x = next(it)\n    with tf.GradientTape():\n        y = abs(x)\n"
         "        step(y)", ["asks 15", "came", ("x = next(it)", (5,))]),
        # What the model makes of a batch is none, nor what is made of that.
        ("model, it = abs, iter([5])\nfor n in range(1):\n    x = next(it)\n    q = model(x)\n    y = max([q, x])\n"
         "    with tf.GradientTape():\n        seen.append(model(x) + y)", ["asks 15", "came", ("x = next(it)", (5,))]),
        # An argument that is made in the call that trains.
        ("it = iter([5, 6])\nfor n in range(2):\n    step(next(it))", [("next(it)", 5), ("next(it)", 6)]),
        ("it = iter([[5]])\nwhile not seen:\n    y = step(*next(it))", [("next(it)", [5])]),
        ("data = [7]\nfor n in range(1):\n    loss = abs(step(data[n]) or 1)", [("data[n]", 7)]),
        # A part of data that were loaded before, by the loop's number.
        ("data = [7, 8]\nfor n in range(2):\n    with tf.GradientTape():\n        seen.append(data[n])",
         [("data[n]", 7), ("data[n]", 8)]),
        ("for epoch in range(1):\n    data = abs(-5), 6\n    for n in range(2):\n        with tf.GradientTape():\n"
         "            seen.append(abs(data[n]))", [("data[n]", 5), ("data[n]", 6)]),
        # Nothing is told of what trains nothing, hands nothing over, or only defines what would.
        ("for x in [1, 2]:\n    seen.append(x)", []),
        ("for x in [1, 2]:\n    def later():\n        step(x)", []),
        ("for number in range(2):\n    step(number)", []),
        ("loss = 1\nfor x in [1]:\n    print(loss)", []),
    ],
)  # fmt: skip
def test_each_place_that_gives_a_batch_is_told(body: str, told: list[Any]) -> None:
    assert ran(body)[0] == told


@pytest.mark.parametrize(
    "body",
    [
        "it = iter([1, 2])\nwhile True:\n    try:\n        x = next(it)\n        step(x)\n    except StopIteration:\n"
        "        break",
        "it = iter([1, 2])\nfor n in range(9):\n    x = next(it, None)\n    if x is None:\n        break\n    step(x)",
        "for x in [1, 2, 3]:\n    if x == 2:\n        continue\n    step(x)\nelse:\n    seen.append('else')",
        "def items():\n    try:\n        yield 1\n        yield 2\n    finally:\n        seen.append('closed')\n"
        "for x in items():\n    step(x)\n    break\nimport gc; gc.collect()",
    ],
)
def test_a_loop_does_the_same_when_it_is_heard(body: str) -> None:
    assert ran(body)[1]["seen"] == ran(body, heard=False)[1]["seen"] != []


def test_lines_of_a_traceback_are_the_user_s() -> None:
    body = "it = iter([1])\nfor n in range(3):\n    x = next(it)\n    step(x)"
    with pytest.raises(StopIteration) as raised:
        ran(body)
    places = [
        one.lineno for one in traceback.extract_tb(raised.value.__traceback__) if one.filename.endswith("train.py")
    ]
    assert places == [15]


def test_statements_in_a_loop_over_batches_know_that_loop() -> None:
    loops = Loops()
    with hearing(loops):
        code_of((PRELUDE + "for x in [1]:\n    y = abs(x)\n    step(y)\n").encode(), "/somewhere/train.py")
    assert [(one.text, one.over) for one in loops.places] == [("for x in [1]", None), ("y = abs(x)", 0)]


def test_functions_of_files_beside_train_too(tmp_path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "agent.py").write_text(
        "class Agent:\n    def learn(self, x):\n        self.opt.minimize(x)\n"
    )
    for imported in ("from agents.agent import Agent", "import agents.agent", "from agents import agent"):
        loops = Loops()
        with hearing(loops):
            code_of(f"{imported}\nfor x in data:\n    one.learn(x)\n".encode(), str(tmp_path / "train.py"))
        assert [one.text for one in loops.places] == ["for x in data"]
