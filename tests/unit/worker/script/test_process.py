"""Scripts that never load TensorFlow: arguments, exit codes and errors are Python's own."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts import Message, run_script
from xttsbench.records.trial import TrialSpec
from xttsbench.worker.script.again.effects import AfterImport


def _run(script: Path | str, *arguments: str) -> tuple[list[Message], subprocess.CompletedProcess[str]]:
    return run_script(TrialSpec(trial_id="t", kind="script", target=str(script), arguments=arguments))


def _ending(messages: list[Message]) -> tuple[str, int]:
    run = [message["value"] for message in messages if message.get("part") == "script"][-1]
    return run["ended"], run["exit_code"]


@pytest.mark.parametrize(
    ("code", "ending", "status"),
    [
        ("", ("returned", 0), 0),
        ("import sys; sys.exit(7)", ("exited", 7), 7),
        ("raise SystemExit", ("exited", 0), 0),
        ("raise SystemExit('why')", ("exited", 1), 1),
        ("import os; os._exit(5)", ("exited", 5), 5),
        ("1 / 0", ("raised", 1), 1),
        ("import atexit; atexit.register(print, 'bye')", ("returned", 0), 0),
    ],
)
def test_a_script_ends_as_under_python(tmp_path: Path, code: str, ending: tuple[str, int], status: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(code + "\n")
    messages, ended = _run(script)
    assert _ending(messages) == ending
    assert ended.returncode == status
    assert messages[-1] == {"done": True}
    bare = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == (bare.stdout, bare.stderr)


@pytest.mark.parametrize("start", ["script.py", "./script.py", "{folder}/script.py", "../linked.py"])
def test_a_script_finds_its_place_as_under_python(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    text = "import sys, __main__\nprint(__file__, sys.argv, sys.path[0], __name__, __main__.__file__, __spec__)\n"
    (folder / "script.py").write_text(text + "print(__builtins__, __loader__.path, sorted(globals()))\n1 / 0\n")
    (tmp_path / "linked.py").symlink_to(folder / "script.py")
    monkeypatch.chdir(folder)
    given = start.format(folder=folder)
    _, ended = _run(given, "--epochs", "1")
    bare = subprocess.run(
        [sys.executable, given, "--epochs", "1"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (bare.returncode, bare.stdout, bare.stderr)


def test_a_script_sets_its_environment_before_anything_loads_tensorflow() -> None:
    code = "import sys, xttsbench.worker.script.process, xttsbench.worker.script.to_the_end\n"
    code += "print({'tensorflow', 'keras'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_an_error_has_its_place_in_the_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("def f():\n    raise ValueError('x')\n\n\nf()\n")
    messages, _ = _run(script)
    (message,) = [message for message in messages if message.get("status") == "raised"]
    assert (message["error"]["type"], message["error"]["file"], message["error"]["line"]) == (
        "ValueError",
        str(script),
        2,
    )


def test_a_script_finds_its_arguments_and_the_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text("name = 'its own'\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, training\nprint(__name__, sys.argv[1:], training.name)\n")
    _, ended = _run(script, "--a", "1")
    assert ended.stdout == "__main__ ['--a', '1'] its own\n"


def test_a_script_without_tensorflow_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('nothing')\n")
    messages, _ = _run(script)
    assert any("did not import TensorFlow" in message.get("note", "") for message in messages)


def test_the_action_comes_after_the_modules_own_code_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waited_for.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[int] = []
    hook = AfterImport({"waited_for": lambda: seen.append(sys.modules["waited_for"].value)})
    hook.install()
    try:
        assert seen == []
        module = importlib.import_module("waited_for")
        assert seen == [3]
        importlib.reload(module)
        assert seen == [3]
    finally:
        hook.uninstall()
        sys.modules.pop("waited_for", None)
    assert hook not in sys.meta_path


def test_a_loaded_module_has_its_action_at_once() -> None:
    seen: list[str] = []
    hook = AfterImport({"json": lambda: seen.append("json")})
    hook.install()
    hook.uninstall()
    assert seen == ["json"]


def test_the_files_that_ran_are_told(tmp_path: Path) -> None:
    script, parts = tmp_path / "script.py", tmp_path / "parts.py"
    script.write_text("import json, parts\n")
    parts.write_text("")
    messages, _ = _run(script)
    (files,) = [message["value"] for message in messages if message.get("part") == "files"]
    assert files == [str(script), str(parts)]
