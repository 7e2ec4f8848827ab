"""Tests of a script that look at what its training step returned, found in the text."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from xttsbench.records.pipeline import CallSite
from xttsbench.targets.source.returned import branch_on_argument as of_argument
from xttsbench.targets.source.returned import branch_on_step as of_step

LOOPS = {
    "if loss < 0.1: break": "loss < 0.1",
    "if float(loss) < 0.1 and epoch: break": "float(loss) < 0.1 and epoch",
    "value = loss.numpy(); losses.append(value)\n        if np.mean(losses) < 1: break": "np.mean(losses) < 1",
    "logs['loss'] = loss\n        if logs['loss'] > 3: raise ValueError": "logs['loss'] > 3",
    "self.last = loss\n        while self.last > 2: pass": "self.last > 2",
    "for one in (loss, 1):\n            if one: print(one)": "one",
    "(a, b) = split(loss)\n        if not b: break": "not b",
    "metric.update_state(loss)\n        if metric.result() > 1: break": "metric.result() > 1",
    "print(float(loss)); losses.append(float(loss)); writer.scalar('loss', loss)": None,
    "if tf.math.is_nan(loss) or not np.isfinite(loss): raise ValueError": None,
    "if loss is None or len(losses) > 4: break": None,
    "if loss.shape[0] == 2: pass": None,
    "best = loss if loss < best else best": None,
    "loss = 3\n        if loss < 4: pass": None,
    "if step % 10 == 0: print(loss)": None,
}


@pytest.mark.parametrize(("body", "test"), LOOPS.items())
def test_a_loop_that_looks_at_the_loss_is_found(tmp_path: Path, body: str, test: str | None) -> None:
    lines = (
        "def train(self):",
        "    losses, logs, best = [], {}, 0",
        "    for batch in data:",
        "        loss = step(batch)",
    )
    text = "\n".join((*lines, f"        {body}", ""))
    file = tmp_path / "train.py"
    file.write_text(text)
    said = of_step([CallSite(file=str(file), line=4, end_line=4, end_column=len("        loss = step(batch)"))])
    assert (said.rpartition(": ")[2] if said else None) == test


def test_values_are_followed_out_of_the_functions_that_return_them(tmp_path: Path) -> None:
    text = """
    class Trainer:
        def step(self, batch):
            self.loss = compiled(batch)
            return {"loss": self.loss}

        def train(self):
            for batch in data:
                logs = self.step(batch)
            if logs["loss"] < 1:
                return

        def check(self):
            self.step(batch)
            if self.loss < 2:
                return
    """
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(text))
    inner = CallSite(file=str(file), line=4, end_line=4, end_column=len("        self.loss = compiled(batch)"))
    train = CallSite(file=str(file), line=9, end_line=9, end_column=len("            logs = self.step(batch)"))
    check = CallSite(file=str(file), line=14, end_line=14, end_column=len("        self.step(batch)"))
    assert of_step([inner, train]) == f'{file}:10: logs["loss"] < 1'
    assert of_step([inner, check]) == f"{file}:15: self.loss < 2"
    assert of_step([inner]) is None


def test_names_that_a_written_out_step_sets_are_its_results(tmp_path: Path) -> None:
    text = "for batch in data:\n    with tape:\n        loss = batch\n    norm = 1\n    if norm > 2:\n        break\n"
    file = tmp_path / "train.py"
    file.write_text(text)
    site = CallSite(file=str(file), line=2)
    assert of_step([site], (2, 4)) == f"{file}:5: norm > 2"
    assert of_step([site], (2, 3)) is None


def test_a_callback_that_looks_at_its_logs_is_found(tmp_path: Path) -> None:
    text = """
    class Stop:
        def on_epoch_end(self, epoch, logs=None):
            logs = logs or {}
            if logs.get("loss") < 0.1:
                self.model.stop_training = True

        def on_batch_end(self, batch, logs=None):
            if logs and "loss" in logs:
                print(logs["loss"])
    """
    file = tmp_path / "stop.py"
    file.write_text(textwrap.dedent(text))
    assert of_argument(str(file), 3, "logs") == f'{file}:5: logs.get("loss") < 0.1'
    assert of_argument(str(file), 8, "logs") is None
