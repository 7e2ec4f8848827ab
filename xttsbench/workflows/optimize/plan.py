"""``optimized.yaml``: fixes that a run verified, written beside its report and read where they are applied again.

What is read decides what is done to someone's data, so a file that is not whole is refused, with all that is wrong
with it at once. Whether it fits the dataset at hand is told where that dataset is (:mod:`xttsbench.worker.optimized`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from xttsbench.diagnosis.verdict import unmeasured_verdict
from xttsbench.errors import InvalidInputError, first_line
from xttsbench.files import atomic_write
from xttsbench.probes.environment import environment
from xttsbench.records.base import READABLE
from xttsbench.records.fix import Optimized
from xttsbench.records.report import Report

NAME: Final = "optimized.yaml"
_REPORT: Final = "report.json"
_AGAIN: Final = "Run 'xttsbench optimize' again, or mend the file."


def write_plan(directory: Path, optimized: Optimized) -> Path:
    """Write the file into a run's directory, whole or not at all; it opens with how it is used.

    Returns:
        Where it lies.
    """
    path = directory / NAME
    # Escaped beyond ASCII: PyYAML writes some characters as they are that it reads as the end of a line.
    text = yaml.safe_dump(optimized.model_dump(mode="json"), sort_keys=False, allow_unicode=False, width=100)
    atomic_write(path, (_head(path, optimized) + text).encode())
    return path


def read_plan(path: Path) -> Optimized:
    """Read an ``optimized.yaml``, or that of a run's directory.

    Raises:
        InvalidInputError: it is missing, malformed, or of another schema version; all that is wrong is in the message.
    """
    path = path / NAME if path.is_dir() else path
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read ({error.strerror or error}); "
            f"name an {NAME}, or the directory of a run of 'xttsbench optimize'."
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not YAML: {first_line(error)}. {_AGAIN}") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{path} holds {type(content).__name__}, not the keys of an {NAME}. {_AGAIN}")
    version = content.get("schema_version")
    if version not in READABLE:
        raise InvalidInputError(
            f"{path}: schema_version is {version!r}; this version reads {READABLE[0]} to {READABLE[-1]}. {_AGAIN}"
        )
    try:
        return Optimized.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(_problem(dict(one)) for one in error.errors())
        raise InvalidInputError(f"{path}: {problems}. {_AGAIN}") from error


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


def _problem(error: dict[str, Any]) -> str:
    """One thing that is wrong: where, what, and the value that stands there."""
    place = ".".join(map(str, error["loc"])) or "the file"
    if error["type"] == "missing":
        return f"{place}: is missing"
    if error["type"] == "extra_forbidden":
        return f"{place}: no such key"
    value = repr(error["input"])
    return f"{place}: {error['msg']}, received {value if len(value) <= 60 else value[:57] + '...'}"
