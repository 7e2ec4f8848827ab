"""Code of others, taken as it is published: out of a clone, a notebook's cell or a module, into a target's file.

A target is a template in ``targets/``. A line of it that begins with ``@take FILE`` gives way to code of the clones:
the whole file; with a ``CELL`` the whole cell of a notebook; with a ``NAME`` the statement that defines it (of a
module, or of that cell); with ``CALL()`` the first argument of that call; with ``A:B`` these lines. It is indented as
its line is, and otherwise unchanged. The rest of a template is ours: imports, numbers of samples, and a function around
a dataset.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

_TAKE = re.compile(r"(?P<indent> *)@take (?P<path>\S+)(?: (?P<words>.+))?")
_DATA = re.compile(r"@data (\w+)")
_MNIST = """\
import keras as _keras
import numpy as _np
from tensorflow import keras as _tf_keras
_draw = _np.random.default_rng(0)
def _of(size):
    return _draw.integers(0, 256, (size, 28, 28), "uint8"), _draw.integers(0, 10, size, "uint8")
_digits = _of(60000), _of(10000)
for _of_keras in (_keras.datasets, _tf_keras.datasets):
    _of_keras.mnist.load_data = _of_keras.fashion_mnist.load_data = lambda: _digits
"""


class PublishedError(Exception):
    """What a template names is not in the clones."""


def target(template: str, code: Path, data: Path) -> str:
    """The file that a template describes.

    Args:
        template: its text.
        code: folder with a clone of each repository, by the repository's own name.
        data: folder of the data sets that ``@data NAME`` gives the path of.

    Raises:
        PublishedError: a clone, a file, a cell or a name is not there.
    """
    lines = []
    for line in template.splitlines():
        found = _TAKE.fullmatch(line)
        if found:
            lines.append(textwrap.indent(taken(code, found["path"], found["words"] or ""), found["indent"]))
        elif line == "@mnist":
            lines.append(_MNIST)
        else:
            lines.append(_DATA.sub(lambda name: repr(str(data / name[1])), line))
    return "\n".join(lines) + "\n"


def beside(tree: Path, folder: Path) -> None:
    """Copy a file or package of a clone into a folder, anew.

    Raises:
        PublishedError: it is not there.
    """
    copy = folder / tree.name
    if tree.is_dir():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("__pycache__"))
    elif tree.is_file():
        shutil.copy(tree, copy)
    else:
        raise PublishedError(f"{tree}: not there; README.md says what to clone")


def taken(code: Path, path: str, words: str) -> str:
    """Code of a file: all of it, or what ``words`` name, ``[CELL] [NAME | CALL() | A:B]``.

    Raises:
        PublishedError: it is not there.
    """
    file = code / path
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise PublishedError(f"{path}: not in {code} ({error.strerror}); README.md says what to clone") from error
    asked = words.split()
    if file.suffix == ".ipynb":
        cells = {_name(cell): "".join(cell["source"]) for cell in json.loads(text)["cells"]}
        if not asked or asked[0] not in cells:
            raise PublishedError(f"{path}: no cell {asked[0] if asked else '(none named)'!r}; another commit, perhaps")
        text = cells[asked.pop(0)]
    if not asked:
        return text.rstrip("\n")
    (name,) = asked
    if lines := re.fullmatch(r"(\d+):(\d+)", name):
        return textwrap.dedent("\n".join(text.splitlines()[int(lines[1]) - 1 : int(lines[2])]))
    found = _argument(text, name[:-2]) if name.endswith("()") else _statement(text, name)
    if found is None:
        raise PublishedError(f"{path}: nothing called {name} in {words!r}; another commit, perhaps")
    return found


def _name(cell: dict) -> str:
    return cell.get("metadata", {}).get("id") or cell.get("id", "")


def _statement(text: str, name: str) -> str | None:
    """The top-level statement that binds a name, with its decorators."""
    for node in ast.parse(text).body:
        bound: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound = [node.name]
        elif isinstance(node, ast.Assign):
            bound = [part.id for part in node.targets if isinstance(part, ast.Name)]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound = [alias.asname or alias.name for alias in node.names]
        if name in bound:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return None


def _argument(text: str, call: str) -> str | None:
    """The first argument of the top-level call of a function, on lines of its own."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == call:
            first = node.value.args[0]
            lines = text.splitlines()[first.lineno - 1 : first.end_lineno]
            lines[-1] = lines[-1].encode()[: first.end_col_offset].decode()
            lines[0] = " " * first.col_offset + lines[0].encode()[first.col_offset :].decode()
            return textwrap.dedent("\n".join(lines))
    return None


def commit(clone: Path) -> str:
    """The commit that a clone stands at, or why that is not known."""
    asked = ["git", "-C", str(clone), "rev-parse", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found.stdout.strip() if not found.returncode else "no clone"
