"""Files and directories that appear whole or not at all: written under another name beside their place, then renamed.

A directory's draft is locked by its maker for as long as that lives, however it dies, so that the next one can tell
what was left by the dead from what another process is making. (A process id in the name would not tell: ids are reused,
and are counted apart in each container that shares the disk.)
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import psutil

from xttsbench.errors import InvalidInputError, UsageError

DRAFT_PREFIX: Final = ".draft-"
"""Prefix of files that are being written; one that is left was broken off and can be deleted."""

LOCK: Final = "lock"
"""Name of the file that :func:`locked` locks in a directory."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def flushed_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a new file that is on the disk when the block has ended well; not flushed there unless ``durable``.

    Raises:
        OSError: the file is there already, or cannot be written.
    """
    with path.open("xb") as file:
        yield file
        file.flush()
        if durable:
            os.fsync(file.fileno())


@contextmanager
def atomic_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a draft beside ``path`` that takes its name when the block ends well, and is deleted when it does not.

    The content reaches the disk before the name does, so that a power cut leaves no empty file of that name either.
    """
    draft = path.with_name(f"{DRAFT_PREFIX}{os.getpid()}-{secrets.token_hex(6)}")
    try:
        with flushed_file(draft, durable=durable) as file:
            yield file
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def atomic_write(path: Path, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Write a file whole or not at all: a reader, or a crash, sees the old content or the new one.

    What is replaced every second is not ``durable``: a power cut may cost it, and nothing waits for the disk.

    Raises:
        OSError: the file cannot be written; nothing of it is left.
    """
    with atomic_file(path, durable=durable) as file:
        file.write(content)


class Draft:
    """A directory in the making.

    Attributes:
        directory: where to write; empty at first.
        target: the name that it will have.
    """

    def __init__(self, directory: Path, target: Path) -> None:
        self.directory, self.target = directory, target
        self.published = False

    def publish(self) -> bool:
        """Give the draft its name; False where something that is not empty has that name by now.

        Whoever writes files in it has flushed them to the disk (:func:`sync`); the directories are flushed here.

        Raises:
            OSError: the draft cannot be renamed.
        """
        for folder, _, _ in os.walk(self.directory):
            sync(Path(folder))
        try:
            self.directory.rename(self.target)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return False
            raise
        self.published = True
        sync(self.target.parent)
        return True


@contextmanager
def draft(target: Path) -> Iterator[Draft]:
    """Give a draft of a directory, and remove it unless it was published; removes what dead processes left, too.

    Args:
        target: an absolute path; its parents are made where they are missing.

    Raises:
        UsageError: the draft cannot be made there.
    """
    directory, lock = None, -1
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _remove_dead(target)
            directory, lock = _locked_directory(target)
        except OSError as error:
            raise UsageError(
                f"{target} cannot be made ({error.strerror or error}); name another directory"
                " (XTTSBENCH_CACHE for the default data)"
            ) from error
        made = Draft(directory, target)
        yield made
        if made.published:
            directory = None
    finally:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def sync(path: Path) -> None:
    """Flush a file or a directory to the disk, so that a rename after it cannot be the first to get there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file in UTF-8, of lines that bring their own ends, and flush it to the disk."""
    with flushed_file(path) as file:
        file.writelines(line.encode() for line in lines)


def first_entry(target: Path) -> str | None:
    """Return the name of something that a directory holds; None where it is empty or does not exist.

    Raises:
        UsageError: it is a file, or empty and a mount point, which nothing can be renamed to.
    """
    if not os.path.lexists(target):
        return None
    if not target.is_dir():
        raise UsageError(f"{target} is a file; name a directory that is empty or does not exist")
    taken = next(target.iterdir(), None)
    if taken is None and target.is_mount():
        raise UsageError(f"{target} is a mount point, which nothing can be renamed to; name a directory below it")
    return None if taken is None else taken.name


def require_space(target: Path, needed_bytes: int) -> None:
    """Raise :class:`InvalidInputError` where the disk has too little room, before work is spent."""
    if needed_bytes > (free := free_bytes(target)):
        raise InvalidInputError(
            f"{target}: the disk is too full: about {megabytes(needed_bytes)} are needed, {megabytes(free)} are free "
            "there; make room, or name another directory with --out (XTTSBENCH_CACHE where none is named)"
        )


def not_written(error: OSError, target: Path, needed_bytes: int) -> InvalidInputError:
    """Return the error that says why a directory could not be written, and how much room it needs."""
    if error.errno in _FULL:
        free = megabytes(free_bytes(target))
        why = f"the disk or a limit is full: about {megabytes(needed_bytes)} are needed, {free} are free there"
    else:
        why = f"cannot be written ({error.strerror or error})"
    return InvalidInputError(
        f"{target}: {why}; nothing was left behind; make room, or name another directory "
        "(XTTSBENCH_CACHE for the default data)"
    )


def mount_of(place: Path) -> Any | None:
    """Mount, as psutil tells it, that holds a file or folder; ``None`` where the list of mounts has none."""
    holding = [part for part in psutil.disk_partitions(all=True) if place.resolve().is_relative_to(part.mountpoint)]
    # The innermost mount, and of several on one point the last, which hides the others.
    return max(reversed(holding), key=lambda part: len(part.mountpoint), default=None)


def free_bytes(target: Path) -> int:
    """Return the room that the disk has where a directory is or would be."""
    there = target
    while not there.exists() and there != there.parent:
        there = there.parent
    return shutil.disk_usage(there).free


def megabytes(size_bytes: int) -> str:
    """Return a size for people."""
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes < 1e9 else f"{size_bytes / 1e9:,.2f} GB"


def _prefix(target: Path) -> str:
    return f".{target.name[:40]}.draft-"


def _locked_directory(target: Path) -> tuple[Path, int]:
    while True:
        # Not tempfile.mkdtemp, whose directories are closed to others: this one becomes the user's own.
        directory = target.parent / f"{_prefix(target)}{secrets.token_hex(6)}"
        directory.mkdir()
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without locks: then nobody can take ours for dead either
            fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.exists():
            return directory, lock
        os.close(lock)  # another process took it for dead between the two calls


def _remove_dead(target: Path) -> None:
    prefix = _prefix(target)
    for entry in os.scandir(target.parent):
        if not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False):
            continue
        try:
            lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:
            pass  # alive, or locks are not to be had here
        finally:
            os.close(lock)


@contextmanager
def locked(directory: Path, waits: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of a directory, made where it is missing; the kernel releases it however its holder dies.

    Args:
        directory: what is locked.
        waits: called once where another process holds the lock, which is then waited for.

    Raises:
        OSError: the directory cannot be made or written.
        UsageError: its file system has no locks.
    """
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(descriptor, directory, waits)
            # Whoever held the lock may have removed the directory, and our file with it.
            if _is_at(descriptor, directory / LOCK):
                yield
                return
        finally:
            os.close(descriptor)


def _lock(descriptor: int, directory: Path, waits: Callable[[], object]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waits()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be locked ({error.strerror or error}), so two processes might write it at once; "
            "name a place on a local disk (--out ROOT, or XTTSBENCH_CACHE)"
        ) from error


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
