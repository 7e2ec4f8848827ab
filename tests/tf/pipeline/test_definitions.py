"""Files are read to trees, also where Python refuses a whole one because another thread parses meanwhile."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from xttsbench.pipeline import definitions

pytestmark = pytest.mark.tf


def test_a_tree_that_another_threads_parsing_spoilt_is_read_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = [SystemError("AST constructor recursion depth mismatch (before=102, after=37)")] * 2
    parse = ast.parse

    def spoilt(text: str) -> ast.Module:
        if refused:
            raise refused.pop()
        return parse(text)

    monkeypatch.setattr(definitions.ast, "parse", spoilt)
    file = tmp_path / "a.py"
    file.write_text("def double(x):\n    return 2 * x\n")
    assert [one.name for one in definitions.definitions(str(file))] == ["double"]


def test_what_is_no_python_has_an_empty_tree(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("def (")
    assert definitions.tree_of(str(file)).body == []
    assert definitions.tree_of(str(tmp_path / "none.py")).body == []
