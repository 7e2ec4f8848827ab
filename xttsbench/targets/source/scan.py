"""Mistakes in the text of the user's own modules: code that never has its intended effect, whatever the data.

The syntax tree is read, never the raw text, so that a comment or a string says nothing. Nothing is run. What is found
is a fact with a place; whether it costs anything is for the rules and the measurements.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from xttsbench.owners import owner
from xttsbench.records.code import SourceFact
from xttsbench.targets.source.module import Module
from xttsbench.targets.source.npy_header import fixed_npy_header
from xttsbench.targets.source.options import (
    Known,
    autotune_arithmetic,
    dead_options,
    known_options,
    pool_sizes,
    unapplied_options,
    unused_datasets,
)
from xttsbench.targets.source.too_late import early_workers, growth_with_limit, late_environment, late_threads
from xttsbench.targets.spec import TargetSpec

MAX_FILES: Final = 200
MAX_BYTES: Final = 1 << 19
"""Largest total size of the parsed files, in bytes; parsing as much takes five seconds."""
_WORDS: Final = re.compile(  # a module without any of these has no fact, and need not be taken apart to know that
    "tensorflow|AUTOTUNE|environ|putenv|npy|frombuffer|fromfile|memmap|with_options|padded_batch|ragged_batch|bucket_by"
    "|on_epoch_begin"
)

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def scan_text(
    file: str, text: str, *, options: Known | None = None, imported_before: bool = False, is_main: bool = False
) -> list[SourceFact]:
    """The facts of one module, by line; none where the text is not Python.

    ``options`` is what ``tf.data.Options`` has (:func:`known_options`); ``None`` judges no name of one. TensorFlow may
    have been imported before the module, and the module may be the target's own: then nobody imports from it.
    """
    if not _WORDS.search(text):
        return []
    try:
        module = Module(file, text)
        found = [
            *autotune_arithmetic(module),
            *(dead_options(module, options) if options is not None else ()),
            *pool_sizes(module),
            *unapplied_options(module, is_main=is_main),
            *unused_datasets(module),
            *late_environment(module, imported_before=imported_before),
            *late_threads(module),
            *growth_with_limit(module),
            *early_workers(module),
            *fixed_npy_header(module),
        ]
    except (SyntaxError, ValueError, RecursionError):
        return []
    distinct = {(fact.kind, fact.line, fact.detail): fact for fact in found}
    return sorted(distinct.values(), key=lambda fact: (fact.line, fact.kind))


def scan_loaded(
    folder: str, main_file: str, *, entry: str | None = None, imported_before: bool = True, makers: Iterable[str] = ()
) -> list[SourceFact]:
    """The facts of the user's own modules that are loaded now: the target's file, the makers, those under its folder.

    Libraries and this package are left out, and so is what is beyond 200 files or 512 KB; a file that cannot be read
    has no fact. TensorFlow is not imported; where it is loaded, its options are asked for.

    Args:
        folder: the target's.
        main_file: the target's own; it need not be among the modules.
        entry: the callable in it; facts in code that it cannot come to are left out. ``None`` keeps all, as for a
            script.
        imported_before: TensorFlow had been imported before the target was, as in the helper's forks.
        makers: files of the user's from which ops of the pipeline come, wherever they lie.
    """
    options = _options()
    main = os.path.realpath(main_file)
    found: list[SourceFact] = []
    texts: dict[str, str] = {}
    left = MAX_BYTES
    for file in _files(folder, main, makers):
        try:
            size = os.path.getsize(file)
            if size > left:
                continue
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        left -= size if _WORDS.search(text) else 0
        try:
            found += scan_text(file, text, options=options, imported_before=imported_before, is_main=file == main)
        except Exception:  # a source that this reader cannot take must not cost its owner the measurement
            continue
        texts[file] = text
    return _reached(found, texts, main, entry) if found and entry is not None else found


def module_file(target: TargetSpec) -> str:
    """The target's own file: the one that it names, or that of the module, which is loaded; empty where it has none."""
    if target.kind == "file":
        return target.place
    file = getattr(sys.modules.get(target.place), "__file__", None)
    return file if isinstance(file, str) else ""


def _files(folder: str, main: str, makers: Iterable[str]) -> Iterator[str]:
    """Paths of the user's loaded modules, the target's own first and then the makers, each once."""
    top, own = os.path.realpath(folder), str(Path(__file__).resolve().parents[2])
    named = [path for path in (main, *map(os.path.realpath, makers)) if path.endswith(".py") and not _under(path, own)]
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    loaded = (os.path.realpath(file) for file in files if isinstance(file, str) and file.endswith(".py"))
    users = (path for path in loaded if _under(path, top) and owner(path) == "user")
    return itertools.islice(dict.fromkeys([*named, *users]), MAX_FILES)


def _under(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _options() -> dict[str, Any] | None:
    tensorflow = sys.modules.get("tensorflow")
    try:
        return known_options(tensorflow.data.Options()) if tensorflow is not None else None
    except Exception:  # a TensorFlow that is half loaded: the target's own failure, told elsewhere
        return None


def _reached(facts: Iterable[SourceFact], texts: Mapping[str, str], main: str, entry: str) -> list[SourceFact]:
    """The facts in code that runs when the modules are loaded, or that the target's callable can come to.

    By names alone: a function or class is reached where code that is reached mentions its name. That takes in too much
    rather than too little; code that is looked up by a name put together at run time is missed.
    """
    definitions: dict[str, list[tuple[str, _Definition]]] = {}
    mentioned: list[str] = []
    for file, text in texts.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in tree.body:
            _sort(node, file, definitions, mentioned)
    target = entry.partition(".")[0]
    if not any(file == main for file, _ in definitions.get(target, [])):
        return list(facts)  # the callable is made at run time: nothing can be told from names
    pending, known = [*mentioned, target], set[str]()
    while pending:
        if (name := pending.pop()) not in known:
            known.add(name)
            pending += [one for _, node in definitions.get(name, []) for one in _names(node)]
    missed = [place for name, places in definitions.items() if name not in known for place in places]
    lines = {(file, line) for file, node in missed for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return [fact for fact in facts if (fact.file, fact.line) not in lines]


def _sort(
    node: ast.stmt, file: str, definitions: dict[str, list[tuple[str, _Definition]]], mentioned: list[str]
) -> None:
    """Put a statement of a module's top to the definitions, or its names to those that loading mentions."""
    if isinstance(node, _Definition):
        definitions.setdefault(node.name, []).append((file, node))
        for one in node.decorator_list:
            mentioned += _names(one)
            # A decorator may register it somewhere.
            mentioned.append(node.name)
    elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
        return  # not run where a callable is the target
    elif isinstance(node, ast.If | ast.Try | ast.With):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt | ast.ExceptHandler):
                for inner in part.body if isinstance(part, ast.ExceptHandler) else [part]:
                    _sort(inner, file, definitions, mentioned)
            else:
                mentioned += _names(part)
    elif not isinstance(node, ast.Import | ast.ImportFrom):
        mentioned += _names(node)


def _names(node: ast.AST) -> list[str]:
    found = []
    for one in ast.walk(node):
        match one:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.append(name)
            case ast.alias(name=name):
                found.append(name.rpartition(".")[2])
            case ast.Constant(value=str() as text) if text.isidentifier():
                found.append(text)
    return found
