"""Which parts of the user's modules a target can reach, so that a fact about another part is not told of it.

By names alone: a function or class is reached where code that is reached mentions its name. That takes in too much
rather than too little; code that is looked up by a name put together at run time is missed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from xttsbench.records.source_fact import SourceFact

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def reached(facts: Iterable[SourceFact], texts: Mapping[str, str], main: str, entry: str) -> list[SourceFact]:
    """The facts in code that runs when the modules are loaded, or that the target's callable can come to.

    Args:
        facts: of all modules.
        texts: file -> its text.
        main: the target's own file.
        entry: dotted name of the callable in it.
    """
    definitions: dict[str, list[tuple[str, Definition]]] = {}
    mentioned: list[str] = []
    for file, text in texts.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in tree.body:
            _sort(node, file, definitions, mentioned)
    found: set[tuple[str, Definition]] = set()
    pending = [*mentioned, entry.partition(".")[0]]
    known: set[str] = set()
    while pending:
        name = pending.pop()
        if name in known:
            continue
        known.add(name)
        for place in definitions.get(name, []):
            found.add(place)
            pending += _names(place[1])
    if not any(file == main for file, _ in definitions.get(entry.partition(".")[0], [])):
        return list(facts)  # the callable is made at run time: nothing can be told from names
    missed = [(file, node) for places in definitions.values() for file, node in places if (file, node) not in found]
    return [fact for fact in facts if not any(file == fact.file and _holds(node, fact) for file, node in missed)]


def _sort(
    node: ast.stmt, file: str, definitions: dict[str, list[tuple[str, Definition]]], mentioned: list[str]
) -> None:
    """Put a statement of a module's top to the definitions, or its names to those that loading mentions."""
    if isinstance(node, Definition):
        definitions.setdefault(node.name, []).append((file, node))
        for one in node.decorator_list:
            mentioned += _names(one)
            # A decorator may register it somewhere.
            mentioned.append(node.name)
    elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
        return  # not run where a callable is the target
    elif isinstance(node, ast.If | ast.Try | ast.With):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt):
                _sort(part, file, definitions, mentioned)
            elif not isinstance(part, ast.ExceptHandler):
                mentioned += _names(part)
            else:
                for inner in part.body:
                    _sort(inner, file, definitions, mentioned)
    elif not isinstance(node, ast.Import | ast.ImportFrom):
        mentioned += _names(node)


def _names(node: ast.AST) -> list[str]:
    """Every name, attribute and short text that a piece of code mentions."""
    found = []
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            found.append(one.id)
        elif isinstance(one, ast.Attribute):
            found.append(one.attr)
        elif isinstance(one, ast.alias):
            found.append(one.name.rpartition(".")[2])
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.isidentifier():
            found.append(one.value)
    return found


def _holds(node: Definition, fact: SourceFact) -> bool:
    return node.lineno <= fact.line <= (node.end_lineno or node.lineno)
