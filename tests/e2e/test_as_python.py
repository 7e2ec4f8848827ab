"""Scripts run by ``python`` and by ``xttsbench watch``: exit code, both outputs, files and signals are the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forking import Forking

SCRIPTS = Path(__file__).parents[1] / "targets" / "as_python"
OWN = "\nwatch "  # what the screen of ours begins with


@dataclass(frozen=True)
class Run:
    """How a script is run: by its name, with what, and which signal it gets once it says that it is ready."""

    script: str
    arguments: tuple[str, ...] = ()
    stdin: bytes = b""
    signal: signal.Signals | None = None
    directory: str = "."

    def __str__(self) -> str:
        words = [self.script, *self.arguments, *([self.signal.name] if self.signal else [])]
        return ascii("-".join(words).replace("/", "-"))[1:-1]


@dataclass(frozen=True)
class Seen:
    """What is left of a run."""

    code: int
    stdout: bytes
    stderr: bytes
    files: dict[str, bytes]


RUNS = (
    Run("arguments.py", ("--epochs", "3", "a", "--", "--b")),
    Run("itself.py", ("a", "", "b c")),
    Run("./itself.py"),
    Run("{scripts}/itself.py"),
    Run("../itself.py", directory="neighbours"),
    Run("nothing_loaded.py"),
    Run("spawn.py"),
    Run("fork.py"),
    Run("forkserver.py"),
    Run("pool.py"),
    Run("killed_child.py"),
    Run("threads.py"),
    Run("joins_all_threads.py"),
    Run("thread_raises.py"),
    Run("exit_handlers.py"),
    Run("leaves_at_once.py"),
    Run("exit_code.py", ("0",)),
    Run("exit_code.py", ("3",)),
    Run("exit_code.py", ("-1",)),
    Run("exit_text.py"),
    Run("raises.py"),
    Run("syntax_error.py"),
    Run("own_hook.py"),
    Run("too_deep.py"),
    Run("survives_everything.py"),
    Run("replaces_main.py"),
    Run("changes_directory.py"),
    Run("neighbours/main.py"),
    Run("linked.py"),
    Run("package/run.py"),
    Run("run.py", directory="package"),
    Run("closes_descriptors.py"),
    Run("first_descriptor.py"),
    Run("inherited.py", ("63",), stdin=b"of the shell's"),
    Run("subprocesses.py"),
    Run("reads_stdin.py", stdin=b"a line\nanother\nthe rest\xfe"),
    Run("odd_names.py", ("n\udcffame-ä",)),
    Run("dir\udcffä/itself.py"),
    Run("executes_another.py", ("x",)),
    Run("resources.py"),
    Run("dies_of_a_signal.py", ("SIGSEGV",)),
    Run("dies_of_a_signal.py", ("SIGKILL",)),
    Run("dies_of_a_signal.py", ("SIGUSR1",)),
    Run("broken_pipe.py"),
    Run("interrupted.py", signal=signal.SIGINT),
    Run("interrupted.py", signal=signal.SIGTERM),
    Run("interrupted.py", signal=signal.SIGHUP),
    Run("interrupted.py", signal=signal.SIGUSR2),
    Run("handles_signals.py", signal=signal.SIGTERM),
    Run("handles_signals.py", signal=signal.SIGHUP),
    Run("handles_signals.py", signal=signal.SIGUSR1),
    Run("handles_signals.py", signal=signal.SIGUSR2),
    Run("handles_in_c.py", signal=signal.SIGUSR1),
    Run("waits_for_a_signal.py", signal=signal.SIGUSR1),
    Run("asynchronous.py", signal=signal.SIGTERM),
)


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XTTSBENCH_RUNTIME", str(tmp_path_factory.mktemp("runtime")))
        with Forking() as forking:
            yield forking


def place(tmp_path: Path) -> Path:
    """A fresh copy of the scripts, at the same path each time."""
    scripts = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "syntax_error.py").write_text("x = 1\ndef broken(:\n    pass\n")
    (scripts / "linked.py").symlink_to("neighbours/main.py")
    odd = scripts / "dir\udcffä"
    odd.mkdir()
    shutil.copy(scripts / "itself.py", odd)
    return scripts


def seen(forking: Forking, run: Run, tmp_path: Path, *, watched: bool) -> tuple[Seen, dict[str, Any] | None]:
    scripts, out = place(tmp_path), tmp_path / "out"
    stdin, stdout, stderr = (tmp_path / name for name in ("stdin", "stdout", "stderr"))
    stdin.write_bytes(run.stdin)
    stdout.unlink(missing_ok=True)  # of the run before, which was ready as well
    files = {0: stdin, 1: stdout, 2: stderr} | ({63: stdin} if run.script == "inherited.py" else {})
    script = run.script.format(scripts=scripts)
    given = ["watch", script, "--out", str(out), "--", *run.arguments] if watched else [script, *run.arguments]
    pid = forking.start(given, scripts / run.directory, files, python=not watched)
    if run.signal is not None:
        until = time.monotonic() + 60
        while not (stdout.exists() and b"ready\n" in stdout.read_bytes()):
            assert time.monotonic() < until, stderr.read_text()
            time.sleep(0.02)
        os.kill(pid, run.signal)
    code = forking.end()
    found = {
        str(file.relative_to(scripts)): file.read_bytes()
        for file in sorted(scripts.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    if (daemon := found.pop("daemon", None)) is not None:
        os.kill(int(daemon), signal.SIGKILL)  # it is there, as Python leaves it
    shutil.rmtree(scripts)
    summary = json.loads((out / "summary.json").read_text()) if watched else None
    if summary is not None:
        number = signal.Signals[summary["signal"]] if summary["signal"] else None
        code = -number if number is not None else summary["exit_code"]
    return Seen(code, _without_addresses(stdout.read_bytes()), _without_addresses(stderr.read_bytes()), found), summary


def _without_addresses(text: bytes) -> bytes:
    return re.sub(rb"0x[0-9a-f]{6,}|(?<=started )\d+", b"0x", text)


DAILY = {
    ("itself.py", "a"), ("nothing_loaded.py",), ("spawn.py",), ("fork.py",), ("threads.py",), ("exit_handlers.py",),
    ("exit_code.py", "3"), ("raises.py",), ("changes_directory.py",), ("linked.py",), ("closes_descriptors.py",),
    ("first_descriptor.py",), ("subprocesses.py",), ("dir\udcffä/itself.py",), ("dies_of_a_signal.py", "SIGUSR1"),
    ("interrupted.py",), ("handles_in_c.py",),
}  # fmt: skip
"""Script and first argument of those that every run of the tests takes; the others are slow."""


def _marked(run: Run, seen: set[tuple[str, ...]]) -> Any:
    key = (run.script, *run.arguments[:1])
    daily = key in DAILY and key not in seen
    seen.add(key)
    return pytest.param(run, id=str(run), marks=() if daily else pytest.mark.slow)


_met: set[tuple[str, ...]] = set()


@pytest.mark.parametrize("run", [_marked(run, _met) for run in RUNS])
def test_a_script_is_the_same_as_under_python(run: Run, forking: Forking, tmp_path: Path) -> None:
    plain, _ = seen(forking, run, tmp_path, watched=False)
    watched, summary = seen(forking, run, tmp_path, watched=True)
    assert summary is not None
    stderr, ours, screen = watched.stderr.partition(OWN.encode())
    assert ours, watched.stderr.decode(errors="replace")
    assert b"Traceback" not in screen
    assert (watched.code, watched.stdout, stderr) == (plain.code, plain.stdout, plain.stderr)
    assert watched.files == plain.files
    assert summary["over"]
    assert summary["notes"] == []
