"""``%%xttsbench`` in IPython's own shell: a cell is run once and whole, watched, and its page is shown below it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from keras.src.backend.tensorflow import trainer
from tensorflow.python.data.ops import iterator_ops

import xttsbench
from xttsbench.execution.journal import read_trials

Cell = Callable[[str], Any]


def slow(index: np.int64) -> Any:
    time.sleep(0.002)
    return np.full([4], index % 7, np.float32)


def rows() -> tf.data.Dataset:
    elements = tf.data.Dataset.range(1_000_000).map(
        lambda index: (tf.ensure_shape(tf.numpy_function(slow, [index], tf.float32), [4]), 1.0)
    )
    return elements.batch(4)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)  # the same one in a second try
    made = InteractiveShell.instance(colors="nocolor")
    made.history_manager.enabled = False
    made.user_ns |= {"tf": tf, "np": np, "rows": rows, "xttsbench": xttsbench}
    made.run_line_magic("load_ext", "xttsbench")
    yield made
    made.history_manager.end_session()
    InteractiveShell.clear_instance()


@pytest.fixture
def run(shell: InteractiveShell) -> Cell:
    """Runs a cell as a notebook does; the result has what it ``printed`` and ``shown``."""

    def cell(source: str) -> Any:
        with capture_output() as captured:
            result = shell.run_cell(source, store_history=True)
        result.printed, result.shown = captured.stdout, [one.data for one in captured.outputs]
        return result

    return cell


def text_of(result: Any) -> str:
    """What a console would show of the page below a cell."""
    (shown,) = result.shown
    assert shown["text/html"].startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    return str(shown["text/plain"])


MODEL = """
model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(rows().take(2), verbose=0)
"""


@pytest.mark.measured
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
def test_fit_is_watched_in_each_cell_and_tensorflow_is_as_it_was_afterwards(run: Cell, shell: InteractiveShell) -> None:
    as_it_was = trainer.TensorFlowTrainer.fit, iterator_ops.OwnedIterator.__next__, threading.active_count()
    assert run(MODEL).success  # which traces its function before anyone watches
    for name in ("first", "second"):
        result = run(
            f"%%xttsbench {name}\nhistory = model.fit(rows().take(40), epochs=2, verbose=0)\nlen(history.epoch)"
        )
        assert result.success
        assert "Out[" in result.printed
        assert text_of(result).splitlines()[1].startswith("LIKELY INPUT")
        (trial,) = read_trials(Path(name))
        assert trial.watched.steps > 70  # but for the warm-up, and steps whose ops are counted
    assert shell.user_ns["history"].epoch == [0, 1]
    steps = xttsbench.read_report(name).frames.steps()
    assert steps["wait_ns"].median() > 4 * 2e6
    assert (trainer.TensorFlowTrainer.fit, iterator_ops.OwnedIterator.__next__, threading.active_count()) == as_it_was


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
def test_the_cells_of_the_page_run(run: Cell) -> None:
    page = (Path(__file__).parents[2] / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert run(MODEL + "dataset = rows().take(30)").success
    cells = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [run(cell).success for cell in cells] == [True, True]


@pytest.mark.measured
def test_a_loop_is_watched_and_its_error_stays_its_own(run: Cell, shell: InteractiveShell) -> None:
    loop = """%%xttsbench
weight, seen = tf.Variable(1.0), 0
for batch, _ in rows().take(60):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(batch * weight)
    weight.assign_sub(1e-9 * tape.gradient(loss, weight))
    seen += 1
    ONE_MORE"""
    assert run("1 / 0").success is False  # an error of another cell
    assert "LIKELY INPUT" in text_of(whole := run(loop.replace("ONE_MORE", "")))
    assert whole.success
    assert shell.user_ns["seen"] == 60
    assert len([*Path("reports").glob("*-watch-cell*")]) >= 1
    assert "warning" not in whole.shown[0]["text/plain"]
    broken = run(loop.replace("ONE_MORE", "if seen == 40: raise KeyError('mine')"))
    assert isinstance(broken.error_in_exec, KeyError)
    assert broken.printed.count("KeyError: 'mine'") == 1
    assert "raise KeyError('mine')" in broken.printed
    assert "KeyError: 'mine'" in text_of(broken)
    assert shell.user_ns["seen"] == 40


def test_data_that_tensorflow_knows_nothing_of_are_seen_where_they_are_named(run: Cell) -> None:
    data = "[np.ones([2, 2], 'f') for _ in range(40)]"
    assert "LIKELY" in text_of(run(f"%%xttsbench\nfor batch in xttsbench.watched({data}):\n    tf.reduce_sum(batch)"))


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("answer = 42", None),
        ("for x in (:\n    pass", SyntaxError),
        ("import nothing_of_that_name", ModuleNotFoundError),
    ],
)
def test_a_cell_without_a_step_says_so_in_a_sentence_or_raises_its_own_error(run: Cell, cell: str, error: Any) -> None:
    result = run(f"%%xttsbench\n{cell}")
    assert type(result.error_in_exec) is (error or type(None))
    assert result.shown == []
    if error is None:
        assert result.printed.startswith("No training step was seen in this cell: ")
    else:
        assert result.printed.count(f"{error.__name__}: ") == 1


def test_a_directory_that_is_taken_is_refused_before_the_cell_runs(run: Cell, shell: InteractiveShell) -> None:
    Path("taken").mkdir()
    Path("taken/mine.txt").touch()
    result = run("%%xttsbench taken\nran = True")
    assert type(result.error_in_exec).__name__ == "UsageError"
    assert "ran" not in shell.user_ns
