"""Kinds of files that somebody else may have written, and what is asked of reading one, whatever its bytes are.

A file is either read, or refused by an :class:`xttsbench.errors.XttsbenchError`, whose message can be printed. No
other exception leaves a function here; a hang and the memory taken are watched from outside. The seeds of a kind lie in
``tests/corpus/KIND``, where whoever fuzzes keeps what found a new way through the code.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from xttsbench.cli.output import printable
from xttsbench.errors import XttsbenchError
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.journal import HISTORY, TRIALS, read_history, read_trials
from xttsbench.execution.run_directory import ENVIRONMENT, PLAN, read_environment, read_plan
from xttsbench.scenario.load import load_scenario
from xttsbench.shipped import shipped
from xttsbench.training.checkpoints import MANIFEST, read_manifest
from xttsbench.workflows import saved
from xttsbench.workflows.compare.sides import REPORT, read_side
from xttsbench.workflows.monitor.log import read_log
from xttsbench.workflows.watch import read_summary
from xttsbench.xtts.clips import made_of
from xttsbench.xtts.data.cache_files import open_packed, read_index, read_npy
from xttsbench.xtts.data.metadata import METADATA, SPEAKERS, Problems, read_metadata, read_speakers
from xttsbench.xtts.data.speech_data import MADE
from xttsbench.xtts.recipe import load_recipe
from xttsbench.xtts.wav import canonical_samples, read_canonical_wav, read_sound, read_sound_header

CORPUS: Final = Path(__file__).resolve().parents[2] / "tests" / "corpus"
N_MELS: Final = 4
FEATURES: Final = load_recipe(shipped("training", "tiny")).features
RATE_HZ: Final = 22050
BETWEEN: Final = b"\n----\n"
"""Between two files in one input."""


def refused_or(read: Callable[..., Any], *arguments: Any) -> Any:
    """What a file holds; ``None`` where it is refused as it should be."""
    try:
        return read(*arguments)
    except XttsbenchError as error:
        said = printable(str(error))
        if not said.strip() or "\n" in said:
            raise AssertionError(f"{type(error).__name__} says nothing that can be printed") from error
        return None


def npy(content: bytes, folder: Path) -> None:
    """Features of a clip, and of all clips."""
    path = folder / "a.npy"
    path.write_bytes(content)
    if (mel := refused_or(read_npy, path, N_MELS)) is not None:
        if mel.dtype != np.float32 or mel.shape[1:] != (N_MELS,) or len(content) < mel.nbytes:
            raise AssertionError(f"{mel.shape} of {mel.dtype} in {len(content)} bytes")
        packed = refused_or(open_packed, path, len(mel), N_MELS)
        float(packed.sum())


def index(content: bytes, folder: Path) -> None:
    """Clips of a packed file; checksums of the archive are not looked at, or no change of a byte would get further."""
    path = folder / "index.npz"
    path.write_bytes(content)
    zipfile.ZipExtFile._update_crc = lambda *_: None  # type: ignore[attr-defined]
    found = refused_or(read_index, path, FEATURES)
    if found is not None:
        found.offsets.tolist()


def metadata(content: bytes, folder: Path) -> None:
    """``metadata.csv`` and ``speakers.csv``."""
    clips, _, speakers = content.partition(BETWEEN)
    (folder / METADATA).write_bytes(clips)
    (folder / SPEAKERS).write_bytes(speakers or b"a|b\n")
    problems = Problems()
    found = refused_or(read_metadata, folder, 0, problems)
    if found is not None:
        [(found.ids[row], found.texts[row], found.where(row)) for row in range(len(found))]
        refused_or(read_speakers, folder, found, problems)
    if len(problems):
        printable(str(problems.error("data", 1, "mend it")))


def wav(content: bytes, folder: Path) -> None:
    """A sound file."""
    path = folder / "a.wav"
    path.write_bytes(content)
    refused_or(read_sound_header, path)
    refused_or(read_sound, path)
    refused_or(canonical_samples, path, RATE_HZ)
    refused_or(read_canonical_wav, path, RATE_HZ)


def yaml(content: bytes, folder: Path) -> None:
    """A scenario, a recipe, ``best.yaml`` and ``optimized.yaml``: each is read as all of them."""
    path = folder / "a.yaml"
    path.write_bytes(content)
    refused_or(lambda: load_scenario(path, target=lambda _: None, accelerator=lambda _: None))
    refused_or(load_recipe, path)
    refused_or(saved.read_best, path)
    refused_or(saved.read_plan, path)


def journal(content: bytes, folder: Path) -> None:
    """``trials.jsonl`` and ``history.jsonl``, a watch's baseline, and recorded step times."""
    for name in (TRIALS, HISTORY, "times.txt"):
        (folder / name).write_bytes(content)
    refused_or(read_trials, folder)
    refused_or(read_history, folder)
    refused_or(parse_accelerator, f"emulated:{folder / TRIALS}")
    refused_or(parse_accelerator, f"emulated:{folder / 'times.txt'}")
    refused_or(read_log, folder / "times.txt")


def report(content: bytes, folder: Path) -> None:
    """Records that a run leaves as JSON: report, plan, environment, summary, manifests."""
    for name in (REPORT, PLAN, ENVIRONMENT, "summary.json", MANIFEST, MADE):
        (folder / name).write_bytes(content)
    refused_or(read_side, str(folder / REPORT))
    refused_or(read_plan, folder)
    refused_or(read_environment, folder)
    refused_or(read_summary, folder)
    refused_or(read_manifest, folder)
    refused_or(made_of, folder)


KINDS: Final = MappingProxyType({one.__name__: one for one in (npy, index, metadata, wav, yaml, journal, report)})
