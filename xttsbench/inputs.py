"""Files that somebody else may have written: regular ones alone, and of a limited size.

A FIFO would hold us for ever, and ``/dev/zero`` fill the memory. Either is refused as an ``OSError``, as a file that is
missing, so that its reason goes into the caller's own sentence.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from xttsbench.errors import first_line

if TYPE_CHECKING:
    import numpy.typing as npt

WRITTEN_BYTES: Final = 1_000_000
"""Size of a file that people write, or may have: YAML, TOML, a list of step times."""
RECORD_BYTES: Final = 2**26
"""Size of a record in a run's folder."""
JOURNAL_BYTES: Final = 2**30
"""Size of a journal, or another table that grows with a run."""
_KINDS: Final = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (lambda _: True, "a device"),
)

PathLike = str | os.PathLike[str]


def open_regular(path: PathLike, most_bytes: int | None = None, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file to read it; links are followed.

    Raises:
        OSError: it cannot be opened, or is something else (a directory, a FIFO, a device), or larger.
    """
    _check(os.stat(path), path, most_bytes)  # before it is opened, which alone rewinds a tape
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor), path, most_bytes)
        return open(descriptor, "rb", buffering=buffering)
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: PathLike, most_bytes: int = RECORD_BYTES) -> bytes:
    """Read a regular file.

    Raises:
        OSError: it cannot be read, is no regular file, or holds more than ``most_bytes``.
    """
    try:
        with open_regular(path, most_bytes) as file:
            return file.read()
    except ValueError as error:  # a NUL or a lone surrogate in the name
        raise OSError(errno.EINVAL, f"its name is none of a file: {error}") from error


def read_text(path: PathLike, most_bytes: int = WRITTEN_BYTES) -> str:
    """Read a regular file in UTF-8, line ends as in Python.

    Raises:
        OSError: as of :func:`read_bytes`.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_bytes(path, most_bytes).decode().replace("\r\n", "\n").replace("\r", "\n")


def read_arrays(file: BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an ``.npz`` that is not compressed, without those that are pickled.

    Raises:
        ValueError: it is damaged, or claims to hold more than it has.
    """
    import tokenize  # here, for the command line reads no arrays and starts without NumPy
    import zipfile
    import zlib

    import numpy as np

    odd = (ArithmeticError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, RuntimeError, SyntaxError)
    odder = (AttributeError, TypeError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            if sum(member.file_size for member in arrays.zip.infolist()) > size:
                raise ValueError("its parts claim more than it holds")
            found = dict(arrays)
            if odd_one := next((name for name, array in found.items() if not isinstance(array, np.ndarray)), None):
                raise ValueError(f"{odd_one} is no array")
            return found
    except (*odd, *odder) as error:
        # An array alone, which is none of several, and all that the parsers of archive and headers raise.
        raise ValueError(first_line(error)) from error


def _check(found: os.stat_result, path: PathLike, most_bytes: int | None) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(found.st_mode):
        kind = next(words for is_kind, words in _KINDS if is_kind(found.st_mode))
        raise OSError(errno.EINVAL, f"it is {kind} and not a regular file", os.fspath(path))
    if most_bytes is not None and found.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"it has {found.st_size} bytes, and {most_bytes} are read at most", os.fspath(path))
