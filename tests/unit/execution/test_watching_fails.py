"""Whatever fails beside a script that is watched, the script runs to its own end, with its own exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import xttsbench
from tests.scripts import why_nothing_is_kept
from xttsbench.execution import held_back
from xttsbench.execution.child import SharedRows
from xttsbench.execution.guard import Guard
from xttsbench.execution.watched import Left, _Following, run_whole
from xttsbench.probes.processes import announce, running
from xttsbench.records.trial import TrialSpec

SCRIPT = """
import sys, time
time.sleep(0.7)
open("result", "w").write("kept")
print("said", flush=True)
sys.exit(3)
"""
WATCH = [sys.executable, "-P", "-m", "xttsbench", "watch", "script.py", "--out", "out"]
METHODS = ("take", "tick", "show", "started")


class Listener:
    """Hears of a run; the named methods raise."""

    def __init__(self, *raising: str) -> None:
        self.guard = Guard()
        self.heard: list[str] = []
        for name in METHODS:
            setattr(self, name, self._method(name, raises=name in raising))

    def _method(self, name: str, *, raises: bool) -> Any:
        def heard(*_: object) -> None:
            self.heard.append(name)
            if raises:
                raise ValueError(f"{name} does not work")

        return heard


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def followed(listener: Any) -> Left:
    spec = TrialSpec(trial_id="watch", kind="script", target="script.py")
    with SharedRows(2) as shared, held_back():
        return run_whole(spec, listener, shared, print_to_stderr=True)


@pytest.mark.parametrize("raising", [*((name,) for name in METHODS), METHODS])
def test_a_listener_that_raises_is_noted_once_and_ends_nothing(raising: tuple[str, ...], place: Path) -> None:
    listener = Listener(*raising)
    assert followed(listener) == Left(3, None)
    assert (place / "result").read_text() == "kept"
    assert {"take", "tick", "started"} <= set(listener.heard)
    assert len(listener.guard.lines) == len(set(raising) & set(listener.heard))
    assert all("ValueError: " in line and "\n" not in line for line in listener.guard.lines)


def test_the_script_is_waited_for_where_following_it_fails(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("no following")

    monkeypatch.setattr(_Following, "follow", fails)
    listener = Listener()
    assert followed(listener) == Left(3, None)
    assert (place / "result").read_text() == "kept"
    assert "no following" in listener.guard.lines[0]


def unusable(kind: str, path: Path) -> None:
    if kind == "a file":
        path.write_text("")
    elif kind == "a dangling link":
        path.symlink_to(path.with_name("nowhere") / "deeper")
    elif kind == "somebody else's":
        path.mkdir()
        (path / "watched").mkdir()
        os.chown(path / "watched", 12345, 12345)


@pytest.mark.parametrize("kind", ["a file", "a dangling link", "somebody else's"])
def test_a_runtime_folder_that_is_not_to_be_had_leaves_a_run_unannounced(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "somebody else's" and os.getuid() != 0:
        pytest.skip("only root may give a folder away")
    unusable(kind, tmp_path / "runtime")
    monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "runtime"))
    assert announce(os.getpid(), tmp_path) is None
    assert running() == {}


def test_a_fallback_folder_that_is_somebody_else_s_costs_a_watched_run_nothing(place: Path) -> None:
    """Without XDG_RUNTIME_DIR a folder in the temporary one stands in, which anybody may have made before."""
    if os.getuid() != 0:
        pytest.skip("only root may give a folder away")
    temporary = place / "tmp"
    temporary.mkdir()
    for name in ("runtime-0", "runtime-12345"):
        (temporary / name).mkdir()
        os.chown(temporary / name, 12345, 12345)
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    environment |= {"TMPDIR": str(temporary), "PYTHONPATH": str(Path(xttsbench.__file__).parents[1])}
    environment.pop("XTTSBENCH_RUNTIME", None)
    ran = subprocess.run(WATCH, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "said\n" in ran.stdout, ran.stderr
    assert (place / "result").read_text() == "kept"
    assert '"exit_code":3' in (place / "out" / "summary.json").read_text().replace(" ", "")
    assert "Traceback" not in ran.stderr
    assert ran.returncode == 5, ran.stderr


SMALL_DISK = """
mkdir small && mount -t tmpfs -o size=600k none small && cp script.py small && cd small || exit 99
"$@"
code=$?
cp -r out result .. && exit $code
"""


@pytest.mark.skipif(why_nothing_is_kept() is not None, reason="no namespaces are to be had here")
def test_a_disk_that_the_script_fills_costs_neither_its_exit_code_nor_how_it_ended(place: Path) -> None:
    fills = """
try:
    with open("filler", "wb", buffering=0) as file:
        while True:
            file.write(b"0" * 4096)
except OSError:
    pass
"""
    (place / "script.py").write_text(SCRIPT.replace("sys.exit(3)", fills + "\nsys.exit(3)"), encoding="utf-8")
    own_disk = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, "sh"]
    environment = os.environ | {"PYTHONPATH": str(Path(xttsbench.__file__).parents[1])}
    ran = subprocess.run([*own_disk, *WATCH], env=environment, capture_output=True, text=True, timeout=120, check=False)
    summary = json.loads((place / "out" / "summary.json").read_text())
    assert (summary["exit_code"], summary["over"]) == (3, True), ran.stderr
    assert ran.returncode == 5  # the script's own failure, as on any disk
    assert (place / "out" / "report.json").exists() or "No space left on device" in " ".join(summary["notes"])
    assert "Traceback" not in ran.stderr
    assert "was killed" not in ran.stderr
    assert (place / "result").read_text() == "kept"


def test_who_interrupts_before_there_is_a_script_gets_none() -> None:
    spec = TrialSpec(trial_id="t", kind="script", target="train.py")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    listener = Mock()
    with SharedRows(1) as shared, held_back():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            run_whole(spec, listener, shared, print_to_stderr=True)
    assert listener.mock_calls == []
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert not signal.sigpending()
