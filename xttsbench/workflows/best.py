"""``best.yaml``: written beside the report of a sweep, and read where someone trains with what won.

A winner holds where it was found. Read on another machine, with other data or other versions, it is still returned, and
every difference is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.probes.environment import environment
from xttsbench.records.report import Best, Fingerprint
from xttsbench.records.training import TakenOver
from xttsbench.scenario.settings import BUNDLED
from xttsbench.workflows.recorded import code_identity, data_identity
from xttsbench.workflows.saved import read_saved, write_saved

NAME: Final = "best.yaml"
_HEAD: Final = "# Written by xttsbench: the configuration that a sweep chose, and the evidence for it.\n"
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
    """Where something was measured, from the run's environment and the hashes of its plan."""
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
    path = directory / NAME
    if best is None:
        path.unlink(missing_ok=True)  # a report that is built again must not leave an older answer
        return None
    write_saved(path, best, _HEAD)
    return path


def read_best(path: Path) -> Best:
    """Read a ``best.yaml``, or that of a run's directory.

    Raises:
        InvalidInputError: it is missing, malformed, or of another schema version.
    """
    return read_saved(path, Best, name=NAME, of="a sweep", again="Run the sweep again.")


def newest_best(reports: Path) -> Path | None:
    """The ``best.yaml`` of the newest run under a ``reports/`` directory, by the time in the runs' names."""
    if not reports.is_dir():
        return None
    found = [run / NAME for run in sorted(reports.iterdir(), reverse=True) if (run / NAME).is_file()]
    return found[0] if found else None


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
    """What is other here than where the winner was found, one sentence each; what either side does not know is left."""
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
    """What is said of it before the start."""
    config = ", ".join(f"{key}={value}" for key, value in taken.config.items()) or "nothing"
    return (
        f"From {taken.path}: {config} ({'proven' if taken.proven else 'NOT proven: ' + taken.why.rstrip('. ')}).",
        *(f"Not as it was found: {difference}." for difference in taken.differences),
        *(f"Trained otherwise: {key} {change}." for key, change in taken.overridden.items()),
    )
