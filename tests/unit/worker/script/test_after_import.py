"""Modules are waited for, not imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from xttsbench.worker.script.after_import import AfterImport


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
