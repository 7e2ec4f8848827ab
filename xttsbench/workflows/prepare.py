"""What the bundled workload needs before it can be measured: its data set, and the features that loaders read.

Both are made once and kept. It happens before the clock of a budget starts, and in the parent, where long work can show
its progress; a trial that had to make them would be measured making them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xttsbench.shipped import shipped
from xttsbench.xtts.data.make import ensure_default_data
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.progress import Progress
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.loaders import CACHED
from xttsbench.xtts.recipe import load_recipe


def prepare(configurations: Iterable[Mapping[str, Any]], progress: Progress | None = None) -> None:
    """Make what these configurations of the bundled workload read, unless it is there.

    Args:
        configurations: keyword arguments of :func:`xttsbench.targets.bundled.make_workload`.
        progress: whom to tell.

    Raises:
        InvalidInputError: the data set cannot be used, or the recipe is not one of ours.
    """
    wanted = {
        (
            config.get("data"),
            config.get("recipe", "tiny"),
            config.get("features"),
            config.get("loader") in CACHED,
        )
        for config in configurations
    }
    for data, recipe, features, cached in sorted(wanted, key=str):
        directory = Path(data) if data is not None else ensure_default_data(progress)
        settings = load_recipe(shipped("training", recipe)).features
        clips = read_speech_data(directory, sample_rate_hz=settings.sample_rate_hz, split="all")
        if cached:
            precompute(clips, settings, Path(features) if features is not None else None, progress=progress)
