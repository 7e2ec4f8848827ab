"""What training takes from a ``best.yaml``: the configuration that won, and how far it holds here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.records.best import Best
from xttsbench.records.train_history import TakenOver
from xttsbench.scenario.settings import BUNDLED
from xttsbench.workflows.identity import code_identity, data_identity
from xttsbench.workflows.sweep.best import NAME, differences, fingerprint_of, newest_best, read_best

TAKEN: Final = (
    "loader",
    "mode",
    "precision",
    "batch_size",
    "tokens_per_batch",
    "prefetch",
    "device_prefetch",
    "workers",
    "threads",
    "deterministic",
    "cache",
    "bucketing",
)
"""Keys of a configuration that training follows."""


def find_best(path: Path | None, reports: Path) -> tuple[Path, Best]:
    """The named ``best.yaml`` (or that of a run's directory), or the newest one.

    Args:
        path: as named, or ``None``.
        reports: the directory of all runs.

    Raises:
        InvalidInputError: there is none, or it cannot be read.
        UsageError: it is of another target than the bundled workload.
    """
    found = path or newest_best(reports)
    if found is None:
        raise InvalidInputError(
            f"--best: no run under {reports} holds a {NAME}; run 'xttsbench sweep --grid full' first, or name a file."
        )
    best = read_best(found)
    if best.workload is None:
        raise UsageError(
            f"--best: {found} is of {best.target}, and training takes the configuration of the bundled workload; "
            "name that of a sweep of the bundled workload."
        )
    return found / NAME if found.is_dir() else found, best


def taken_over(
    path: Path, best: Best, machine: Mapping[str, Any], *, data: Path, recipe: str, config: Mapping[str, Any]
) -> TakenOver:
    """What was taken, what is other here, and what the command line changed of it.

    Args:
        path: of the file.
        best: its content.
        machine: the environment as it is now.
        data: directory of the data set to train on.
        recipe: name of the recipe to train.
        config: what will be trained with.
    """
    here = fingerprint_of(machine, code=code_identity(BUNDLED, bundled=True), data=data_identity([str(data)]))
    differing = differences(best, here)
    if (of := best.config.get("recipe", "tiny")) != recipe:
        differing.append(f"recipe: {of} where it was found, {recipe} here")
    if best.accelerator.get("kind") != "real":
        differing.append(f"accelerator: it was found behind an {best.accelerator.get('label')}")
    taken = {key: value for key, value in best.config.items() if key in TAKEN and value is not None}
    return TakenOver(
        path=str(path),
        proven=best.proven,
        why=best.why,
        config=taken,
        differences=tuple(differing),
        overridden={
            key: f"{value} became {config.get(key, 'the default')}"
            for key, value in taken.items()
            if config.get(key) != value
        },
    )


def sentences(taken: TakenOver) -> tuple[str, ...]:
    """What is said of it before the start."""
    config = ", ".join(f"{key}={value}" for key, value in taken.config.items()) or "nothing"
    return (
        f"From {taken.path}: {config} ({'proven' if taken.proven else 'NOT proven: ' + taken.why.rstrip('. ')}).",
        *(f"Not as it was found: {difference}." for difference in taken.differences),
        *(f"Trained otherwise: {key} {change}." for key, change in taken.overridden.items()),
    )
