"""``xttsbench optimize``: what the cure is worth, and the same data proved."""

from __future__ import annotations

from dataclasses import replace

from xttsbench.errors import TargetError
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.diagnose.diagnose import Request, diagnose
from xttsbench.workflows.measure.session import Progress
from xttsbench.workflows.outcome import Outcome

__all__ = ["Request", "optimize"]


def optimize(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Look for fixes, verify them, and write patch and plan of what was accepted into the run's directory.

    Raises:
        UsageError, InvalidInputError: the request is wrong, or the target is a script; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    if parse_target(request.target, scripts=True).kind == "script":
        raise TargetError(
            f"Target {request.target!r} is a script, whose dataset nothing outside of it can build again. Name a "
            f"callable in it that returns the dataset and the step ({request.target}:make), or have the script call "
            "xttsbench.optimize(dataset)."
        )
    return diagnose(replace(request, kind="optimize", verify=True), progress=progress)
