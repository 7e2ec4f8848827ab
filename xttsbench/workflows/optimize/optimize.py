"""``xttsbench optimize``: what the cure is worth, and the same data proved."""

from __future__ import annotations

from dataclasses import replace

from xttsbench.workflows.diagnose.diagnose import Request, diagnose
from xttsbench.workflows.measure.session import Progress
from xttsbench.workflows.outcome import Outcome

__all__ = ["Request", "optimize"]


def optimize(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Look for fixes, verify them, and write patch and plan of what was accepted into the run's directory.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    return diagnose(replace(request, kind="optimize", verify=True), progress=progress)
