"""What benchmarks take of the package is there: most of them are run by hand, and no type checker reads them."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _has(module: str, name: str) -> bool:
    """Whether a module binds a name at its top, or is a package with a module of that name."""
    if not _file(module).exists():
        return False
    nodes = ast.walk(ast.parse(_file(module).read_text()))
    bound = {name for node in nodes for name in _bound(node)}
    return name in bound or _file(f"{module}.{name}").exists()


def _bound(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()


def test_what_benchmarks_import_of_the_package_is_there() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for path in sorted((ROOT / "benchmarks").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "xttsbench"
        for alias in node.names
        if not _has(str(node.module), alias.name)
    ]
    assert missing == []
