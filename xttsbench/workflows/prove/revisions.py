"""The tree of another revision of the user's project, in a temporary place: ``train.py@main``."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.records.code import Checkout

_NOT_LINKED: Final = frozenset({".git", "__pycache__"})


def divided(text: str) -> tuple[str, str | None]:
    """A target and the revision after its last ``@``; ``None`` where there is none, or the ``@`` is a path's own."""
    place, at, revision = text.rpartition("@")
    path = text.rpartition(":")[0] if ":" in revision else text
    return (place, revision) if place and at and not os.path.exists(path) else (text, None)


@contextmanager
def version(text: str) -> Iterator[tuple[str, Checkout | None]]:
    """Make the whole tree of the revision that a target names, and remove it afterwards: its name there, and the tree.

    Neither the user's index nor the work tree is touched. Files that git does not track, such as data, are linked.

    Raises:
        UsageError: there is no repository around the target, no git, or no such revision.
    """
    target, revision = divided(text)
    if revision is None:
        yield text, None
        return
    file, colon, attribute = target.rpartition(":") if ":" in target else (target, "", "")
    is_file = file.endswith(".py") or "/" in file
    here = Path.cwd().resolve()
    path = here / os.path.expanduser(file) if is_file else here / "module"
    path = path.parent.resolve() / path.name
    top = Path(_git(path.parent, "rev-parse", "--show-toplevel", named=target).strip())
    commit = _git(top, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}", named=revision).strip()
    with tempfile.TemporaryDirectory(prefix="xttsbench-prove-", ignore_cleanup_errors=True) as folder:
        made = Path(folder).resolve()
        tree, index = made / "tree", {"GIT_INDEX_FILE": str(made / "index")}
        tree.mkdir()
        _git(top, "read-tree", commit, more=index)
        _git(top, "checkout-index", "--all", "--quiet", f"--prefix={tree}{os.sep}", more=index)
        for name in _git(top, "ls-files", "--others", "--directory", "-z").rstrip("\0").split("\0"):
            there = tree / name.rstrip("/")
            if not _NOT_LINKED & {*there.parts} and not os.path.lexists(there):
                there.parent.mkdir(parents=True, exist_ok=True)
                there.symlink_to(top / name.rstrip("/"))
        if is_file and not (tree / path.relative_to(top)).is_file():
            raise UsageError(f"{revision} has no file {path.name!r} at that place; got {text}.")
        working = tree / here.relative_to(top) if here.is_relative_to(top) else here
        target = f"{tree / path.relative_to(top)}{colon}{attribute}" if is_file else target
        yield target, Checkout(top=str(top), tree=str(tree), folder=str(working if working.is_dir() else here))


def _git(folder: Path, *words: str, named: str = "", more: dict[str, str] | None = None) -> str:
    variables = os.environ | {"GIT_OPTIONAL_LOCKS": "0"} | (more or {})
    try:
        done = subprocess.run(["git", *words], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"@REVISION needs git in a folder that exists: {error.strerror or error}.") from error
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason was given"])[0]
        raise UsageError(f"@REVISION: git does not find {named or folder}: {why}. Name a target in a repository.")
    return done.stdout


def require_own(files: Sequence[str], checkout: Checkout | None, given: str) -> None:
    """Refuse a version that imported from the work tree what its own tree has.

    Raises:
        InvalidInputError: it did, as where the project is installed in place.
    """
    if checkout is None:
        return
    for file in files:
        within = os.path.relpath(os.path.realpath(file), checkout.top)
        if not within.startswith("..") and Path(checkout.tree, within).resolve().is_relative_to(checkout.tree):
            raise InvalidInputError(
                f"{given} imports {within} from the work tree, and not from its own tree, so that versions would mix. "
                "Is the project installed in place (pip install -e)? Run this with its folder on PYTHONPATH instead."
            )
