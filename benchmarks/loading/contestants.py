"""Who takes part, and with which settings: a table, and the command of each entry."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOADERS = ("numpy_wav", "tf_wav", "numpy_cache", "tf_cache", "packed")
WORKERS = (0, 1, 2)


@dataclass(frozen=True)
class Contestant:
    """One process: a script in an environment, with its settings."""

    name: str
    environment: str  # `xttsbench`, or a peer's
    script: str
    variant: dict[str, Any]
    hand_made: bool = False
    """Whether a peer reads with ``readinto`` of our own, and so shows the framework without its usual way to read."""

    @property
    def computes_features(self) -> bool:
        """Whether it reads sound, so that its features may differ from the stored ones in the last digits."""
        return self.variant.get("loader") in {"numpy_wav", "tf_wav"}

    def command(self, python: Path | str, manifest: Path, *rest: str) -> list[str]:
        """Return the command of its process; ``rest`` is what :mod:`contest` takes after the variant."""
        return [str(python), str(HERE / self.script), str(manifest), json.dumps(self.variant), *rest]


def process_environment() -> dict[str, str]:
    """Variables of every contestant's process: modules of this directory, no GPU, little said by TensorFlow."""
    return os.environ | {
        "PYTHONPATH": str(HERE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def ours(data: Path) -> list[Contestant]:
    """Return the project's loaders, as they are by default, over a data set's directory."""
    return [Contestant(loader, "xttsbench", "project.py", {"loader": loader, "data": str(data)}) for loader in LOADERS]


def plain() -> list[Contestant]:
    """Return ``readinto`` over the clips' files, over the packed file, and without any new page."""
    return [
        Contestant("readinto (files)", "xttsbench", "readinto.py", {"from": "files", "reused": False}),
        Contestant("readinto", "xttsbench", "readinto.py", {"from": "packed", "reused": False}),
        Contestant("readinto (one buffer)", "xttsbench", "readinto.py", {"from": "packed", "reused": True}),
    ]


def torch(workers: int) -> list[Contestant]:
    """Return what the torch DataLoader is tried with, for a number of workers."""
    tried: list[tuple[str, str, int]] = [(unit, reader, 2) for unit in ("clip", "batch") for reader in ("load", "mmap")]
    if workers:
        tried += [("clip", "load", 8), ("batch", "load", 8)]
    tried.append(("batch", "readinto", 2))
    return [
        Contestant(
            f"torch, {workers} workers: {unit}, {reader}" + (f", prefetch {prefetch}" if workers else ""),
            "torch",
            "peers/torch_loader.py",
            {"unit": unit, "reader": reader, "workers": workers, "prefetch_factor": prefetch},
            hand_made=reader == "readinto",
        )
        for unit, reader, prefetch in tried
    ]


def grain(workers: int) -> list[Contestant]:
    """Return what grain is tried with, for a number of workers.

    Its buffer counts batches. It stays small, since a large one would be filled before the clock starts and emptied
    while it runs.
    """
    reading = ((0, 0), (2, 4)) if workers else ((0, 0), (2, 4), (16, 16))
    tried: list[tuple[str, str, str, int, int]] = [
        ("dataset", unit, reader, *options)
        for unit, reader in (("clip", "load"), ("batch", "load"), ("batch", "mmap"))
        for options in reading
    ]
    tried += [("loader", "batch", "load", 2, 4), ("dataset", "batch", "readinto", 0, 0)]
    return [
        Contestant(
            f"grain, {workers} workers: {api}, {unit}, {reader}, {threads} threads",
            "grain",
            "peers/grain_loader.py",
            {"api": api, "unit": unit, "reader": reader, "threads": threads, "buffer": buffer, "workers": workers},
            hand_made=reader == "readinto",
        )
        for api, unit, reader, threads, buffer in tried
    ]


PEERS = {"torch": torch, "grain": grain}
