"""``checkpoints/manifest.json``: what makes a directory a checkpoint, read without TensorFlow and without arrays."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import ValidationError

from xttsbench.errors import InvalidInputError
from xttsbench.records.base import SCHEMA_VERSION
from xttsbench.records.training import MANIFEST, CheckpointEntry, Manifest
from xttsbench.xtts.data.npy_cache import atomic_file

WEIGHTS: Final = "weights.npz"
OPTIMIZER: Final = "optimizer.npz"
STATE: Final = "state.json"
FILES: Final = (WEIGHTS, OPTIMIZER, STATE)
"""What a checkpoint's directory holds."""
CHECKPOINT: Final = re.compile(r"step-\d{8,}(-\d+)?")
"""What a checkpoint's directory is called; the second number tells those of one step apart."""


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a directory ``checkpoints/``; an empty one where there is none yet.

    Raises:
        InvalidInputError: it is malformed, of a newer version, or names files outside of the directory.
    """
    path = directory / MANIFEST
    try:
        manifest = Manifest.model_validate(versioned(path, path.read_bytes()))
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
    with atomic_file(directory / MANIFEST) as file:
        file.write(manifest.model_dump_json(indent=2).encode() + b"\n")


def name_of(entry: CheckpointEntry) -> str:
    """Return the name of a checkpoint's directory."""
    return PurePosixPath(entry.files[0]).parent.as_posix() if entry.files else ""


def kept(manifest: Manifest, entry: CheckpointEntry, count: int) -> Manifest:
    """Return the manifest with a new checkpoint, and of the older ones the newest and the best.

    Those of the same step and of later ones are of a course that was left: the run went back before them.

    Args:
        manifest: before.
        entry: what was written.
        count: checkpoints to keep beside the best.
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
    except ValueError as error:
        raise InvalidInputError(f"{path} is not JSON ({error}); name another directory") from error
    version = values.get("schema_version") if isinstance(values, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise InvalidInputError(
            f"{path}: schema_version is {version}, and this version of xttsbench reads {SCHEMA_VERSION}; take a newer "
            "version"
        )
    return values
