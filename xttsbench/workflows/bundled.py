"""From the request to the job of the process that trains: recipe, winner's configuration, data, features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.planning import plan_comparison
from xttsbench.probes.environment import require_tensorflow
from xttsbench.records.plan import Accelerator, Comparison, RunPlan
from xttsbench.records.training import TakenOver, TrainJob
from xttsbench.scenario.load import changed, load_scenario
from xttsbench.shipped import locate, shipped
from xttsbench.targets.configuration import configuration_problems
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.saved import TAKEN, find_best, sentences, taken_over
from xttsbench.xtts.data.make import ensure_default_data
from xttsbench.xtts.data.pool import Progress
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.shard_index import is_sharded
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.loaders import CACHED, IN_PYTHON
from xttsbench.xtts.recipe import Recipe, load_recipe, recipe_of

_DEFAULTS: Final[dict[str, Any]] = {
    "loader": "packed",
    "mode": "graph",
    "precision": "float32",
    "prefetch": -1,
    "device_prefetch": 0,
    "workers": -1,
    "threads": 0,
    "cache": False,
    "bucketing": True,
}
"""Without a winner: the loader that reads one file of all features, and a compiled step."""
_BATCH: Final = ("batch_size", "tokens_per_batch")
_AS_ASKED: Final = ("seed", "strategy", "logical_cpus", "device_memory_mb", "input_workers", "overlap", "listen")
_OFF: Final[dict[str, dict[str, Any]]] = {
    "native_loader": {"loader": "numpy_wav"},
    "device_prefetch": {"device_prefetch": 0},
    "overlap": {"prefetch": 0, "device_prefetch": 0, "workers": 0},
    "xla": {"mode": "graph"},
    "graph": {"mode": "eager"},
    "bucketing": {"bucketing": False},
}
"""Switch of a request -> what its absence changes of the configuration."""


@dataclass(frozen=True)
class TrainRequest:
    """Options of the user for a training; ``None`` leaves the recipe's own, and each ``True`` may be switched off.

    Attributes:
        recipe: name of a shipped one, or a path.
        best, best_path: take the configuration of the newest, or of the named, ``best.yaml``.
        settings: keys of ``best.yaml``, or of the recipe with dots between them.
        resume: whether a run in the directory is resumed; it is refused otherwise.
    """

    recipe: str = "tiny"
    best: bool = False
    best_path: Path | None = None
    data: Path | None = None
    steps: int | None = None
    seed: int = 0
    checkpoint_every: int | None = None
    resume: bool = True
    out: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    strategy: str = "one"
    accumulation: int | None = None
    input_workers: int = 0
    device_memory_mb: int | None = None
    logical_cpus: int | None = None
    listen: bool = True
    accelerator: Accelerator = field(default_factory=Accelerator)
    native_loader: bool = True
    device_prefetch: bool = True
    overlap: bool = True
    graph: bool = True
    xla: bool = True
    bucketing: bool = True
    print_to_stderr: bool = False
    redact: bool = False
    command: str = "xttsbench train"


@dataclass(frozen=True)
class Prepared:
    """The job but for the run's directory, and what is to be reported of the choices in it."""

    recipe: Recipe
    config: dict[str, Any]
    data: Path
    taken: TakenOver | None
    said: tuple[str, ...]

    def job(self, request: TrainRequest, directory: Path, checkpoints: Path | None = None) -> TrainJob:
        """The job for a run in that directory, with checkpoints in it or elsewhere."""
        return TrainJob.model_validate(
            {
                "directory": str(directory.resolve()),
                "checkpoints": None if checkpoints is None else str(checkpoints.resolve()),
                "recipe": self.recipe.model_dump(mode="json"),
                "config": self.config,
                "data": str(self.data.resolve()),
                **{name: getattr(request, name) for name in _AS_ASKED},
                "accelerator_ms": request.accelerator.step_times_ms,
            }
        )


def prepare_training(
    request: TrainRequest, machine: Mapping[str, Any], reports: Path, progress: Progress | None = None
) -> Prepared:
    """Settle recipe and configuration, and make the data and features that they read.

    The newest winner is looked for below ``reports``.

    Raises:
        UsageError, InvalidInputError: an option, the recipe, the winner or the data cannot be used.
    """
    path, best = find_best(request.best_path, reports) if request.best else (None, None)
    own = load_recipe(locate("training", request.recipe))
    taken_config = {key: value for key, value in (best.config if best else {}).items() if key in TAKEN}
    config, switched = _configuration(taken_config, request)
    recipe = _changed(own, request, config)
    config |= {key: getattr(recipe.batches, key) for key in _BATCH if getattr(recipe.batches, key) is not None}
    data = request.data or ensure_default_data(progress)
    clips = read_speech_data(data, sample_rate_hz=recipe.features.sample_rate_hz, split="all")
    if config["loader"] in CACHED:
        precompute(clips, recipe.features, progress=progress)
    taken = None
    if best is not None and path is not None:
        taken = taken_over(path, best, machine, data=data, recipe=recipe.name, config=config | {"deterministic": True})
    said = (*(sentences(taken) if taken is not None else ()), *switched)
    return Prepared(recipe, config, data, taken, said)


def _configuration(taken: Mapping[str, Any], request: TrainRequest) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration without ``None``, and what was switched off in it."""
    given = {key: value for key, value in request.settings.items() if key in TAKEN}
    unknown = [key for key in request.settings if key not in TAKEN and "." not in key]
    if unknown:
        raise UsageError(
            f"--set {unknown[0]}: training has no such key; there are {', '.join(TAKEN)}, and those of the recipe with "
            "dots between them, such as optimizer.learning_rate."
        )
    asked = _one_size({**_DEFAULTS}, taken, given)
    changes: dict[str, Any] = {}
    for switch, change in _OFF.items():
        if not getattr(request, switch) and (switch != "xla" or asked["mode"] == "xla"):
            changes |= change
    said = [] if request.graph else ["The step is eager, op by op: this is for debugging, and slow."]
    config = {key: value for key, value in (asked | changes).items() if value is not None and key != "deterministic"}
    if problems := configuration_problems(config):
        raise InvalidInputError("; ".join(f"{key}: {sentence}" for key, sentence in problems))
    if request.input_workers and (config["loader"] not in IN_PYTHON or config["cache"]):
        kept = ", and each process would keep the features of all clips for itself: leave cache out"
        raise UsageError(
            f"--input-workers {request.input_workers}: loader={config['loader']}"
            f"{kept if config['cache'] else ' has no Python for each clip that could run elsewhere'}; "
            f"take one of {', '.join(IN_PYTHON)} (--set loader={IN_PYTHON[0]}), or leave the option out."
        )
    different = [f"{key}={value}" for key, value in changes.items() if asked.get(key) != value]
    if different:
        said.insert(0, f"Switched off on the command line, which leaves {', '.join(different)}.")
    if taken.get("deterministic") is False or given.get("deterministic") is False:
        said.append("deterministic=False is not followed: training keeps the order, so that it can be resumed.")
    return config, tuple(said)


def _one_size(config: dict[str, Any], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The layers on top of one another; where one gives a size of a batch, those below give none."""
    for layer in layers:
        if any(layer.get(key) is not None for key in _BATCH):
            config = {key: value for key, value in config.items() if key not in _BATCH}
        config = config | dict(layer)
    return config


def _changed(recipe: Recipe, request: TrainRequest, config: Mapping[str, Any]) -> Recipe:
    content = recipe.model_dump(mode="json")
    if any(key in config for key in _BATCH):
        content["batches"] |= {key: config.get(key) for key in _BATCH}
    content["batches"]["bucketing"] = config["bucketing"]
    options = {key: getattr(request, key) for key in ("steps", "accumulation", "checkpoint_every")}
    content["training"] |= {key: value for key, value in options.items() if value is not None}
    for key, value in request.settings.items():
        if key in TAKEN:
            continue
        *sections, last = key.split(".")
        section: Any = content
        for name in sections:
            section = section.get(name)
            if not isinstance(section, dict):
                raise UsageError(f"--set {key}: the recipe has no section {name!r}; see {recipe.name}.yaml.")
        section[last] = value
    return recipe_of(content, f"{recipe.name}, as the options change it")


def refuse_another(before: TrainJob, now: TrainJob) -> None:
    """Refuse to resume a run in another way than it began, before anything of it is written over.

    What is loaded how, and how long it trains, may change.

    Raises:
        UsageError: something that decides the steps is another.
    """
    there = dict(_decisive(before))
    different = [
        f"{key} was {there[key]} and is {value}" for key, value in _decisive(now) if there.get(key, value) != value
    ]
    if different:
        raise UsageError(
            f"--out {now.directory!r} holds a run that was trained otherwise: {'; '.join(different)}. "
            "Train as it was, or begin in another directory."
        )


def refuse_other_data(before: RunPlan, now: RunPlan, directory: Path) -> None:
    """Refuse to resume a run on another data set, before TensorFlow is started for it.

    Raises:
        UsageError: both plans know their data, and they are not the same.
    """
    if None not in (before.data, now.data) and before.data != now.data:
        raise UsageError(
            f"--out {str(directory)!r} holds a run on the data of {before.kwargs.get('data')}, and "
            f"{now.kwargs.get('data')} holds others; name the same data set, or begin in another directory."
        )


def _decisive(job: TrainJob) -> Iterator[tuple[str, Any]]:
    """Settings that determine a run's steps."""
    yield "seed", job.seed
    yield "precision", job.config.get("precision")
    for section in ("features", "model", "loss", "batches", "optimizer"):
        for key, value in job.recipe[section].items():
            yield f"{section}.{key}", value
    for key in ("schedule", "ema_decay"):
        yield f"training.{key}", job.recipe["training"][key]


@dataclass(frozen=True)
class BundledJob:
    """The target with its arguments, and the configurations to compare after the verdict, if any."""

    target: str
    kwargs: Mapping[str, Any]
    comparison: Comparison | None


def bundled_job(
    settings: Mapping[str, Any],
    data: Path | None,
    accelerator: str,
    progress: Progress | None = None,
    *,
    compared: bool = True,
) -> BundledJob:
    """Return the job, after making the data and features that it reads; without a comparison unless ``compared``.

    An emulated accelerator stands for the device, so that the workload's own step is left out behind one.

    Args:
        settings: keyword arguments of the workload, on top of the scenario's; what the configurations are about
            (``loader``) changes the target of the verdict and leaves the configurations as they are.
        data: directory of a data set in LJSpeech format in place of the default one.
        accelerator: as on the command line; ``real`` takes those of the scenario.
        progress: told of the making.
        compared: whether the scenario's configurations are measured after the verdict.

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
    compared = compared and not (data is not None and is_sharded(data))  # which one loader alone can read
    comparison = plan_comparison(asked, [parse_accelerator(text) for text in asked.accelerator])
    kwargs = comparison.baseline.kwargs | dict(settings)
    if accelerator != "real":
        kwargs |= {"with_step": False}
    prepare([kwargs, *(arm.kwargs for arm in comparison.arms if compared)], progress)
    return BundledJob(comparison.target, kwargs, comparison if compared else None)


def prepare(configurations: Iterable[Mapping[str, Any]], progress: Progress | None = None) -> None:
    """Make what configurations read, arguments of :func:`xttsbench.targets.bundled.make_workload`, unless it is there.

    Raises:
        InvalidInputError: the data set cannot be used, or the recipe is not one of ours.
        HelperError: TensorFlow is missing, or of an unsupported version, so that they would be made for nothing.
    """
    require_tensorflow()
    wanted = {
        (config.get("data"), config.get("recipe", "tiny"), config.get("features"), config.get("loader") in CACHED)
        for config in configurations
    }
    for data, recipe, features, cached in sorted(wanted, key=str):
        directory = Path(data) if data is not None else ensure_default_data(progress)
        settings = load_recipe(shipped("training", recipe)).features
        clips = read_speech_data(directory, sample_rate_hz=settings.sample_rate_hz, split="all")
        if cached:
            precompute(clips, settings, Path(features) if features is not None else None, progress=progress)
