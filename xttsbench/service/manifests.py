"""Files that start dispatcher and workers on a cluster, from the templates beside this module."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from string import Template
from typing import Final

from xttsbench.errors import UsageError
from xttsbench.files import atomic_write

FORMATS: Final = {"kubernetes": "service.yaml", "slurm": "service.sbatch"}
"""Kinds of clusters, and the file that is written for each."""
_IMAGE: Final = re.compile(r"[\w.:/@-]+")


def write(
    kind: str, folder: Path, *, workers: int, cores: int, memory_gb: int, image: str, tensorflow: str | None
) -> Path:
    """Write the file for a kind of cluster; returns its path.

    Args:
        kind: of :data:`FORMATS`.
        folder: made if missing.
        workers: their number.
        cores: of each worker.
        memory_gb: of each worker.
        image: that the containers run.
        tensorflow: the only version that may serve.

    Raises:
        UsageError: the kind is unknown, the image is no name, or the folder cannot be written.
    """
    if kind not in FORMATS:
        raise UsageError(f"--format is {' or '.join(FORMATS)}, not {kind!r}.")
    if not _IMAGE.fullmatch(image):
        raise UsageError(f"--image {image!r} is no name of a container image.")
    own = Path(sys.executable).with_name("xttsbench")
    text = Template(Path(__file__).with_name(f"{FORMATS[kind]}.template").read_text("utf-8")).substitute(
        workers=workers,
        tasks=workers + 2,
        cores=cores,
        memory_gb=memory_gb,
        memory_mb_per_cpu=1024 * memory_gb // cores,
        image=image,
        tensorflow=tensorflow or "",
        xttsbench=own if own.exists() else "xttsbench",
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FORMATS[kind]
        atomic_write(path, text.encode())
    except OSError as error:
        raise UsageError(f"--out {str(folder)!r} cannot be written: {error.strerror}.") from error
    return path
