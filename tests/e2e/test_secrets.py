"""Secrets, and names that are not UTF-8, from a real command line through a real script to every file and screen."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "targets" / "scripts"
MARKER = "Mark3r-0f-a-secret"
CHECKS = b"""
import os, sys
assert os.fsencode(sys.argv[0]).endswith(b"x\\xe9.py") and os.path.exists(sys.argv[0]), sys.argv
assert sys.argv[1:] == ["--api-key=%s", "arg\\udcff"] and os.path.basename(os.getcwd()) == "caf\\udce9", sys.argv
raise ValueError("no " + sys.argv[1] + sys.argv[2])
""" % MARKER.encode()


def called(command: str, *arguments: bytes, cwd: bytes, **variables: str) -> subprocess.CompletedProcess[bytes]:
    given = [sys.executable, "-m", "xttsbench", command, *arguments]
    return subprocess.run(given, cwd=cwd, env=os.environ | variables, capture_output=True, timeout=300, check=False)


def kept(run: Path) -> str:
    files = [path for path in run.rglob("*") if path.is_file() and path.suffix not in (".png", ".pb")]
    assert {"plan.json", "environment.json", "trials.jsonl", "report.json"} <= {path.name for path in files}
    for path in files:
        if path.suffix == ".json":
            json.dumps(json.loads(path.read_text(encoding="utf-8"))).encode()
    return "".join(path.read_text(encoding="utf-8") for path in files)


@pytest.mark.parametrize("command", ["watch", "diagnose"])
@pytest.mark.parametrize("terminal", [{"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_names_that_are_not_utf_8_and_secrets_cost_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, terminal: dict[str, str]
) -> None:
    monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "runtime"))
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    Path(os.fsdecode(folder + b"/x\xe9.py")).write_bytes(CHECKS)
    secret = {"TF_HTTP_PASSWORD": MARKER, "MY_TOKEN": MARKER}
    given = [b"x\xe9.py", b"--out", b"r\xe9", b"--", f"--api-key={MARKER}".encode(), b"arg\xff"]
    done = called(command, *given, cwd=folder, **terminal, **secret)
    assert done.returncode == 5, done.stderr
    said = done.stderr[
        done.stderr.rindex(b"Traceback") :
    ]  # the script's own, as Python prints it; what is ours follows
    assert b"ValueError: no --api-key=***arg" in said
    assert b"xttsbench/" not in said
    assert MARKER.encode() not in said.partition(b"\n\n")[2] if command == "watch" else True
    run = Path(os.fsdecode(folder + b"/r\xe9"))
    assert MARKER not in kept(run)
    assert "arg\ufffd" in (run / "report.json").read_text(encoding="utf-8")
    again = called("report", b"r\xe9", b"--json", cwd=folder, **terminal)
    assert again.stdout, again.stderr
    record = json.loads(again.stdout)
    assert "x\ufffd.py" in (record["script"] if command == "watch" else record["target"]["name"])


def test_what_is_typed_wrong_is_not_shown_either(tmp_path: Path) -> None:
    done = called("diagnose", b"m:make", b"--", f"--api-key={MARKER}".encode(), cwd=os.fsencode(tmp_path))
    assert (done.returncode, b"--api-key=***" in done.stderr, MARKER.encode() in done.stderr) == (2, True, False)


@pytest.mark.slow
def test_a_whole_diagnosis_keeps_an_argument_to_itself(tmp_path: Path) -> None:
    given = [str(SCRIPTS / "eager_loop.py").encode(), b"--budget", b"40", b"--out", b"run", b"--redact", b"--", b"60"]
    done = called("diagnose", *given, b"--api-key", MARKER.encode(), cwd=os.fsencode(tmp_path))
    assert done.returncode == 0, done.stderr
    assert MARKER.encode() not in done.stdout + done.stderr
    text = kept(tmp_path / "run")
    assert MARKER not in text
    assert str(SCRIPTS) not in text
    assert str(tmp_path) not in text
    assert called("report", b"run", cwd=os.fsencode(tmp_path)).returncode == 0


@pytest.mark.slow
def test_a_whole_training_says_neither_who_nor_where(tmp_path: Path) -> None:
    data = (b"make", b"--out", b"client-data", b"--utterances", b"12", b"--max-s", b"2")
    assert called("data", *data, cwd=os.fsencode(tmp_path)).returncode == 0
    small = "--no-listening --set batch_size=4 --set model.layers=1 --set model.guided_layers=1 --steps 4 --redact"
    small += " --set training.evaluate_every=2 --checkpoint-every 2 --data client-data --out run"
    done = called("train", *map(os.fsencode, small.split()), cwd=os.fsencode(tmp_path))
    assert done.returncode == 0, done.stderr
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert "manifest.json" in {path.name for path in files}
    who_and_where = {str(tmp_path).encode(), platform.node().encode() + b"."}
    for path in files:
        told = path.name.encode() + path.read_bytes()
        assert not [one for one in who_and_where if one in told and len(one) > 3], path
    assert not (tmp_path / "run" / "tensorboard").exists()  # whose files are named after the machine
