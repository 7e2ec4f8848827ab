"""The Python doors: ``diagnose(target) -> Report`` and ``optimize(target) -> (dataset, Report)`` of ``xttsbench``."""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xttsbench import BUDGET_S
from xttsbench.errors import TargetError, XttsbenchError
from xttsbench.records.fix import FixSet, Optimized
from xttsbench.records.report import Report

if TYPE_CHECKING:
    from xttsbench.records.watch import WatchSummary
    from xttsbench.workflows.diagnose import Request
    from xttsbench.workflows.runs import Outcome
    from xttsbench.workflows.watch import Session


def described(target: object) -> str:
    """Description of the given target for a report, by its type; never its values."""
    if isinstance(target, tuple | list):
        return f"({', '.join(type(part).__name__ for part in target)})"
    return f"a live {type(target).__name__}"


def importable_name(target: Callable[..., Any]) -> str:
    """``file.py:callable`` of a function that a fresh process can find again.

    It has to be what its module holds under that name, so that a decorated function is looked for where it was
    defined and not where its decorator was.

    Raises:
        TargetError: it is local to another function, a lambda, or has no source file.
    """
    name = getattr(target, "__qualname__", "")
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    path = getattr(module, "__file__", None) or ""
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not target or not path.endswith(".py"):
        raise TargetError(
            f"{target!r} cannot be imported by a fresh process; pass a function of a module, or its 'module:name'."
        )
    return f"{path}:{name}"


def diagnose(
    target: Any,
    *,
    kwargs: dict[str, Any] | None = None,
    accelerator: str = "real",
    steps: int | None = None,
    budget_s: float = BUDGET_S,
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
        The report, whatever the verdict; an undecided one too.

    Raises:
        TargetError: the target cannot be rebuilt in a fresh process, or is wrong.
        XttsbenchError: nothing was measured, or the target raised.
    """
    request = _request(target, "diagnose", kwargs, accelerator, steps, budget_s, out, verify=verify)
    if _is_named(target):
        from xttsbench.workflows.diagnose import diagnose as run

        outcome = run(request)
    else:
        from xttsbench.workflows.live import diagnose_live

        outcome = diagnose_live(request, _with_tensorflow("worker.trial").LiveTarget(target, request.target).measure)
    _refuse(outcome.exit_code, outcome.message, "the diagnosis")
    return _with_journal(outcome)


def optimize(
    target: Any,
    *,
    plan: str | Path | Optimized | None = None,
    kwargs: dict[str, Any] | None = None,
    accelerator: str = "real",
    steps: int | None = None,
    budget_s: float = BUDGET_S,
    out: str | Path | None = None,
) -> tuple[Any, Report]:
    """Find fixes of a target's dataset, verify them, and return the dataset with those that were accepted.

    Two lines in a script: ``import xttsbench`` and ``dataset, report = xttsbench.optimize(dataset)``. A fix is accepted
    only where the dataset yields the same data with it and was measured to be faster. What it gives is in
    ``report.fixes``, what was applied in ``report.optimized``; the run's directory holds that as ``optimized.yaml``.

    Args:
        target: as for ``xttsbench.diagnose``. A live dataset, or a pair with one, is measured in this process only,
            and the report says so.
        plan: an ``optimized.yaml``, the directory of a run that has one, or its content. Nothing is searched for then:
            its fixes are applied to the target's dataset, which has to be the one that they were found for. The
            arguments below but ``kwargs`` have no meaning then.
        kwargs: keyword arguments for the callable; those of the plan, where there is one and none are given.
        accelerator: ``"real"``, ``"emulated:MS"`` or ``"emulated:FILE"``.
        steps: steps to measure at most.
        budget_s: seconds for everything.
        out: directory of the run.

    Returns:
        The dataset, and the report. The dataset is the given object itself where no fix was accepted. With a plan the
        report is that of its run, where it is at hand, else one that says what was applied and that nothing was
        measured. Fixes of the training step are no part of a dataset: they are in the report alone.

    Raises:
        TargetError: the target cannot be rebuilt in a fresh process, or is wrong.
        InvalidInputError: the plan cannot be read, or is of another pipeline or of other data.
        XttsbenchError: nothing was measured, or the target raised.
    """
    if plan is not None:
        if kwargs and not _is_named(target):
            raise _takes_no_arguments(target, kwargs)
        return _apply(target, plan, kwargs)
    request = _request(target, "optimize", kwargs, accelerator, steps, budget_s, out)
    if _is_named(target):
        from xttsbench.workflows.diagnose import optimize as run

        outcome = run(request)
        _refuse(outcome.exit_code, outcome.message)
        # The target is loaded here only when the processes in which fixes were searched for have ended.
        dataset = _with_tensorflow("worker.trial").load_here(target, request.target, request.kwargs).dataset
        if (found := outcome.report.optimized) is not None:
            dataset = _with_tensorflow("fixes.graph.saved_plan").apply_plan(dataset, found)
        return dataset, _with_journal(outcome)
    from xttsbench.workflows.live import optimize_live

    live = _with_tensorflow("worker.trial").LiveTarget(target, request.target)
    outcome = optimize_live(request, live.measure)
    _refuse(outcome.exit_code, outcome.message)
    found = outcome.report.optimized
    if found is None or not found.fixes:
        return live.dataset, _with_journal(outcome)
    return live.with_fix(FixSet.of(found.fixes)), _with_journal(outcome)


def read_report(path: str | Path) -> Report:
    """Read the report of a run's directory; ``report.frames`` has its tables as data frames.

    Args:
        path: the directory, or a ``report.json`` alone, of which there are no frames of steps.

    Raises:
        XttsbenchError: it is missing, malformed, or of another schema version.
    """
    from xttsbench.workflows.tables import read_report as read

    return read(Path(path))


def read_monitor(path: str | Path) -> Any:
    """Read the CSV of ``xttsbench monitor --log`` as a pandas data frame, a row for each reading.

    Raises:
        XttsbenchError: it cannot be read, or is no such log.
    """
    from xttsbench.workflows.tables import read_monitor as read

    return read(Path(path))


def _with_journal(outcome: Outcome) -> Report:
    from xttsbench.execution.journal import read_trials

    return outcome.report.beside(functools.partial(read_trials, outcome.directory))


def _is_named(target: object) -> bool:
    """Whether a fresh process can build the target, by its name."""
    return isinstance(target, str) or callable(target)


def _takes_no_arguments(target: object, kwargs: dict[str, Any]) -> TargetError:
    return TargetError(f"{described(target)} is there already, so it takes no arguments; received {sorted(kwargs)}.")


def _request(
    target: Any,
    what: str,
    kwargs: dict[str, Any] | None,
    accelerator: str,
    steps: int | None,
    budget_s: float,
    out: str | Path | None,
    **more: Any,
) -> Request:
    from xttsbench.workflows.diagnose import Request

    if kwargs and not _is_named(target):
        raise _takes_no_arguments(target, kwargs)
    name = target if isinstance(target, str) else importable_name(target) if callable(target) else described(target)
    return Request(
        target=name,
        kwargs=kwargs or {},
        accelerator=accelerator,
        steps=steps,
        budget_s=budget_s,
        out=Path(out) if out is not None else None,
        command=f"xttsbench.{what}({name!r})" if _is_named(target) else f"xttsbench.{what}({name})",
        **more,
    )


def _apply(target: Any, plan: str | Path | Optimized, kwargs: dict[str, Any] | None) -> tuple[Any, Report]:
    from xttsbench.records.pipeline import Pipeline
    from xttsbench.records.redaction import Redaction
    from xttsbench.workflows.saved import read_plan, read_report, report_of

    path = None if isinstance(plan, Optimized) else Path(plan)
    found = plan if isinstance(plan, Optimized) else read_plan(Path(plan))
    report = read_report(path, found)
    name = target if isinstance(target, str) else described(target)
    kwargs, guard = found.kwargs if kwargs is None else kwargs, Redaction()
    guard.kept(kwargs, "kwargs")
    guard.require_values()
    dataset = _with_tensorflow("worker.trial").load_here(target, name, kwargs).dataset
    before = Pipeline.model_validate(report.pipeline) if report is not None and report.pipeline else None
    fixed = _with_tensorflow("fixes.graph.saved_plan").apply_plan(dataset, found, before=before)
    return fixed, report or report_of(found, name)


def watched(
    dataset: Any, *, out: str | Path | None = None, tensorboard: str | Path | None = None, quiet: bool = False
) -> WatchedData:
    """Watch a loop around its own data: ``for batch in xttsbench.watched(dataset)``.

    All loops of a process are one run: what its steps were like is printed where the process ends, and kept as
    ``summary.json`` while it goes on. Call it before the loop's functions are traced.

    Args:
        dataset: a ``tf.data.Dataset``, or anything else that gives batches.
        out: the run's own directory; ``None`` for ``reports/<UTC time>-watch-<script>/``.
        tensorboard: directory for scalars; ``None`` for none.
        quiet: print nothing at the end.

    Returns:
        What iterates as the dataset does, as often as one likes; ``finish()`` ends the run before the process ends.
    """
    from xttsbench.workflows.watch import session

    return WatchedData(
        dataset, session("loop", out=out, tensorboard=tensorboard, shown=None if quiet else print_summary)
    )


class WatchedData:
    """A dataset whose iteration is watched; made by :func:`watched`. Other attributes are the dataset's own."""

    def __init__(self, dataset: Any, session: Session) -> None:
        self._dataset, self._session = dataset, session

    def __iter__(self) -> Iterator[Any]:
        made: Iterator[Any] = self._session.attached.around(self._dataset)
        return made

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def finish(self) -> WatchSummary:
        """Write what is known by now as the run's end, show it, and return it."""
        return self._session.finish()


def print_summary(summary: WatchSummary) -> None:
    """Print the screen of a watched run on standard error."""
    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    sys.stderr.write("\n" + summary_text(summary, width=width, color=color))
    sys.stderr.flush()


def summary_text(summary: WatchSummary, *, width: int, color: bool) -> str:
    """Screen of a watched run, so many characters wide."""
    from xttsbench.reporting.console import render
    from xttsbench.reporting.document import View
    from xttsbench.reporting.sections.brief import watch_document

    return render(watch_document(summary), width=width, color=color, view=View.SUMMARY)


def _refuse(exit_code: int, message: str | None, what: str = "the search for fixes") -> None:
    """Raise what an exit code stands for that is no answer."""
    from xttsbench.workflows.runs import DONE, INCONCLUSIVE

    if exit_code not in (DONE, INCONCLUSIVE):
        raise XttsbenchError(message or f"{what} ended with code {exit_code}")


def _with_tensorflow(name: str) -> Any:
    """A module of ours that imports TensorFlow, by name: nothing of ours may bring it into a parent unasked."""
    return importlib.import_module(f"xttsbench.{name}")
