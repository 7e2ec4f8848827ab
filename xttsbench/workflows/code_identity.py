"""Identity of a target's code and of its data: hashes by which a saved winner is known to fit what is there now."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import xttsbench
from xttsbench.inputs import JOURNAL_BYTES, read_bytes
from xttsbench.targets.spec import TargetSpec, parse_target

_DIGITS: Final = 16
_MOST_FILES: Final = 5000
"""More Python files than these are no one's own project: a directory full of environments, or a home."""
_NOT_CODE: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env", "reports"})


def code_identity(target: str, *, bundled: bool) -> str | None:
    """Hash of the Python files that a target may come from: its package, or the directory of its file.

    For the bundled workload these are this package's own. ``None`` where they cannot be found or are too many.

    Raises:
        TargetError: the name is none of a target.
    """
    roots = [Path(xttsbench.__file__).parent] if bundled else _roots(parse_target(target))
    digest = hashlib.sha256()
    count = 0
    for root in roots:
        for path in _python_files(root):
            count += 1
            if count > _MOST_FILES:
                return None
            try:
                content = read_bytes(path)
            except OSError:
                return None
            name = path.relative_to(root) if path != root else path.name
            digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape"))
            digest.update(content)
    return digest.hexdigest()[:_DIGITS] if count else None


def data_identity(directories: Collection[str | None]) -> str | None:
    """Hash of data sets of the bundled workload: the metadata, and the name and size of each sound file.

    ``None`` stands for the default one. The answer is ``None`` without any, as for other targets, whose data nobody but
    they know, and where one cannot be read.
    """
    if not directories:
        return None
    # Here and not above: speech data are the bundled workload's alone.
    from xttsbench.xtts.data.make import ensure_default_data

    digest = hashlib.sha256()
    for data in sorted(set(directories), key=str):
        directory = Path(data) if data is not None else ensure_default_data()
        try:
            digest.update(read_bytes(directory / "metadata.csv", JOURNAL_BYTES))
            sounds = sorted(
                (entry.name, entry.stat().st_size) for entry in os.scandir(directory / "wavs") if entry.is_file()
            )
        except OSError:
            return None
        digest.update(repr(sounds).encode(errors="surrogateescape"))
    return digest.hexdigest()[:_DIGITS]


def _roots(target: TargetSpec) -> list[Path]:
    """Folders or files of the target's code: the directory of a file; for a module its top-level package or file."""
    if target.kind == "file":
        return [Path(target.folder)]
    name = target.place.partition(".")[0]
    for candidate in (Path(target.folder) / name, Path(target.folder) / f"{name}.py"):
        if candidate.exists():
            return [candidate]
    if name in sys.builtin_module_names:
        return []
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if found is None:
        return []
    return [Path(place) for place in found.submodule_search_locations or ([found.origin] if found.origin else [])]


def _python_files(root: Path) -> Iterator[Path]:
    """The ``.py`` files below a directory in a fixed order, or the file itself."""
    if root.is_file():
        yield root
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _NOT_CODE and not name.startswith("."))
        yield from (Path(folder) / name for name in sorted(files) if name.endswith(".py"))
