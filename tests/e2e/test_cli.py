"""The command as a user types it: help, JSON, the checkout's door, a report built again, and whose modules are loaded.

TensorFlow takes seconds to import and a diagnosis ten at least, so one run is looked at from several sides.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.e2e.parent import ROOT, WITHOUT_TENSORFLOW, python
from xttsbench.records.base import SCHEMA_VERSION

BAD = ROOT / "tests" / "targets" / "bad.py"

ENTRY = """
import os
import tensorflow as tf
import cli
import training

def make(size=4):
    print("printed by the target {", flush=True)
    os.write(1, b"written by the target\\n")
    assert (cli.whose, training.whose) == ("theirs", "theirs"), (cli.__file__, training.__file__)
    weights = tf.Variable(tf.ones([16, 16]))

    @tf.function
    def step(batch):
        print("traced by the target", flush=True)
        weights.assign_add(1e-9 * tf.matmul(batch, batch, transpose_a=True))
        return tf.reduce_sum(weights)

    return tf.data.Dataset.from_tensors(tf.ones([size, 16])).repeat().prefetch(2), step
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A user's folder with a package ``training``, a ``cli.py`` and a target, far from ours."""
    home = tmp_path_factory.mktemp("home")
    (home / "training").mkdir()
    (home / "training" / "__init__.py").write_text("whose = 'theirs'\n")
    (home / "cli.py").write_text("whose = 'theirs'\n")
    (home / "entry.py").write_text(ENTRY)
    return home


@pytest.fixture(scope="module")
def finished(home):
    """A whole diagnosis with ``--json`` and ``--profile``, in a parent that cannot import TensorFlow."""
    options = ("--json", "--show-output", "--profile", "--budget", "14", "--set", "size=8", "--out", "run")
    return python("-c", WITHOUT_TENSORFLOW, "diagnose", "entry:make", *options, cwd=home)


def test_a_diagnosis_ends_well_in_a_parent_without_tensorflow(finished):
    assert finished.returncode == 0, finished.stderr
    assert "the parent imported" not in finished.stderr
    assert "Traceback" not in finished.stderr


def test_standard_output_is_one_json_document_whatever_the_target_prints(finished, home):
    record = json.loads(finished.stdout)
    assert record["schema_version"] == SCHEMA_VERSION
    assert record == json.loads((home / "run" / "report.json").read_text(encoding="utf-8"))
    for text in ("printed by the target {", "written by the target", "traced by the target"):
        assert text in finished.stderr
        assert text not in finished.stdout


def test_a_user_s_own_modules_are_found_and_not_ours(finished):
    record = json.loads(finished.stdout)
    assert record["target"]["status"] == "ok", record["target"]["error"]
    assert record["target"]["kwargs"] == {"size": 8}


def test_a_profile_is_kept_for_tensorboard(finished, home):
    assert list((home / "run" / "profile").glob("plugins/profile/*/*.xplane.pb"))
    assert json.loads(finished.stdout)["profile"]["steps"] == 20


def test_the_run_s_directory_is_whole(finished, home):
    names = {path.name for path in (home / "run").iterdir()}
    assert {"report.json", "report.md", "report.html", "trials.jsonl", "environment.json", "plots", "profile"} <= names


def test_every_number_that_is_missing_has_its_reason(finished):
    verdict = json.loads(finished.stdout)["verdict"]
    assert None not in verdict.values()
    assert verdict["accelerator_utilization"]["missing"].startswith("no accelerator")


def test_a_report_built_again_is_the_same_to_the_byte(finished, home):
    texts = {name: (home / "run" / name).read_bytes() for name in ("report.json", "report.md", "report.html")}
    for name in texts:
        (home / "run" / name).unlink()
    again = python("-c", WITHOUT_TENSORFLOW, "report", "run", "--json", cwd=home)
    assert again.returncode == finished.returncode, again.stderr
    assert again.stdout == finished.stdout
    for name, before in texts.items():
        assert (home / "run" / name).read_bytes() == before, name


@pytest.mark.parametrize("missing", ["trials.jsonl", "plan.json", "environment.json"])
def test_a_directory_that_is_no_run_is_told(tmp_path, finished, home, missing):
    for name in {"trials.jsonl", "plan.json", "environment.json"} - {missing}:
        (tmp_path / name).write_bytes((home / "run" / name).read_bytes())
    result = python("-m", "xttsbench", "report", tmp_path, cwd=home)
    assert result.returncode == 5
    assert missing in result.stderr
    assert "Traceback" not in result.stderr


def test_a_torn_last_line_of_the_journal_costs_that_line_only(tmp_path, finished, home):
    for name in ("trials.jsonl", "plan.json", "environment.json"):
        (tmp_path / name).write_bytes((home / "run" / name).read_bytes())
    with (tmp_path / "trials.jsonl").open("ab") as file:
        file.write(b'{"schema_version": 1, "spec": {"trial')
    result = python("-m", "xttsbench", "report", tmp_path, "--json", cwd=home)
    assert result.returncode == finished.returncode
    before, after = json.loads(finished.stdout), json.loads(result.stdout)
    assert after["verdict"] == before["verdict"]


@pytest.fixture(scope="module")
def from_the_checkout(tmp_path_factory):
    """``python cli.py diagnose`` of a target that is traced at every step, with a gate."""
    out = tmp_path_factory.mktemp("checkout") / "run"
    options = ("--budget", "12", "--fail-on", "info", "--out", out)
    target = ROOT / "tests" / "targets" / "bottlenecks.py"
    return python("cli.py", "diagnose", f"{target}:retraces", *options, cwd=ROOT), out


def test_the_checkout_s_door_diagnoses_and_the_gate_fails_it(from_the_checkout):
    result, out = from_the_checkout
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    limiting = [finding for finding in report["findings"] if finding["limiting"]]
    assert report["verdict"]["bottleneck"] == "compile"
    assert limiting
    assert result.returncode == 1, result.stderr
    assert f"--fail-on info: {limiting[0]['rule']}" in result.stderr.splitlines()[-1]
    assert "COMPILE" in result.stdout
    assert f"{out}/report.html" in "".join(result.stdout.split())
    assert "\x1b" not in result.stdout + result.stderr


def test_without_the_gate_the_same_run_is_done(from_the_checkout):
    _, out = from_the_checkout
    assert python("-m", "xttsbench", "report", out, cwd=ROOT).returncode == 0


def test_a_reader_that_goes_away_is_no_traceback(finished, home):
    command = f"{sys.executable} -m xttsbench report run --json | head -c 1"
    result = subprocess.run(
        command,
        shell=True,
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
