"""``xttsbench prove`` on two revisions of a file: the same data and the speed of both, or the first difference."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.parent import python

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")

OLD = """\
import time

import numpy as np
import tensorflow as tf
from rows import X


def load(row):
    time.sleep(0.002)
    return X[row]


def make():
    rows = tf.data.Dataset.range(64)
    return rows.map(lambda row: tf.ensure_shape(tf.numpy_function(load, [row], tf.float32), (4,))).batch(8)
"""
FASTER = OLD.replace("tf.float32), (4,)))", "tf.float32), (4,)), num_parallel_calls=4)")
ROWS = 'import numpy as np\n\nX = np.arange(256, dtype="float32").reshape(64, 4)\n'


@pytest.fixture
def prove(on_one_helper, called, monkeypatch, tmp_path):
    """``prove(source, *options, rows=...)``: the committed version against these files: exit code and record."""
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "data.py").write_text(OLD)
    (tmp_path / "rows.py").write_text(ROWS)
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "old"]):
        subprocess.run([*git, *words], check=True)

    def run(source: str, *options: str, rows: str = ROWS) -> tuple[Any, dict[str, Any]]:
        Path("data.py").write_text(source)
        Path("rows.py").write_text(rows)
        target = f"{tmp_path}/data.py:make"
        code, shown, err = called("prove", f"{target}@main", target, "--json", *options)
        assert shown, err
        return code, json.loads(shown)

    return run


@pytest.mark.measured
def test_a_faster_version_with_the_same_data_passes_and_is_timed(prove) -> None:
    code, report = prove(FASTER, "--budget", "90")
    proof = report["proof"]
    assert (code, proof["outcome"], proof["semantics"]["how"], proof["speed"]) == (0, "same", "identical", "passed")
    assert proof["semantics"]["rows"] == proof["semantics"]["rows_of"] == 64
    new = next(arm for arm in report["arms"] if arm["id"] == "new")
    assert new["effect"]["estimate"] > 1.3
    screen = python("-m", "xttsbench", "report", next(Path("reports").iterdir())).stdout
    assert len(screen.splitlines()) <= 25
    assert "64 rows of the 64 that an epoch yields" in " ".join(screen.split())


def test_a_helper_that_another_revision_has_otherwise_is_told_with_both_values(prove) -> None:
    code, report = prove(OLD, "--no-timing", rows=ROWS + "X[41, 2] += 0.5\n")
    proof = report["proof"]
    assert (code, proof["outcome"], proof["speed"]) == (1, "differs", "not measured")
    assert {name: proof["place"][name] for name in ("epoch", "element", "row")} == {"epoch": 0, "element": 5, "row": 1}
    assert (proof["shown"]["where"], proof["shown"]["old"], proof["shown"]["new"]) == ("[2]", "166", "166.5")


def test_what_counts_its_calls_is_not_proved_to_be_the_same_in_parallel(prove) -> None:
    seen = OLD.replace("    time.sleep(0.002)\n", "    SEEN.append(row)\n").replace(
        "def load", "SEEN = []\n\n\ndef load"
    )
    code, report = prove(seen.replace("(4,)))", "(4,)), num_parallel_calls=4)"), "--no-timing")
    assert (code, report["proof"]["outcome"]) == (3, "not proved")
    assert "load() at data.py:12" in report["proof"]["semantics"]["sentence"]
    assert report["proof"]["remedy"] == "make the function depend on its arguments alone"


@pytest.mark.parametrize(("result", "code", "outcome"), [("X[row]", 0, "same"), ("X[len(SEEN) % 64]", 1, "differs")])
def test_the_users_word_clears_the_code_and_never_what_is_seen(prove, result: str, code: int, outcome: str) -> None:
    """A function whose rows depend on how often it was called gives others where calls overtake one another."""
    counts = OLD.replace("    time.sleep(0.002)\n", "    SEEN.append(row)\n    time.sleep(0.002)\n")
    counts = counts.replace("def load", "SEEN = []\n\n\ndef load").replace("X[row]", result)
    parallel = counts.replace("(4,)))", "(4,)), num_parallel_calls=4)")
    Path("data.py").write_text(counts)
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "counts"], check=True)
    found, report = prove(parallel, "--no-timing", "--assume-pure", "data.load")
    assert (found, report["proof"]["outcome"]) == (code, outcome)
    assert ("on your word, data.load" in report["proof"]["semantics"]["sentence"]) == (code == 0)


@pytest.mark.slow
def test_a_loop_with_batches_of_its_own_is_held_against_one_over_a_dataset(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    old = (Path(__file__).parents[1] / "targets" / "scripts" / "own_loops.py").read_text()
    spec = "(tf.TensorSpec((None, 32), tf.float32), tf.TensorSpec((None, 1), tf.float32))"
    around = f"batches = tf.data.Dataset.from_generator(lambda: clips, output_signature={spec}).prefetch(2)\n"
    new = old.replace("for _ in range(20):", f"{around}for _ in range(20):")
    Path("old.py").write_text(old)
    Path("new.py").write_text(new.replace("for x, y in clips:", "for x, y in batches.as_numpy_iterator():"))
    Path("none.py").write_text("import tensorflow as tf\n\nprint(tf.zeros([3]))\n")
    for file, code in (("new.py", 0), ("none.py", 3)):
        done = python("-m", "xttsbench", "prove", "old.py", file, "--no-timing", "--", "plain")
        assert done.returncode == code, done.stderr
        assert ("bit for bit" in done.stdout) if code == 0 else ("no loop of none.py was seen to train" in done.stderr)
