"""The bundled workload: what it reads, made before it is measured, and the job of ``diagnose`` without a target.

Data and features are made once and kept, in the parent and before the clock of a budget starts: a trial that had to
make them would be measured making them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.planning import plan_comparison
from xttsbench.probes.environment import require_tensorflow
from xttsbench.records.plan import Comparison
from xttsbench.scenario.load import changed, load_scenario
from xttsbench.shipped import shipped
from xttsbench.targets.configuration import configuration_problems
from xttsbench.targets.spec import parse_target
from xttsbench.xtts.data.make import ensure_default_data
from xttsbench.xtts.data.pool import Progress
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.loaders import CACHED
from xttsbench.xtts.recipe import load_recipe


@dataclass(frozen=True)
class BundledJob:
    """The target with its arguments, and the configurations to compare after the verdict, if any."""

    target: str
    kwargs: Mapping[str, Any]
    comparison: Comparison | None


def bundled_job(
    settings: Mapping[str, Any], data: Path | None, accelerator: str, progress: Progress | None = None
) -> BundledJob:
    """Return the job, after making the data and features that it reads.

    An emulated accelerator stands for the device, so that the workload's own step is left out behind one.

    Args:
        settings: keyword arguments of the workload, on top of the scenario's; what the configurations are about
            (``loader``) changes the target of the verdict and leaves the configurations as they are.
        data: directory of a data set in LJSpeech format in place of the default one.
        accelerator: as on the command line; ``real`` takes those of the scenario.
        progress: told of the making.

    Raises:
        UsageError, InvalidInputError: a setting, the accelerator or the data cannot be used.
    """
    scenario = load_scenario(
        shipped("scenarios", "diagnose"),
        target=parse_target,
        accelerator=parse_accelerator,
        arguments=configuration_problems,
    )
    own = {key for arm in scenario.arms or () for key in arm.config}
    shared = {key: value for key, value in settings.items() if key not in own}
    asked = changed(
        scenario,
        {
            "data": str(data) if data is not None else None,
            "accelerator": None if accelerator == "real" else [accelerator],
        },
        shared,
        arguments=configuration_problems,
    )
    comparison = plan_comparison(asked, [parse_accelerator(text) for text in asked.accelerator])
    kwargs = comparison.baseline.kwargs | dict(settings)
    if accelerator != "real":
        kwargs |= {"with_step": False}
    prepare([kwargs, *(arm.kwargs for arm in comparison.arms)], progress)
    return BundledJob(comparison.target, kwargs, comparison)


def prepare(configurations: Iterable[Mapping[str, Any]], progress: Progress | None = None) -> None:
    """Make what these configurations of the bundled workload read, unless it is there.

    Args:
        configurations: keyword arguments of :func:`xttsbench.targets.bundled.make_workload`.
        progress: whom to tell.

    Raises:
        InvalidInputError: the data set cannot be used, or the recipe is not one of ours.
        HelperError: TensorFlow is missing, or of an unsupported version, so that they would be made for nothing.
    """
    require_tensorflow()
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
