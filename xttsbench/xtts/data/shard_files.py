"""Files of a sharded data set, read by range: from a directory, or through fsspec from where a URL says.

A range comes whole or an error says why not. What may pass (a connection cut, a server that is busy or answers with
5xx, fewer bytes than were asked for, a sum that is wrong) is tried again, each time after a longer and random wait
(Brooker, "Exponential backoff and jitter", 2015); then it is an error that names the file.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import InvalidInputError, UsageError, first_line
from xttsbench.inputs import open_regular

BLOCK_BYTES: Final = 2**23
"""Bytes of a request where a whole file is read."""
ATTEMPTS: Final = 8
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_JITTER: Final = random.Random()  # of its own, so that threads that wait do not draw from a seeded program's
_PERMANENT: Final = (FileNotFoundError, PermissionError, IsADirectoryError)
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    # Attempts are counted here alone: botocore's own would multiply them, and wait a minute for a server that hangs.
    # Its ten connections would be the limit of the requests in flight.
    "s3": {
        "config_kwargs": {
            "connect_timeout": 10,
            "read_timeout": 20,
            "retries": {"max_attempts": 0},
            "max_pool_connections": 1024,
        }
    }
}


class Files:
    """Files by their names, in a directory, or below a URL that fsspec knows, such as ``s3://bucket/speech``."""

    def __init__(self, place: Path | str) -> None:
        """Prepare to read; nothing is read yet.

        Raises:
            UsageError: fsspec, or what it needs for the URL, is not installed.
        """
        self._place, self._attempts = str(place).rstrip("/"), ATTEMPTS
        if isinstance(place, Path):
            self._attempts, self._get = 1, _part
            self._root = self._place
            return
        try:
            from fsspec.core import url_to_fs

            options = _OPTIONS.get(place.partition("://")[0], {})
            system, self._root = url_to_fs(self._place, skip_instance_cache=True, **options)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"{place} cannot be opened ({first_line(error)}); a bucket needs: pip install 'xttsbench[remote]'"
            ) from error
        if hasattr(system, "retries"):
            system.retries = 1
        self._get = system.cat_file

    def where(self, name: str) -> str:
        """Return path or URL of a file."""
        return f"{self._place}/{name}"

    def read(
        self, name: str, start: int = 0, size: int | None = None, check: Callable[[bytes], bool] = lambda _: True
    ) -> bytes:
        """Return ``size`` bytes of a file from ``start`` on, or all of it; from several threads at once if need be.

        Whether they are the right ones is said by ``check``.

        Raises:
            InvalidInputError: they are not to be had.
        """
        reason = ""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S) * _JITTER.uniform(0.5, 1))
            try:
                found = bytes(
                    self._get(f"{self._root}/{name}", start=start, end=None if size is None else start + size)
                )
            except _PERMANENT as error:
                raise InvalidInputError(f"{self.where(name)} cannot be read: {first_line(error)}") from error
            except Exception as error:  # each file system has its own, down to those of its library of HTTP
                reason = f"{type(error).__name__}: {first_line(error)}"
                continue
            if size is not None and len(found) != size:
                reason = f"{len(found)} bytes came, and {size} are there by its index"
            elif check(found):
                return found
            else:
                reason = "its bytes are not those that were written, by their check sum"
        tried = f" in {self._attempts} attempts, the last" if self._attempts > 1 else ""
        raise InvalidInputError(f"{self.where(name)} cannot be read{tried}: {reason}")


def _part(path: str, start: int, end: int | None) -> bytes:
    with open_regular(path, buffering=0) as file:
        file.seek(start)
        return file.read(-1 if end is None else end - start)


def sha256_of(files: Files, name: str, size: int, copy: Callable[[bytes], object] = lambda _: None) -> str:
    """Return the hash of a file of so many bytes, each part of which is handed to ``copy``.

    Raises:
        InvalidInputError: the file cannot be read, or is shorter.
    """
    sha = hashlib.sha256()
    for start in range(0, size, BLOCK_BYTES):
        part = files.read(name, start, min(BLOCK_BYTES, size - start))
        sha.update(part)
        copy(part)
    return sha.hexdigest()
