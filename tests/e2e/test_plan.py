"""``xttsbench plan`` as a user types it: after a diagnosis, with workers of this machine, with prices, and again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.parent import WITHOUT_TENSORFLOW, python

pytestmark = pytest.mark.measured

DATA = """
import tensorflow as tf


def burned(number):
    start, goes_on = [0, tf.cast(number, tf.float32)], lambda turn, _: turn < 250
    return tf.while_loop(goes_on, lambda turn, value: (turn + 1, value * 1.000001), start)[1]


def make():
    return tf.data.Dataset.range(4000).map(burned).batch(8)
"""
SCRIPT = "import data\nfor batch in data.make().take(300):\n    pass\n"
PRICES = "currency: EUR\ntrainer_per_hour: 2\nmachines:\n  - {name: small, cores: 1, price_per_hour: 0.1}\n"


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("plan")
    for name, text in (("data.py", DATA), ("train.py", SCRIPT), ("machines.yaml", PRICES)):
        (made / name).write_text(text, "utf-8")
    options = ("--accelerator", "emulated:10", "--no-verify", "--budget", 40, "--out", "run")
    done = python("-m", "xttsbench", "diagnose", "data.py:make", *options, cwd=made)
    assert done.returncode == 0, done.stderr
    return made


def test_workers_of_this_machine_are_measured_beside_what_is_planned_and_prices_are_asked_again(
    folder, tmp_path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    done = python("-m", "xttsbench", "plan", "run", "--measure", 2, "--out", first, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "The input on workers of this machine" in done.stdout
    scale = read(first)["scale"]
    rates = scale["proof"]["rates"]
    assert [one["workers"] for one in rates] == [1, 2]
    assert rates[1]["measured_per_s"]["estimate"] > 1.3 * rates[0]["measured_per_s"]["estimate"]
    assert scale["proof"]["needed"]["low"] >= 2
    # Asked again it measures nothing, so that it wants no TensorFlow.
    again = ("plan", first, "--prices", "machines.yaml", "--out", second)
    done = python("-c", WITHOUT_TENSORFLOW, *again, cwd=folder, timeout_s=60)
    assert done.returncode == 0, done.stderr
    choice = read(second)["scale"]["choices"][0]
    assert (choice["machine"], choice["price_per_hour"]) == ("small", pytest.approx(2 + 0.1 * choice["workers"]))


def test_the_input_of_a_script_is_not_run_on_workers(folder, tmp_path) -> None:
    options = ("--no-verify", "--budget", 40, "--out", tmp_path / "script")
    done = python("-m", "xttsbench", "diagnose", "train.py", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    done = python("-m", "xttsbench", "plan", tmp_path / "script", "--measure", 2, cwd=folder)
    assert done.returncode == 5
    assert "is a script; name a function that makes its dataset" in done.stderr
