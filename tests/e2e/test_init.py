"""What ``xttsbench init`` writes runs under ``xttsbench diagnose``, as the line that it prints says."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.e2e.parent import python

DATA = """
import tensorflow as tf

def make_dataset(size=8):
    return tf.data.Dataset.from_tensors(tf.ones([size, 4])).repeat()
"""


@pytest.mark.parametrize("options", [(), ("--dataset", "mine/data.py:make_dataset")])
def test_what_is_written_is_diagnosed(tmp_path, options) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.py").write_text(DATA)
    written = json.loads(python("-m", "xttsbench", "init", "--json", *options, cwd=tmp_path).stdout)
    command = shlex.split(written["command"])[1:]
    done = python("-m", "xttsbench", *command, "--json", "--budget", "12", "--no-verify", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["target"]["status"] == "ok", report["target"]
    assert report["verdict"]["step_time_s"]["estimate"] > 0
