"""Files that a run leaves for later ones to take up, ``best.yaml`` and ``optimized.yaml``: whole, and read strictly.

What is read decides how somebody trains and what is done to their data, so a file that is not whole is refused, with
all that is wrong with it at once.

A winner holds where it was found: read on another machine, with other data or other versions, it is still returned, and
every difference is named. What code and which data a run measured stands there as short hashes. Whether fixes fit the
dataset at hand is told where that dataset is (:mod:`xttsbench.fixes.graph.saved_plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import ValidationError

from xttsbench import limited_yaml
from xttsbench.diagnosis.verdict import unmeasured_verdict
from xttsbench.errors import InvalidInputError, UsageError, first_line
from xttsbench.execution.child import now_utc
from xttsbench.files import atomic_write
from xttsbench.inputs import read_bytes, read_text
from xttsbench.probes.environment import environment
from xttsbench.records.base import SCHEMA_VERSION, Record, other_version
from xttsbench.records.fix import Optimized
from xttsbench.records.report import Best, Fingerprint, Report
from xttsbench.records.training import TakenOver
from xttsbench.scenario.settings import BUNDLED
from xttsbench.workflows.code_identity import code_identity, data_identity

R = TypeVar("R", bound=Record)


def write_saved(path: Path, record: Record, head: str) -> None:
    """Write a record below its opening comment, whole or not at all."""
    # Escaped beyond ASCII: PyYAML writes some characters as they are that it reads as the end of a line.
    text = yaml.safe_dump(record.model_dump(mode="json"), sort_keys=False, allow_unicode=False, width=100)
    atomic_write(path, (head + text).encode())


def read_saved(path: Path, record: type[R], *, name: str, of: str, again: str) -> R:
    """Read such a file, or that of a run's directory.

    Args:
        path: the file or the directory.
        record: what it holds.
        name: of the file in a directory.
        of: what writes it, for people.
        again: the sentence that says how to come by a good one.

    Raises:
        InvalidInputError: it is missing, malformed, or of another schema version; all that is wrong is in the message.
    """
    path = path / name if path.is_dir() else path
    try:
        content = limited_yaml.content(read_text(path))
    except OSError as error:
        article = "an" if name[0] in "aeiou" else "a"
        raise InvalidInputError(
            f"{path} cannot be read ({error.strerror or error}); name {article} {name}, or the directory of {of}."
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInputError(f"{path} is not YAML: {first_line(error)}. {again}") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{path} holds {type(content).__name__}, not the keys of {name}. {again}")
    version = content.get("schema_version")
    if "schema_version" in record.model_fields and version != SCHEMA_VERSION:
        raise InvalidInputError(f"{path}: {other_version(version)}. {again}")
    try:
        return record.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(_problem(dict(one)) for one in error.errors())
        raise InvalidInputError(f"{path}: {problems}. {again}") from error


def _problem(error: dict[str, Any]) -> str:
    place = ".".join(map(str, error["loc"])) or "the file"
    if error["type"] == "missing":
        return f"{place}: is missing"
    if error["type"] == "extra_forbidden":
        return f"{place}: no such key"
    value = repr(error["input"])
    return f"{place}: {error['msg']}, received {value if len(value) <= 60 else value[:57] + '...'}"


BEST: Final = "best.yaml"
_BEST_HEAD: Final = "# Written by xttsbench: the configuration that a sweep chose, and the evidence for it.\n"
_WORDS: Final = {
    "cpu": "processor",
    "cpus": "processors that may be used",
    "gpus": "GPUs",
    "gpu_driver": "GPU driver",
    "tensorflow": "TensorFlow",
    "code": "code (hash)",
    "data": "data set (hash)",
}


def fingerprint_of(machine: Mapping[str, Any], *, code: str | None, data: str | None) -> Fingerprint:
    """Fingerprint of a measurement, from the run's environment and the hashes of its plan."""
    cpu = machine.get("cpu", {})
    allowed = [cpu.get(name) for name in ("quota_cpus", "affinity_cpus", "machine_cpus")]
    return Fingerprint(
        environment=str(machine.get("fingerprint", "unknown")),
        cpu=cpu.get("model"),
        cpus=min((float(count) for count in allowed if count is not None), default=None),
        gpus=tuple(str(gpu.get("name")) for gpu in machine.get("gpus", ())),
        gpu_driver=machine.get("gpu_driver"),
        tensorflow=machine.get("packages", {}).get("tensorflow"),
        code=code,
        data=data,
    )


def write_best(directory: Path, best: Best | None) -> Path | None:
    """Write the file, whole or not at all; without a winner or a kept baseline there is none."""
    path = directory / BEST
    if best is None:
        path.unlink(missing_ok=True)  # a report that is built again must not leave an older answer
        return None
    write_saved(path, best, _BEST_HEAD)
    return path


def read_best(path: Path) -> Best:
    """Read a ``best.yaml``, or that of a run's directory.

    Raises:
        InvalidInputError: it is missing, malformed, or of another schema version.
    """
    return read_saved(path, Best, name=BEST, of="a sweep", again="Run the sweep again.")


def newest_best(reports: Path) -> Path | None:
    """The ``best.yaml`` of the run under a ``reports/`` directory whose name is the last."""
    return newest_file(reports, BEST)


def newest_file(reports: Path, name: str, *, of: str = "") -> Path | None:
    """The file of that name in the last run under a ``reports/`` directory that has it and ``of`` in its own name."""
    runs = sorted(reports.iterdir(), reverse=True) if reports.is_dir() else []
    return next((run / name for run in runs if of in run.name and (run / name).is_file()), None)


def differences_here(best: Best) -> list[str]:
    """:func:`differences` on this machine, with the code and the data set as they are now.

    Raises:
        TargetError: what it names is no target here.
    """
    bundled = best.workload is not None
    code = code_identity(best.target or BUNDLED, bundled=bundled)
    data = data_identity([best.config.get("data")] if bundled else [])
    return differences(best, fingerprint_of(environment(), code=code, data=data))


def differences(best: Best, here: Fingerprint) -> list[str]:
    """Differences from the winner's fingerprint, one sentence each; fields that either side lacks are left out."""
    found = []
    for field, word in _WORDS.items():
        there, now = getattr(best.fingerprint, field), getattr(here, field)
        if there != now and (there or now) and not (field in ("code", "data") and (there is None or now is None)):
            found.append(f"{word}: {_said(there)} where it was found, {_said(now)} here")
    return found


def _said(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) and value else str(value) if value else "none"


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

    Raises:
        InvalidInputError: there is none, or it cannot be read.
        UsageError: it is of another target than the bundled workload.
    """
    found = path or newest_best(reports)
    if found is None:
        raise InvalidInputError(
            f"--best: no run under {reports} holds a {BEST}; run 'xttsbench sweep --grid full' first, or name a file."
        )
    best = read_best(found)
    if best.workload is None:
        raise UsageError(
            f"--best: {found} is of {best.target}, and training takes the configuration of the bundled workload; "
            "name that of a sweep of the bundled workload."
        )
    return found / BEST if found.is_dir() else found, best


def taken_over(
    path: Path, best: Best, machine: Mapping[str, Any], *, data: Path, recipe: str, config: Mapping[str, Any]
) -> TakenOver:
    """Record of a take-over: the arguments, the differences here, and the command line's own values.

    The machine is the environment as it is now, ``config`` what will be trained with.
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
    """Sentences on a take-over before the start."""
    config = ", ".join(f"{key}={value}" for key, value in taken.config.items()) or "nothing"
    return (
        f"From {taken.path}: {config} ({'proven' if taken.proven else 'NOT proven: ' + taken.why.rstrip('. ')}).",
        *(f"Not as it was found: {difference}." for difference in taken.differences),
        *(f"Trained otherwise: {key} {change}." for key, change in taken.overridden.items()),
    )


OPTIMIZED: Final = "optimized.yaml"
_REPORT: Final = "report.json"
_AGAIN: Final = "Run 'xttsbench optimize' again, or mend the file."


def write_plan(directory: Path, optimized: Optimized) -> Path:
    """Write the file into a run's directory, whole or not at all; it opens with how it is used.

    Returns:
        Where it lies.
    """
    path = directory / OPTIMIZED
    write_saved(path, optimized, _head(path, optimized))
    return path


def read_plan(path: Path) -> Optimized:
    """Read an ``optimized.yaml``, or that of a run's directory.

    Raises:
        InvalidInputError: it is missing, malformed, or of another schema version; all that is wrong is in the message.
    """
    return read_saved(path, Optimized, name=OPTIMIZED, of="a run of 'xttsbench optimize'", again=_AGAIN)


def read_report(plan: Path | None, optimized: Optimized) -> Report | None:
    """The report of the run that found a plan: beside the file, or in the directory that it names.

    ``None`` where there is none, or none that this version reads: a plan is of use without it.
    """
    beside = [] if plan is None else [plan if plan.is_dir() else plan.parent]
    for directory in (*beside, Path(optimized.run)):
        try:
            report = Report.model_validate_json(read_bytes(directory / _REPORT))
        except (OSError, ValueError):
            continue
        if report.optimized == optimized:
            return report
    return None


def report_of(optimized: Optimized, target: str) -> Report:
    """A report that says what was applied, and nothing measured: for a plan whose own report is not at hand."""
    why = "nothing was measured: a saved plan was applied"
    applied = ", ".join(optimized.fixes) or "none"
    verdict = unmeasured_verdict(f"Nothing was measured here: the fixes of a saved plan were applied ({applied}).")
    report = Report(
        kind="optimize",
        command=f"xttsbench.optimize({target!r}, plan=...)",
        created_utc=now_utc(),
        target={"name": target, "kwargs": optimized.kwargs, "kind": None, "status": "ok", "error": None},
        environment=environment(),
        verdict=verdict,
        optimized=optimized,
    )
    sections = {name: getattr(report, name) for name in ("verdict", "oscillation", "aa", "warm_up")}
    missing = {f"{name}.{key}": why for name, part in sections.items() for key, value in part if value is None}
    missing |= dict.fromkeys(("pipeline", "overhead"), why)
    return report.model_copy(update={"unmeasured": missing})


def _head(path: Path, optimized: Optimized) -> str:
    what = "Fixes that were measured" if optimized.fixes else "No fix was better than the original: nothing is applied"
    return (
        f"# Written by xttsbench. {what}, to be applied again without looking for them:\n"
        "#     import xttsbench\n"
        f"#     dataset, report = xttsbench.optimize(dataset, plan={str(path.absolute())!r})\n"
        "# It is refused for a pipeline that is not the one it was found for.\n"
    )
