"""Target that a command line names, with its arguments: a user's own, a sweep's choice, or the bundled workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xttsbench.cli.output import Watched, say
from xttsbench.errors import UsageError

if TYPE_CHECKING:
    from xttsbench.records.plan import Comparison


def check_arguments(target: str | None, arguments: list[str] | None, settings: list[str] | None) -> None:
    """A script's arguments come after ``--``, those of a callable by ``--set``."""
    script = target is not None and target.endswith(".py")
    if arguments and not script:
        raise UsageError(
            f"Arguments after -- ({' '.join(arguments)}) are for scripts; "
            "give a callable's arguments with --set KEY=VALUE."
        )
    if settings and script:
        raise UsageError(f"--set is for a callable's arguments; give {target} its own after --.")


def job_of(
    target: str | None, kwargs: Mapping[str, object], data: Path | None, accelerator: str, *, compared: bool = True
) -> tuple[str, Mapping[str, object], Comparison | None]:
    """Target and arguments as given; without a target those of the bundled workload, and what it compares.

    Raises:
        UsageError: data are named for a target, which takes them as an argument.
    """
    if target is None:
        from xttsbench.workflows.bundled import bundled_job

        with Watched() as making:
            job = bundled_job(kwargs, data, accelerator, making, compared=compared)
        return job.target, job.kwargs, job.comparison
    if data is not None:
        raise UsageError("--data is for the bundled workload; give your target its data with --set KEY=VALUE.")
    return target, kwargs, None


def chosen(path: Path, target: str | None, settings: Mapping[str, object]) -> tuple[str | None, Mapping[str, object]]:
    """Target and arguments that a sweep chose, under those of the command line; what is other here is said."""
    from xttsbench.workflows.saved import differences_here, read_best

    best = read_best(path)
    if target not in (None, best.target):
        raise UsageError(f"--best {str(path)!r} is of {best.target or 'the bundled workload'}, not of {target!r}.")
    for sentence in differences_here(best):
        say(f"Warning: {path} was found elsewhere: {sentence}.")
    if not best.proven:
        say(f"Warning: {path} proves no winner: {best.why}")
    return best.target, best.config | dict(settings)
