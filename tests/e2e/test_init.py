"""What ``xttsbench init`` writes runs under ``xttsbench diagnose``, as the line that it prints says."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = """
import tensorflow as tf

def make_dataset(size=8):
    return tf.data.Dataset.from_tensors(tf.ones([size, 4])).repeat()
"""


def run(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "xttsbench", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("--dataset", "mine/data.py:make_dataset")])
def test_what_is_written_is_diagnosed(tmp_path, options) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.py").write_text(DATA)
    written = json.loads(run(["init", "--json", *options], tmp_path).stdout)
    command = shlex.split(written["command"])[1:]
    done = run([*command, "--json", "--budget", "12", "--no-verify"], tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["target"]["status"] == "ok", report["target"]
    assert report["verdict"]["step_time_s"]["estimate"] > 0
