"""How fast storage gives a data set's own files: a small sample of them, cold, warm, and by several readers at once.

Cold means that the kernel was asked to drop these files from the page cache (``posix_fadvise``, for which nobody has
to be root); what it really fetched is read from ``/proc/self/io``, so that storage that cannot be made cold is known.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from xttsbench.errors import InvalidInputError
from xttsbench.probes.environment import storage_under
from xttsbench.probes.procfs import parse_reads
from xttsbench.records.machine import Pass, Storage

READERS: Final = 8
"""As many as a pipeline has that reads in parallel."""
_SAMPLE_BYTES: Final = 64 << 20
_SAMPLE_FILES: Final = 256
_PASS_S: Final = 2.0
"""After so long a pass ends with the file that it is at; so does the search for files."""
_LISTED: Final = 20_000
_CHUNK: Final = 256 << 10
_SEED: Final = 0

Reader = Callable[[Path], Iterator[int]]
"""Reads a file to its end, piece by piece; yields the bytes of each."""


def read_whole(path: Path) -> Iterator[int]:
    """Read a file as most pipelines do, from its beginning to its end."""
    with path.open("rb", buffering=0) as file:
        while got := len(file.read(_CHUNK)):
            yield got


def drop(path: Path) -> None:
    """Ask the kernel to forget what it holds of a file; pages that are mapped or not yet written stay."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def storage(
    directory: Path,
    *,
    read: Reader = read_whole,
    clock: Callable[[], float] = time.monotonic,
    stored: Callable[[], int | None] | None = None,
) -> Storage:
    """Read a random sample of the files below a directory, at most 64 MiB and two seconds a pass.

    Args:
        directory: of the data set.
        read: how a file is read.
        clock: in seconds.
        stored: bytes that storage was asked for so far; by default what the kernel counts for this process.

    Raises:
        InvalidInputError: there is no such directory, or no file in it that can be read.
    """
    stored = stored or _stored_bytes
    files = _files(directory, clock)
    random.Random(_SEED).shuffle(files)
    half = max(len(files) // 2, 1)
    sample, others = files[:half][:_SAMPLE_FILES], files[half:][:_SAMPLE_FILES]
    try:
        for file in (*sample, *others):
            drop(file)
        cold, done = _serial([(file, _SAMPLE_BYTES) for file in sample], read, clock, stored)
        warm, _ = _serial(done, read, clock, stored)
        parallel, parallel_files, parallel_bytes = _parallel(others, read, clock, stored)
    except OSError as error:
        raise InvalidInputError(
            f"--data {str(directory)!r}: {error.filename or directory} cannot be read ({error.strerror or error})."
        ) from error
    return Storage(
        path=str(directory),
        filesystem=storage_under(directory, {})["filesystem"],
        listed=len(files),
        files=len(done),
        bytes=sum(size for _, size in done),
        cold=cold,
        warm=warm,
        parallel=parallel,
        parallel_files=parallel_files,
        parallel_bytes=parallel_bytes,
    )


def _files(directory: Path, clock: Callable[[], float]) -> list[Path]:
    """Files with something in them, in an order that does not depend on the file system's."""
    if not directory.is_dir():
        raise InvalidInputError(f"--data {str(directory)!r} is no directory; name the one that holds the data set.")
    until, found = clock() + _PASS_S, []
    for path in _walk(directory):
        found.append(path)
        if len(found) == _LISTED or clock() > until:
            break
    if not found:
        raise InvalidInputError(f"--data {str(directory)!r} holds no file to read; name the one that holds the data.")
    return sorted(found)


def _walk(directory: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and path.stat().st_size:
                yield path


def _serial(
    wanted: Sequence[tuple[Path, int]], read: Reader, clock: Callable[[], float], stored: Callable[[], int | None]
) -> tuple[Pass, list[tuple[Path, int]]]:
    """Read so many bytes of each file, one after the other, while there is room; returns what was read of which."""
    before, began = stored(), clock()
    room = _Room(_SAMPLE_BYTES, began + _PASS_S, clock)
    done = []
    for file, most in wanted:
        if room.over:
            break
        done.append((file, room.fill(read(file), most)))
    return _pass(clock() - began, sum(size for _, size in done), before, stored()), done


def _parallel(
    files: Sequence[Path], read: Reader, clock: Callable[[], float], stored: Callable[[], int | None]
) -> tuple[Pass | None, int, int]:
    """The same by several readers, each of which takes the next file that nobody has."""
    if len(files) < 2 * READERS:
        return None, 0, 0
    waiting, before, began = iter(files), stored(), clock()

    def reader(_: int) -> list[int]:
        room = _Room(_SAMPLE_BYTES // READERS, began + _PASS_S, clock)
        sizes = []
        # next() of a list's iterator is one step of the interpreter, so no two readers get the same file.
        while not room.over and (file := next(waiting, None)) is not None:
            sizes.append(room.fill(read(file), _SAMPLE_BYTES))
        return sizes

    with ThreadPoolExecutor(READERS) as pool:
        sizes = [size for done in pool.map(reader, range(READERS)) for size in done]
    return _pass(clock() - began, sum(sizes), before, stored()), len(sizes), sum(sizes)


class _Room:
    """Bytes and time that a reader may still use."""

    def __init__(self, size: int, until_s: float, clock: Callable[[], float]) -> None:
        self._left, self._until_s, self._clock = size, until_s, clock

    @property
    def over(self) -> bool:
        return self._left <= 0 or self._clock() > self._until_s

    def fill(self, pieces: Iterator[int], most: int) -> int:
        """Take pieces of a file until there are ``most`` bytes, or no room."""
        size = 0
        for piece in pieces:
            size += piece
            self._left -= piece
            if self.over or size >= most:
                break
        return size


def _pass(seconds: float, size: int, before: int | None, after: int | None) -> Pass:
    if before is None or after is None or not size:
        return Pass(seconds=seconds)
    return Pass(seconds=seconds, stored_share=min((after - before) / size, 1.0))


def _stored_bytes() -> int | None:
    try:
        return parse_reads(Path("/proc/self/io").read_text(encoding="ascii")).storage_bytes
    except (OSError, ValueError):
        return None
