"""Checkpoints that are there whole or not at all, named by a manifest, and checked by their hashes when they are read.

A checkpoint is a directory of three files: ``weights.npz``, ``optimizer.npz`` (slots, averages, loss scale, counters)
and ``state.json`` (everything else that decides the future). It is written under another name, flushed to the disk,
renamed, and only then named in ``manifest.json``; an older one is removed when the manifest no longer names it. So
whatever kills the process, the manifest names checkpoints that are whole. Arrays are never pickled.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from xttsbench import __version__
from xttsbench.errors import InvalidInputError, first_line
from xttsbench.files import DRAFT_PREFIX, atomic_write, flushed_file, sync
from xttsbench.inputs import open_regular, read_arrays, read_bytes
from xttsbench.records.base import SCHEMA_VERSION, Record
from xttsbench.records.training import MANIFEST, CheckpointEntry, Manifest
from xttsbench.training.course import NONE, HealthState, Origin, Position, Sums

WEIGHTS: Final = "weights.npz"
OPTIMIZER: Final = "optimizer.npz"
STATE: Final = "state.json"
FILES: Final = (WEIGHTS, OPTIMIZER, STATE)
"""Files in a checkpoint's directory."""
CHECKPOINT: Final = re.compile(r"step-\d{8,}(-\d+)?")
"""Name of a checkpoint's directory; the second number tells those of one step apart."""
Arrays = dict[str, npt.NDArray[Any]]
_DRAFT: Final = ".draft"


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a directory ``checkpoints/``; an empty one where there is none yet.

    Raises:
        InvalidInputError: it is malformed, of a newer version, or names files outside of the directory.
    """
    path = directory / MANIFEST
    try:
        manifest = Manifest.model_validate(versioned(path, read_bytes(path)))
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read ({error.strerror or error}); make it readable") from error
    except ValidationError as error:
        raise InvalidInputError(
            f"{path} is no manifest of checkpoints: {error.errors()[0]['msg']}; name another directory"
        ) from error
    for entry in manifest.checkpoints:
        if not CHECKPOINT.fullmatch(name := name_of(entry)) or entry.files != tuple(f"{name}/{file}" for file in FILES):
            raise InvalidInputError(
                f"{path} names {', '.join(entry.files) or 'no file'} for step {entry.step}, and "
                f"{', '.join(f'step-00000000/{file}' for file in FILES)} or the like are expected; it was changed by "
                "another program: name another directory"
            )
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    atomic_write(directory / MANIFEST, manifest.model_dump_json(indent=2).encode() + b"\n")


def name_of(entry: CheckpointEntry) -> str:
    """Return the name of a checkpoint's directory."""
    return PurePosixPath(entry.files[0]).parent.as_posix() if entry.files else ""


def kept(manifest: Manifest, entry: CheckpointEntry, count: int) -> Manifest:
    """Return the manifest with a new checkpoint, and of the older ones the newest and the best.

    Those of the same step and of later ones were damaged, so that the run went on before them. So many are kept beside
    the best.
    """
    entries = (*(old for old in manifest.checkpoints if old.step < entry.step), entry)
    best = [number for number, old in enumerate(entries) if old.best][-1:]
    first = len(entries) - count
    return manifest.model_copy(
        update={"checkpoints": tuple(old for number, old in enumerate(entries) if number >= first or number in best)}
    )


def versioned(path: Path, content: bytes) -> object:
    """Return what a JSON file of ours holds, after looking at its schema version.

    Raises:
        InvalidInputError: it is no JSON, or of a newer version.
    """
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not JSON ({error}); name another directory") from error
    version = values.get("schema_version") if isinstance(values, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise InvalidInputError(
            f"{path}: schema_version is {version}, and this version of xttsbench reads {SCHEMA_VERSION}; take a newer "
            "version"
        )
    return values


class RunState(Record):
    """``state.json``: all of a run's state but its arrays."""

    schema_version: int = SCHEMA_VERSION
    xttsbench_version: str = __version__
    origin: Origin
    position: Position = Position()
    samples_sha256: str = NONE
    health: HealthState = HealthState()
    lowest: float | None = None
    """The lowest held-out loss so far; ``None`` before the first."""
    sums: Sums = Sums()
    """Sums of the interval that the checkpoint lies in."""


class Checkpoint(NamedTuple):
    """Contents of a checkpoint."""

    entry: CheckpointEntry
    run: RunState
    weights: Arrays
    optimizer: Arrays


class DamagedError(InvalidInputError):
    """A checkpoint is not what its entry says."""


class Checkpoints:
    """The checkpoints of a run: those of a directory ``checkpoints/``, which need not be there."""

    def __init__(self, directory: Path, keep: int) -> None:
        """Remember where they are, and how many of the newest are kept beside the best."""
        self.directory, self.keep = directory, keep

    @property
    def entries(self) -> tuple[CheckpointEntry, ...]:
        """Entries of the manifest, newest last.

        Raises:
            InvalidInputError: the manifest cannot be read.
        """
        return read_manifest(self.directory).checkpoints

    def save(self, run: RunState, weights: Arrays, optimizer: Arrays, *, best: bool = False) -> CheckpointEntry:
        """Write a checkpoint and remove those that are not to be kept.

        Raises:
            OSError: it cannot be written; nothing is left of it, and the older ones are as they were.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        manifest = read_manifest(self.directory)
        target = self._free(run.position.step)
        draft = target.with_name(f".{target.name}{_DRAFT}")
        state = run.model_dump_json(indent=2).encode() + b"\n"
        entry = CheckpointEntry(
            step=run.position.step,
            epoch=run.position.epoch,
            batch=run.position.batch,
            files=tuple(f"{target.name}/{file}" for file in FILES),
            weights_sha256=digest(weights),
            optimizer_sha256=digest(optimizer),
            samples_sha256=run.samples_sha256,
            state_sha256=hashlib.sha256(state).hexdigest(),
            best=best,
        )
        try:
            draft.mkdir()
            _write_arrays(draft / WEIGHTS, weights)
            _write_arrays(draft / OPTIMIZER, optimizer)
            with flushed_file(draft / STATE) as file:
                file.write(state)
            sync(draft)
            draft.rename(target)
            sync(self.directory)
            write_manifest(self.directory, kept(manifest, entry, self.keep))
        except BaseException:
            for path in (draft, target):
                shutil.rmtree(path, ignore_errors=True)
            raise
        sync(self.directory)
        self.clear()
        return entry

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """Read the newest whole checkpoint; ``None`` where none was ever written.

        ``warn`` is told of each damaged one that is passed over.

        Raises:
            InvalidInputError: none of those that were written is whole, or one is of a newer version.
        """
        entries = self.entries[::-1]
        for entry in entries:
            try:
                return self.load(entry)
            except DamagedError as error:
                warn(f"{error}; an older one is taken")
        if entries:
            raise InvalidInputError(
                f"{self.directory}: none of {len(entries)} checkpoints is whole; begin again in another directory"
            )
        return None

    def load(self, entry: CheckpointEntry) -> Checkpoint:
        """Read a checkpoint and compare it with its hashes.

        Raises:
            DamagedError: a file is missing, cut short or changed.
            InvalidInputError: it is of a newer version.
        """
        directory = self.directory / name_of(entry)
        run = _read_state(directory / STATE, entry.state_sha256)
        arrays = []
        for file, sha256 in ((WEIGHTS, entry.weights_sha256), (OPTIMIZER, entry.optimizer_sha256)):
            arrays.append(_read_arrays(directory / file))
            if digest(arrays[-1]) != sha256:
                raise DamagedError(f"{directory / file} is not what {MANIFEST} says: it was changed")
        return Checkpoint(entry, run, *arrays)

    def clear(self) -> None:
        """Remove checkpoints that the manifest does not name, and what was being written when a process was killed."""
        if not self.directory.is_dir():
            return
        named = {name_of(entry) for entry in self.entries}
        for path in self.directory.iterdir():
            if CHECKPOINT.fullmatch(path.name.removeprefix(".").removesuffix(_DRAFT)) and path.name not in named:
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(DRAFT_PREFIX):
                path.unlink(missing_ok=True)

    def _free(self, step: int) -> Path:
        """Return a name that no directory has: one that was passed over is written again."""
        path, number = self.directory / f"step-{step:08d}", 1
        while path.exists():
            path, number = self.directory / f"step-{step:08d}-{number}", number + 1
        return path


def digest(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 of names, types, shapes and bytes, in the order of the names."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        sha.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()


def _write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an ``.npz`` and flush it; not ``np.savez``, which leaves a broken archive open where the disk is full."""
    with flushed_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            # Of a fixed time, so that equal arrays are equal files; above 2 GiB an entry needs the longer form.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _read_arrays(path: Path) -> Arrays:
    try:
        with open_regular(path) as file:
            return read_arrays(file)
    except FileNotFoundError as error:
        raise DamagedError(f"{path} is missing") from error
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path} is damaged ({first_line(error)})") from error


def _read_state(path: Path, sha256: str) -> RunState:
    try:
        content = read_bytes(path)
    except FileNotFoundError as error:
        raise DamagedError(f"{path} is missing") from error
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror or error})") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedError(f"{path} is not what {MANIFEST} says: it was changed")
    values = versioned(path, content)
    try:
        return RunState.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInputError(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; it was written by another version of "
            "xttsbench: resume with that one, or begin again in another directory"
        ) from error
