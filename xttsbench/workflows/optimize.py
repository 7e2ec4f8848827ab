"""``xttsbench optimize``: what the cure is worth, and the same data proved."""

from __future__ import annotations

from dataclasses import replace

from xttsbench.errors import TargetError
from xttsbench.records.report import Report
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.diagnose.diagnose import Request, diagnose
from xttsbench.workflows.measure.session import Progress
from xttsbench.workflows.outcome import DONE, INCONCLUSIVE, Outcome

__all__ = ["Request", "judge_fixes", "optimize"]


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
    outcome = diagnose(replace(request, kind="optimize", verify=True), progress=progress)
    if outcome.exit_code not in (DONE, INCONCLUSIVE):
        return outcome
    code, message = judge_fixes(outcome.report)
    return replace(outcome, exit_code=code, message=message)


def judge_fixes(report: Report) -> tuple[int, str | None]:
    """Exit code and sentence of a run that looked for fixes: what could not be decided is inconclusive."""
    chosen = next((one for one in report.fixes if one.chosen), None)
    if chosen is not None:
        return DONE, None
    tried = [one for one in report.fixes if one.decision is not None or one.semantics is not None]
    open_ones = [one for one in tried if one.outcome == "not verified"]
    if open_ones:
        return INCONCLUSIVE, f"No fix was accepted: {open_ones[0].name}: {open_ones[0].why.rstrip('.')}."
    if tried:
        why = tried[0].why.rstrip(".")
        return DONE, f"No fix was accepted, so the target stays as it is: {tried[0].name}: {why}."
    if report.verdict.bottleneck == "inconclusive":
        return INCONCLUSIVE, report.verdict.summary
    if not report.fixes and report.pipeline is None and report.verdict.bottleneck == "input":
        why = report.unmeasured.get("pipeline", "there was no time for it; --budget gives it more")
        return INCONCLUSIVE, f"It waits for its input, of which no fix could be looked for: it was not read ({why})."
    first = next((one for one in report.fixes), None)
    why = f": {first.name}: {first.why}" if first is not None else ""
    return DONE, f"There is nothing here that a fix would make faster{why}."
