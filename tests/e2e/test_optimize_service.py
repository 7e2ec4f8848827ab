"""The fix ``service:n`` as a user asks for it: verified on this machine, and its patch run beside real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.parent import ROOT, python
from tests.e2e.test_optimize import run
from tests.patching import apply_patch

TARGET = """
import tensorflow as tf


def make():
    rows = tf.data.Dataset.range(64)
    rows = rows.map(lambda x: x * x)
    return rows.batch(8)
"""
PATCH = """
import sys
from pathlib import Path
from xttsbench.pipeline import places
places.install()
import data
from xttsbench.fixes.patch import propose
from xttsbench.pipeline.read import inspect
from xttsbench.records.fix import FixSet
read = lambda file: Path(file).read_text()
patch = propose(FixSet.parse("service:2"), inspect(data.make()), read, own=lambda _: True)
assert not patch.unpatched, patch.unpatched
sys.stdout.write(patch.diff.replace(str(Path.cwd()).lstrip("/") + "/", ""))
"""
READS = "import data; print(*(int(x) for batch in data.make() for x in batch))"


@pytest.fixture
def servers() -> Iterator[str]:
    """Address of a dispatcher with two workers, each started as the patch's page says."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> str:
        command = [sys.executable, "-m", "xttsbench", "service", *arguments, "--host", "localhost"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout is not None
        return started[-1].stdout.readline().strip()

    address = start("dispatcher")
    for _ in range(2):
        start("worker", "--dispatcher", address)
    yield address
    for one in started:
        with one:
            one.kill()


@pytest.mark.slow
def test_the_patch_reads_from_the_servers_that_its_variable_names(servers: str, tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(TARGET)
    diff = python("-c", PATCH, cwd=tmp_path)
    assert diff.returncode == 0, diff.stderr
    apply_patch(diff.stdout, tmp_path)
    text = (tmp_path / "data.py").read_text()
    assert "import os\n    return rows.batch(8).apply(tf.data.experimental.service.distribute(" in text
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TF_DATA_SERVICE": servers, "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", READS], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Counter(map(int, done.stdout.split())) == Counter(number**2 for number in range(64))


@pytest.mark.slow
@pytest.mark.measured
def test_workers_help_an_input_that_waits_and_its_samples_are_proved(tmp_path: Path) -> None:
    ran = run(
        "fixable.py:waits_outside_python", tmp_path, "--try", "service:2", "--accelerator", "emulated:5", budget_s=240
    )
    fix = ran.fixes["service:2"]
    assert (fix["outcome"], fix["semantics"]["how"]) == ("accepted", "other order"), fix["why"]
    assert fix["verified_speedup"]["low"] > 1.2


@pytest.mark.slow
def test_what_is_asked_for_and_cannot_leave_is_refused_with_its_line(tmp_path: Path) -> None:
    ran = run("fixable.py:sleeps", tmp_path, "--try", "service:2", "--accelerator", "emulated:10", budget_s=60)
    fix = ran.fixes["service:2"]
    assert fix["outcome"] != "accepted"
    assert "fixable.py:" in fix["why"]
    assert "_slow_row" in fix["why"]
