"""What is known of a case, and where its code lies: pure, so that the table is read without TensorFlow.

A line of the corpus that ends in ``# the fault`` is what a report should point to.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parent / "corpus"
FAULT = "# the fault"


@dataclass(frozen=True)
class Case:
    """A target of the corpus and the truth about it.

    Attributes:
        name: the function in ``corpus/<family>.py``.
        family: its file.
        bottlenecks: verdicts that are right.
        limiting: for each entry, one of the rules joined by ``|`` has to be among the limiting findings.
        seen: for each entry, one of the rules joined by ``|`` has to be among the findings, limiting or not.
        not_limiting: rules that must not be limiting.
        accelerator_ms: milliseconds of the emulated accelerator's step; ``None`` where the step is the case's own.
        fixes: what turns the original into the tuned one, in the words of ``records.pipeline``; ``cache@`` stands
            for a cache at any op. Empty where the tuned one is another function.
        any_order: the tuned one yields the same rows, in another order or other batches.
        compare_with: arguments that make it comparable: without its randomness, or with an end.
        healthy: there is nothing to mend; there is no tuned version.
    """

    name: str
    family: str
    bottlenecks: tuple[str, ...]
    limiting: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    not_limiting: tuple[str, ...] = ()
    accelerator_ms: float | None = None
    fixes: tuple[str, ...] = ()
    any_order: bool = False
    compare_with: Mapping[str, Any] = field(default_factory=dict)
    healthy: bool = False

    @property
    def file(self) -> Path:
        """Where its code is."""
        return CORPUS / f"{self.family}.py"

    @property
    def target(self) -> str:
        """Its name on the command line."""
        return f"{self.file}:{self.name}"

    def settings(self, folder: Path, *, tuned: bool = False) -> dict[str, Any]:
        """Arguments of its function; files go to ``folder`` where it has any."""
        found: dict[str, Any] = {"tuned": True} if tuned else {}
        arguments = [argument.arg for argument in _function(self).args.args]
        return found | ({"folder": str(folder)} if "folder" in arguments else {})

    def accelerator(self) -> str:
        """The value of ``--accelerator``."""
        return f"emulated:{self.accelerator_ms:g}" if self.accelerator_ms else "real"


@dataclass(frozen=True)
class Place:
    """Lines of a file."""

    file: str
    lines: range


def fault_places(case: Case) -> list[Place]:
    """Statements of a case that are marked as the fault: the innermost one of each mark.

    A mark in a function inside the case stands for the whole of that function, since a report may name a function by
    its first line; so does a mark in a function of the same file that the case uses, be it through others. The
    functions that a marked statement names, here or in ``parts.py``, stand beside it: an op is as often found by what
    it runs as by what made it.
    """
    text = case.file.read_text(encoding="utf-8").splitlines()
    by_name = {node.name: node for node in _functions(case.file)}
    used, waiting = {case.name: by_name[case.name]}, [by_name[case.name]]
    while waiting:
        called = {name: by_name[name] for name in _names(waiting.pop()) if name in by_name and name not in used}
        used |= called
        waiting += called.values()
    marked = [
        _around(number, function, whole=function.name != case.name)
        for function in used.values()
        for number in _lines(function)
        if text[number - 1].endswith(FAULT)
    ]
    named = {name for statement in marked for name in _names(statement)}
    inner = [node for function in used.values() for node in ast.walk(function) if isinstance(node, ast.FunctionDef)]
    parts = CORPUS / "parts.py"
    return [
        *(Place(case.file.name, _lines(statement)) for statement in marked),
        *(Place(case.file.name, _lines(node)) for node in inner if node.name in named and node.name != case.name),
        *(Place(parts.name, _lines(node)) for node in _functions(parts) if node.name in named),
    ]


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _around(line: int, function: ast.FunctionDef, *, whole: bool) -> ast.stmt:
    """The innermost function around a line, ``function`` itself only if ``whole``; or else the innermost statement."""
    around = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and line in _lines(node)]
    around = [node for node in around if whole or node is not function]
    inner = [node for node in around if isinstance(node, ast.FunctionDef)]
    candidates: Sequence[ast.stmt] = inner or around
    return min(candidates, key=lambda node: len(_lines(node)))


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _function(case: Case) -> ast.FunctionDef:
    return next(node for node in _functions(case.file) if node.name == case.name)


def _functions(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]
