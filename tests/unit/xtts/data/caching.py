"""Processes that make a cache."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path

import scipy.fft
import scipy.sparse  # noqa: F401 - features load them when they are made, which would be once in each process

from xttsbench.shipped import shipped
from xttsbench.xtts.data import precompute
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.recipe import load_recipe


def make(speech: Path, root: Path) -> precompute.Made:
    data = read_speech_data(speech, sample_rate_hz=22050, split="all")
    return precompute.make_cache(data, load_recipe(shipped("training", "tiny")).features, root, workers=1)


def one_of_two(pipe: Connection, speech: Path, root: Path) -> None:
    """Begin when told to, and say what was made and what was kept."""
    pipe.send("ready")
    pipe.recv()
    made = make(speech, root)
    pipe.send((made.made, made.kept))


def hangs(pipe: Connection, speech: Path, root: Path, call: int) -> None:
    """Stand still in one of the calls of fsync, by its number from 1, say so, and never go on."""
    calls, real = 0, os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            pipe.send("now")
            pipe.recv()  # nothing comes: a wait that ends by itself is over too soon on a busy machine
        real(descriptor)

    precompute._NOTE_EVERY_S, precompute._CLIPS_A_JOB = 0.0, 2
    os.fsync = fsync
    make(speech, root)
