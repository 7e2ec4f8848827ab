"""Files of a data set and its cache that belong to no clip, and the folder that keeps what a mending replaces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from xttsbench.files import DRAFT_PREFIX, LOCK
from xttsbench.xtts.data.cache_files import INDEX, MANIFEST, PACKED
from xttsbench.xtts.data.speech_data import SpeechData

NPY: Final = "npy"
"""Directory of the features of single clips."""

_OWN: Final = (NPY, INDEX, MANIFEST, PACKED, LOCK)


class Replaced:
    """Folder beside a cache for what a mending replaces there; made when the first file comes.

    Attributes:
        directory: the folder, named with the time in UTC.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        # Two levels, so that a manifest in it is never taken for that of a cache beside ours.
        self.directory = cache.with_name(f"{cache.name}.replaced") / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"

    def move(self, path: Path) -> None:
        """Move a file or directory of the cache into the folder, in one step; one that is missing is passed over.

        Raises:
            OSError: it cannot be moved; it is where it was.
        """
        if os.path.lexists(path):
            path.rename(self._place(path))

    def copy(self, path: Path) -> None:
        """Copy a file of the cache into the folder, and move what is no regular file.

        Raises:
            OSError: it cannot be copied.
        """
        if path.is_file() and not path.is_symlink():
            shutil.copy2(path, self._place(path))
        else:
            self.move(path)

    def _place(self, path: Path) -> Path:
        place = self.directory / path.relative_to(self._cache)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


def metadata_ids(data: SpeechData) -> set[str]:
    """Return the ids of the whole metadata: those of unusable clips and other splits, too."""
    return set(data.metadata.ids)


def unlisted_wavs(data: SpeechData, ids: Container[str]) -> Iterator[str]:
    """Yield the names of the WAV files that no line of the metadata names, sorted."""
    for name in _names(data.directory / "wavs"):
        if name.endswith(".wav") and not name.startswith(".") and name[:-4] not in ids:
            yield name


def strays(directory: Path, ids: Container[str]) -> Iterator[Path]:
    """Yield the files of a cache's directory that are of none of these clips, and those that are none of a cache's.

    Drafts of a process that makes the cache are passed over: the next one removes them.
    """
    for name in _names(directory):
        if name not in _OWN and not name.startswith(DRAFT_PREFIX):
            yield directory / name
    for name in _names(directory / NPY):
        if not (name.endswith(".npy") and name[:-4] in ids) and not name.startswith(DRAFT_PREFIX):
            yield directory / NPY / name


def _names(directory: Path) -> list[str]:
    with suppress(OSError):  # missing or unreadable, which is named elsewhere
        return sorted(os.listdir(directory))
    return []
