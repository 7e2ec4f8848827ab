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


def write(
    kind: str, folder: Path, workers: int, cores: int, memory_gb: int, image: str, tensorflow: str | None
) -> Path:
    """Write the file for a kind of cluster (:data:`FORMATS`); returns its path.

    Args:
        kind: of cluster.
        folder: made if missing.
        workers: their number.
        cores: of each worker.
        memory_gb: of each worker.
        image: that the containers run.
        tensorflow: the only version that may serve.

    Raises:
        UsageError: the kind or the version is unknown, the image is no name, or the folder cannot be written.
    """
    if kind not in FORMATS:
        raise UsageError(f"--format is {' or '.join(FORMATS)}, not {kind!r}.")
    if not re.fullmatch(r"[\w.:/@-]+", image):
        raise UsageError(f"--image {image!r} is no name of a container image.")
    if tensorflow is None:
        raise UsageError("The file asks for the version of TensorFlow that is installed here, and none is.")
    own = Path(sys.executable).with_name("xttsbench")
    values = {"workers": workers, "tasks": workers + 2, "cores": cores, "memory_gb": memory_gb, "image": image}
    values |= {"memory_mb_per_cpu": 1024 * memory_gb // cores or 1, "tensorflow": tensorflow}
    values |= {"xttsbench": str(own) if own.exists() else "xttsbench"}
    path = folder / FORMATS[kind]
    template = Template(Path(__file__).with_name(f"{FORMATS[kind]}.template").read_text("utf-8"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(path, template.substitute(values).encode())
    except OSError as error:
        raise UsageError(f"--out {str(folder)!r} cannot be written: {error.strerror}.") from error
    return path
