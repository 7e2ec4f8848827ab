"""``xttsbench sweep`` on targets of known speed, in real processes: a winner, a kill and going on, and a budget."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.scripts import why_nothing_is_kept
from xttsbench.execution.journal import read_trials

ROOT = Path(__file__).parents[2]
ARMS = ROOT / "tests" / "targets" / "arms.py"
TEXT = (
    f"name: mine\ndescription: a test\ntarget: {ARMS}:waits\nsteps: 10\nwindow_s: 0.4\n"
    "grid: {ms: [40, 20]}\nsweep: {blocks: 6}\nbudget_s: 300\n"
)


def sweep(tmp_path: Path, *options: str, text: str = TEXT) -> subprocess.Popen[str]:
    (tmp_path / "mine.yaml").write_text(text)
    command = [sys.executable, "-P", "-m", "xttsbench", "sweep", "--grid", "mine.yaml", "--out", "out", *options]
    return subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finished(tmp_path: Path) -> list[str]:
    """Ids of the trials whose lines are whole."""
    path = tmp_path / "out" / "trials.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line)["spec"]["trial_id"] for line in lines]


@pytest.mark.measured
def test_a_killed_sweep_goes_on_and_names_the_faster_arm(tmp_path: Path) -> None:
    process = sweep(tmp_path)
    deadline = time.monotonic() + 120
    while len(finished(tmp_path)) < 4:  # parity, and the first process of each
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = finished(tmp_path)

    out, err = sweep(tmp_path, "--resume").communicate(timeout=200)
    assert "Traceback" not in err
    after = finished(tmp_path)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)
    assert {(len(after) - 1) % 3, len(after) >= 1 + 2 * 3} == {0, True}  # parity, and two arms with the baseline again
    best = yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())
    assert (best["config"], best["proven"], 2 <= best["blocks"] <= 6) == ({"ms": 20}, True, True), err
    assert best["effect"]["low"] < 2 < best["effect"]["high"] * 1.1
    assert "ms=20 is" in out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["kind"], report["best"]["arm"]) == ("sweep", "ms=20")

    kept = (tmp_path / "out" / "report.json").read_bytes()
    again = [sys.executable, "-P", "-m", "xttsbench", "report", "out"]
    assert subprocess.run(again, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert (tmp_path / "out" / "report.json").read_bytes() == kept

    _, err = sweep(tmp_path, "--resume", "--seed", "9").communicate(timeout=60)
    assert "the seed was 0 and is 9" in err


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (TEXT.replace("ms: [40, 20]", "ms: [40, 40]"), 5, "a value is there twice"),
        (TEXT + "accelerator: [real, 'emulated:5']\n", 5, "one winner on one device"),
        (TEXT + "sweeep: {}\n", 5, "did you mean 'sweep'"),
    ],
)
def test_a_grid_that_is_none_is_refused_in_one_sentence(tmp_path: Path, text: str, code: int, said: str) -> None:
    process = sweep(tmp_path, text=text)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_when_every_arm_fails_the_baseline_is_kept(tmp_path: Path) -> None:
    text = TEXT.replace("grid: {ms: [40, 20]}", "base: {ms: 5}\narms:\n- {id: a}\n- {id: b, config: {act: raise}}")
    process = sweep(tmp_path, text=text)
    out, err = process.communicate(timeout=120)
    best = yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())
    assert (best["arm"], best["proven"]) == ("a", False), err
    assert "the tenth batch is broken" in best["why"]
    assert len([trial for trial in read_trials(tmp_path / "out") if trial.spec.arm == "b"]) == 1
    assert "a is kept" in out


SMALL_DISK = """
mkdir small && mount -t tmpfs -o size=$1 none small && shift && cd small || exit 99
"$@"
code=$?
cd .. && cp -r small/out . && exit $code
"""


@pytest.mark.slow
@pytest.mark.skipif(why_nothing_is_kept() is not None, reason="no namespaces are to be had here")
@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("44k", "The journal out/trials.jsonl cannot be written: No space left on device."),
        ("80k", "The report in out cannot be written: No space left on device. What was measured is kept; "),
    ],
)
def test_a_full_disk_is_said_and_costs_nothing_that_was_written_before(tmp_path: Path, size: str, said: str) -> None:
    (tmp_path / "mine.yaml").write_text(TEXT)
    own_disk = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, "sh", size]
    command = [sys.executable, "-P", "-m", "xttsbench", "sweep", "--grid", "../mine.yaml", "--out", "out"]
    done = subprocess.run([*own_disk, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (5, False), done.stderr
    assert said in done.stderr
    assert len(finished(tmp_path)) >= 2
    assert finished(tmp_path) == [trial.spec.trial_id for trial in read_trials(tmp_path / "out")]
    assert not (tmp_path / "out" / "best.yaml").exists()
    assert not list((tmp_path / "out").rglob(".*"))
