"""``optimized.yaml``: fixes that a run verified, written beside its report and read where they are applied again.

Whether it fits the dataset at hand is told where that dataset is (:mod:`xttsbench.worker.optimized`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from xttsbench.diagnosis.verdict import unmeasured_verdict
from xttsbench.probes.environment import environment
from xttsbench.records.fix import Optimized
from xttsbench.records.report import Report
from xttsbench.workflows.saved import read_saved, write_saved

NAME: Final = "optimized.yaml"
_REPORT: Final = "report.json"
_AGAIN: Final = "Run 'xttsbench optimize' again, or mend the file."


def write_plan(directory: Path, optimized: Optimized) -> Path:
    """Write the file into a run's directory, whole or not at all; it opens with how it is used.

    Returns:
        Where it lies.
    """
    path = directory / NAME
    write_saved(path, optimized, _head(path, optimized))
    return path


def read_plan(path: Path) -> Optimized:
    """Read an ``optimized.yaml``, or that of a run's directory.

    Raises:
        InvalidInputError: it is missing, malformed, or of another schema version; all that is wrong is in the message.
    """
    return read_saved(path, Optimized, name=NAME, of="a run of 'xttsbench optimize'", again=_AGAIN)


def read_report(plan: Path | None, optimized: Optimized) -> Report | None:
    """The report of the run that found a plan: beside the file, or in the directory that it names.

    ``None`` where there is none, or none that this version reads: a plan is of use without it.
    """
    beside = [] if plan is None else [plan if plan.is_dir() else plan.parent]
    for directory in (*beside, Path(optimized.run)):
        try:
            report = Report.model_validate_json((directory / _REPORT).read_bytes())
        except (OSError, ValueError):
            continue
        if report.optimized == optimized:
            return report
    return None


def report_of(optimized: Optimized, target: str) -> Report:
    """A report that says what was applied, and that nothing was measured: for a plan whose own report is not at hand.

    Args:
        optimized: the plan.
        target: what it was applied to, for people.
    """
    why = "nothing was measured: a saved plan was applied"
    applied = ", ".join(optimized.fixes) or "none"
    verdict = unmeasured_verdict(f"Nothing was measured here: the fixes of a saved plan were applied ({applied}).")
    report = Report(
        kind="optimize",
        command=f"xttsbench.optimize({target!r}, plan=...)",
        created_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        target={"name": target, "kwargs": optimized.kwargs, "kind": None, "status": "ok", "error": None},
        environment=environment(),
        verdict=verdict,
        optimized=optimized,
    )
    sections = {name: getattr(report, name) for name in ("verdict", "oscillation", "aa", "warm_up")}
    missing = {f"{name}.{key}": why for name, part in sections.items() for key, value in part if value is None}
    missing |= dict.fromkeys(("pipeline", "verdict_after_s", "overhead"), why)
    return report.model_copy(update={"unmeasured": missing})


def _head(path: Path, optimized: Optimized) -> str:
    what = "Fixes that were measured" if optimized.fixes else "No fix was better than the original: nothing is applied"
    return (
        f"# Written by xttsbench. {what}, to be applied again without looking for them:\n"
        "#     import xttsbench\n"
        f"#     dataset, report = xttsbench.optimize(dataset, plan={str(path.absolute())!r})\n"
        "# It is refused for a pipeline that is not the one it was found for.\n"
    )
