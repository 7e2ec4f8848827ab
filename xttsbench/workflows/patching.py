"""The patch of some fixes, from the user's source files as they are."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from xttsbench.records.base import Location
from xttsbench.records.fix import Patch
from xttsbench.records.fix_set import FixSet
from xttsbench.records.pipeline import Pipeline


def patch_of(
    fixes: FixSet, pipeline: Pipeline | None, directory: Path, *, step_place: Location | None = None
) -> Patch | None:
    """The patch of some fixes; ``None`` where no pipeline was read.

    Args:
        fixes: as they were verified.
        pipeline: with the places of its ops.
        directory: of the run, where a cache on disk goes.
        step_place: where the user's step is defined.
    """
    if pipeline is None:
        return None
    from xttsbench.targets.patch import propose

    def cache_file(op: str) -> str:
        return str(directory / "cache" / re.sub(r"\W+", "-", op))

    patch = propose(fixes.names, pipeline, _read, own=_is_own, step_place=step_place, cache_file=cache_file)
    return patch.model_copy(update={"diff": _from_here(patch.diff, patch.files)})


def _from_here(diff: str, files: Iterable[str]) -> str:
    """The diff with names from the working directory on, where its files lie under it, so that ``patch -p1`` does."""
    here = Path.cwd().resolve()
    for file in files:
        path = Path(file).resolve()
        if path.is_relative_to(here):
            whole, short = file.lstrip("/"), path.relative_to(here).as_posix()
            diff = diff.replace(f"--- a/{whole}", f"--- a/{short}").replace(f"+++ b/{whole}", f"+++ b/{short}")
    return diff


def _read(file: str) -> str:
    return Path(file).read_bytes().decode()  # line ends as they are


def _is_own(file: str) -> bool:
    """Whether a file is the user's own: neither installed, nor Python's, nor ours."""
    path = Path(file).resolve()
    installed = ("site-packages", "dist-packages")
    libraries = [Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "purelib")]
    if any(name in path.parts for name in installed) or any(root in path.parents for root in libraries):
        return False
    return Path(__file__).resolve().parents[1] not in path.parents and sys.prefix != str(path)
