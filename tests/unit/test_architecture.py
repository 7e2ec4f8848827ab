"""ARCHITECTURE.md names layers, modules and kinds of trials that there are; files and folders read in one sitting."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import get_args

import xttsbench
from tests.by_file import load
from xttsbench.records.trial import TrialKind

ROOT = Path(__file__).parents[2]
PACKAGE = Path(xttsbench.__file__).parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_the_page_is_read_in_ten_minutes() -> None:
    assert len(TEXT.split()) <= 2_500


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["type"] == "layers")
    block = TEXT.split("```\n")[1]
    drawn = [{*re.split(r" {2,}", line)[0].split(" | ")} for line in block.splitlines()]
    assert drawn == [{*layer.replace("(", "").replace(")", "").split(" | ")} for layer in layers]
    (pure,) = (one["source_modules"] for one in contracts if "pure" in one["name"])
    said = re.search(r"\*\*(`.*?)\s+are pure\*\*", TEXT, re.DOTALL)
    assert said is not None
    assert {*re.findall(r"`(\w+)`", said[1])} == {name.removeprefix("xttsbench.") for name in pure} - {"doctor"}


def test_the_kinds_of_trials_are_those_that_there_are() -> None:
    table = TEXT.partition("### The kinds of trials")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|")))
    assert sorted(named) == sorted(get_args(TrialKind))


def _is_there(name: str) -> bool:
    """Whether a dotted name is a module of the package, or something that one defines."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        base = PACKAGE.joinpath(*parts[:length])
        file = next((one for one in (base.with_suffix(".py"), base / "__init__.py") if one.is_file()), None)
        if file is not None:
            nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
            defined = {getattr(node, "name", None) for node in nodes}
            defined |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            return {*parts[length:]} <= defined
    return False


def test_every_module_and_name_that_it_names_is_there() -> None:
    tops = {path.stem for path in PACKAGE.iterdir()}
    names = {one for one in re.findall(r"`([a-z_]+(?:\.\w+)+)`", TEXT) if one.partition(".")[0] in tops}
    assert len(names) > 60
    assert [one for one in sorted(names) if not _is_there(one) and not re.search(r"\.(py|yaml|jsonl?|md)$", one)] == []
    assert not _is_there("worker.nowhere")
    assert not _is_there("records.rows.Nothing")


def test_the_picture_is_what_its_script_draws() -> None:
    drawn = load(ROOT / "docs" / "processes.py", "docs_processes").picture()
    assert (ROOT / "docs" / "images" / "processes.svg").read_text(encoding="utf-8") == drawn


def _too_large(package: Path, *, lines: int, modules: int) -> list[str]:
    """Files and folders of a package beyond these limits, with their counts."""
    files = sorted(package.rglob("*.py"))
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    found = [f"{file.relative_to(package)}: {count} lines" for file, count in lengths.items() if count > lines]
    folders = Counter(file.parent for file in files)
    return found + [f"{one.relative_to(package)}: {count} modules" for one, count in folders.items() if count > modules]


def test_no_file_has_more_than_400_lines_and_no_folder_more_than_20_modules(tmp_path: Path) -> None:
    assert _too_large(PACKAGE, lines=400, modules=20) == []
    (tmp_path / "wide").mkdir()
    for name in ("long.py", "wide/one.py", "wide/two.py"):
        (tmp_path / name).write_text("# a line\n" * (3 if name == "long.py" else 2), encoding="utf-8")
    assert _too_large(tmp_path, lines=2, modules=1) == ["long.py: 3 lines", "wide: 2 modules"]
