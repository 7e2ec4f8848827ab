"""What the text of the user's own modules shows: places that never do what they say, whatever the data.

The syntax tree is read, never the raw text, so that a comment or a string says nothing. Nothing is run. What is found
is a fact with a place; whether it costs anything is for the rules and the measurements.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from xttsbench.records.source_fact import SourceFact
from xttsbench.targets.source_autotune import autotune_arithmetic
from xttsbench.targets.source_names import Source
from xttsbench.targets.source_npy import fixed_npy_header
from xttsbench.targets.source_options import Known, dead_options, known_options, unapplied_options, unused_datasets
from xttsbench.targets.source_reach import reached
from xttsbench.targets.source_startup import growth_with_limit, late_environment, late_threads
from xttsbench.targets.spec import TargetSpec

MAX_FILES: Final = 200
MAX_BYTES: Final = 1 << 20
_LIBRARIES: Final = ("site-packages", "dist-packages")


def scan_text(
    file: str, text: str, *, options: Known | None = None, imported_before: bool = False, is_main: bool = False
) -> list[SourceFact]:
    """The facts of one module, by line; none where the text is not Python.

    Args:
        file: where the text is from.
        text: of the module.
        options: what ``tf.data.Options`` has, see :func:`known_options`; ``None`` judges no option's name.
        imported_before: TensorFlow had been imported before the module was loaded.
        is_main: the module is the target's own, so that nobody imports names from it.
    """
    try:
        source = Source(file, text)
        found = [
            *autotune_arithmetic(source),
            *(dead_options(source, options) if options is not None else ()),
            *unapplied_options(source, is_main=is_main),
            *unused_datasets(source),
            *late_environment(source, imported_before=imported_before),
            *late_threads(source),
            *growth_with_limit(source),
            *fixed_npy_header(source),
        ]
    except (SyntaxError, ValueError, RecursionError):
        return []
    distinct = {(fact.kind, fact.line, fact.detail): fact for fact in found}
    return sorted(distinct.values(), key=lambda fact: (fact.line, fact.kind))


def scan_loaded(
    folder: str, main_file: str, *, entry: str | None = None, imported_before: bool = True
) -> list[SourceFact]:
    """The facts of the user's own modules that are loaded now: the target's file, and those under its folder.

    Libraries, this package and files above 1 MB are left out, and the count is bounded; a file that cannot be read has
    no fact. TensorFlow is not imported; where it is loaded, its options are asked for.

    Args:
        folder: the target's.
        main_file: the target's own; it need not be among the modules.
        entry: the callable in it; facts in code that it cannot come to are left out. ``None`` keeps all, as for a
            script.
        imported_before: TensorFlow had been imported before the target was, as in the helper's forks.
    """
    options = _options()
    main = os.path.realpath(main_file)
    found: list[SourceFact] = []
    texts: dict[str, str] = {}
    for file in _files(folder, main):
        try:
            if os.path.getsize(file) > MAX_BYTES:
                continue
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        try:
            found += scan_text(file, text, options=options, imported_before=imported_before, is_main=file == main)
        except Exception:  # a source that this reader cannot take must not cost its owner the measurement
            continue
        texts[file] = text
    return found if entry is None else reached(found, texts, main, entry)


def module_file(target: TargetSpec) -> str:
    """The target's own file: the one that it names, or that of the module, which is loaded; empty where it has none."""
    if target.kind == "file":
        return target.place
    file = getattr(sys.modules.get(target.place), "__file__", None)
    return file if isinstance(file, str) else ""


def _files(folder: str, main: str) -> Iterator[str]:
    """Paths of the user's loaded modules, the target's own first, each once."""
    top = os.path.realpath(folder)
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    libraries = [os.path.realpath(path) for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}]
    seen = set()
    if main.endswith(".py") and not _under(main, own):
        seen.add(main)
        yield main
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        path = os.path.realpath(file)
        inside = _under(path, top) and not any(_under(path, outside) for outside in (own, *libraries))
        if path in seen or not inside or any(part in _LIBRARIES for part in Path(path).parts):
            continue
        seen.add(path)
        yield path
        if len(seen) >= MAX_FILES:
            return


def _under(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _options() -> dict[str, Any] | None:
    """What the loaded TensorFlow's options have, or ``None`` where it is not loaded."""
    tensorflow = sys.modules.get("tensorflow")
    try:
        return known_options(tensorflow.data.Options()) if tensorflow is not None else None
    except Exception:  # a TensorFlow that is half loaded: the target's own failure, told elsewhere
        return None
