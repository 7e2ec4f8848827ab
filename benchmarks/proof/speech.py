"""The clips that a model is taught: made, a part of them held out, and a copy in which no clip keeps its text."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.metadata import EVAL_METADATA, METADATA, SPEAKERS

SEED = 0  # of the clips, and of which text the control puts to which


@dataclass(frozen=True)
class Work:
    """What is taught: so many clips, of which the last ones are held out."""

    clips: int
    held_out: int
    min_s: float
    max_s: float
    speakers: int = 2


def made(directory: Path, work: Work) -> None:
    """Make the clips, and name those that are held out in ``metadata_eval.csv``."""
    make_data(directory, work.clips, SEED, work.min_s, work.max_s, speakers=work.speakers)
    lines = _lines(directory)
    _write(directory / METADATA, lines[: -work.held_out])
    _write(directory / EVAL_METADATA, lines[-work.held_out :])


def with_other_texts(directory: Path, copy: Path) -> None:
    """Make the control's data set: the same sound, speakers and held-out clips, and the training texts permuted."""
    copy.mkdir()
    (copy / "wavs").symlink_to(directory.resolve() / "wavs", target_is_directory=True)
    for name in (EVAL_METADATA, SPEAKERS):
        shutil.copyfile(directory / name, copy / name)
    ids, texts = zip(*(line.split("|")[:2] for line in _lines(directory)), strict=True)
    _write(copy / METADATA, [f"{clip}|{text}" for clip, text in zip(ids, permuted(texts), strict=True)])


def permuted(texts: Sequence[str]) -> list[str]:
    """Return the texts in another order, in which each is where another one was.

    Raises:
        ValueError: two texts are the same, or there is only one.
    """
    if len(set(texts)) < max(len(texts), 2):
        raise ValueError(f"a permutation without a text in its own place takes different texts, got {len(texts)}")
    # One cycle through all of them, in an order that is drawn: nothing in it stays where it was.
    cycle = np.random.default_rng(SEED).permutation(len(texts)).tolist()
    source = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    return [texts[source[place]] for place in range(len(texts))]


def _lines(directory: Path) -> list[str]:
    return (directory / METADATA).read_text(encoding="utf-8").splitlines()


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
