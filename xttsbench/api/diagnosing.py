"""``xttsbench.diagnose(target) -> Report``."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

from xttsbench.api.naming import described, importable_name
from xttsbench.errors import TargetError, XttsbenchError
from xttsbench.records.report import Report


def diagnose(
    target: Any,
    *,
    kwargs: dict[str, Any] | None = None,
    accelerator: str = "real",
    steps: int | None = None,
    budget_s: float = 300.0,
    out: str | Path | None = None,
    verify: bool = True,
) -> Report:
    """Find out what limits the step of a target; the run's directory is written as by ``xttsbench diagnose``.

    Args:
        target: ``"module:callable"``, ``"file.py:callable"``, the name of a script, or a callable that a fresh process
            can import by the module and the name it was defined with. A live ``tf.data.Dataset``, ``(dataset, step)``,
            ``(dataset, model)`` or ``Workload`` is taken too: it is measured in this process only, and the report says
            so.
        kwargs: keyword arguments for the callable.
        accelerator: ``"real"``, ``"emulated:MS"`` or ``"emulated:FILE"``.
        steps: steps to measure at most.
        budget_s: seconds for everything.
        out: directory of the run.
        verify: verify fixes in what is left of the budget after the verdict; never those of a live dataset.

    Returns:
        The report, whatever the verdict; an inconclusive one too.

    Raises:
        TargetError: the target cannot be rebuilt in a fresh process, or is wrong.
        XttsbenchError: nothing was measured, or the target raised.
    """
    from xttsbench.workflows.outcome import DONE, INCONCLUSIVE

    place = Path(out) if out is not None else None
    if isinstance(target, str) or callable(target):
        from xttsbench.workflows.diagnose.diagnose import Request
        from xttsbench.workflows.diagnose.diagnose import diagnose as run

        name = target if isinstance(target, str) else importable_name(target)
        outcome = run(
            Request(
                target=name,
                kwargs=kwargs or {},
                accelerator=accelerator,
                steps=steps,
                budget_s=budget_s,
                out=place,
                verify=verify,
                command=f"xttsbench.diagnose({name!r})",
            )
        )
    elif kwargs:
        raise TargetError(f"{described(target)} is there already, so it takes no arguments; received {sorted(kwargs)}.")
    else:
        from xttsbench.workflows.live import LiveRequest, diagnose_live

        # By name: TensorFlow is in this process already, and nothing else of ours may bring it into a parent.
        measure = importlib.import_module("xttsbench.worker.live").measure_live
        outcome = diagnose_live(
            LiveRequest(described(target), accelerator, steps, budget_s, place), functools.partial(measure, target)
        )
    if outcome.exit_code not in (DONE, INCONCLUSIVE):
        raise XttsbenchError(outcome.message or f"the diagnosis ended with code {outcome.exit_code}")
    return outcome.report
