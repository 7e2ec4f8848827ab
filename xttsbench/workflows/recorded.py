"""A run as its files have it: what was to be measured, on which machine, and the trials so far.

This is the one value that stages of a run hand on: it is opened, a session adds trials, a report is made of it.

What code and which data a run measured, as short hashes: a run goes on, and a winner holds, where they are the same.

The machine and the versions are told by the environment's fingerprint
(:func:`xttsbench.probes.environment.fingerprint`); these two are what it leaves out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import xttsbench
from xttsbench.errors import JournalError
from xttsbench.execution.run_directory import (
    ENVIRONMENT,
    PLAN,
    make_run_directory,
    read_environment,
    read_plan,
    read_trials,
    write_json,
)
from xttsbench.probes.environment import environment as read_machine
from xttsbench.probes.environment import require_tensorflow
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.trial import TrialRecord
from xttsbench.targets.spec import TargetSpec, parse_target
from xttsbench.workflows.measure.session import Progress, Session

REPORT_S: Final = 5.0
"""Of a budget, kept for the report and its plots."""


@dataclass(frozen=True)
class Recorded:
    """A run that has a directory.

    Attributes:
        directory: of the run.
        plan: as it is in ``plan.json``.
        environment: as it is in ``environment.json``.
        trials: those of the journal.
        began: ``time.monotonic()`` at its start; what earlier trials took is counted as if it had just passed.
    """

    directory: Path
    plan: RunPlan
    environment: Mapping[str, Any]
    trials: Sequence[TrialRecord] = ()
    began: float = field(default_factory=time.monotonic)

    @property
    def comparison(self) -> Comparison:
        """What the run compares.

        Raises:
            JournalError: its plan names nothing.
        """
        if self.plan.comparison is None:
            raise JournalError(f"{self.directory}: the plan names no comparison; run the command again.")
        return self.plan.comparison

    def session(self, progress: Progress | None, *, print_to_stderr: bool = False, scripts: bool = False) -> Session:
        """What runs its trials; those that it has had are not run again."""
        return Session(
            self.directory,
            earlier=self.trials,
            print_to_stderr=print_to_stderr,
            progress=progress,
            budget_s=self.plan.budget_s,
            began=self.began,
            scripts=scripts,
        )


def open_run(plan: RunPlan, out: Path | None, name: str, *, began: float | None = None) -> Recorded:
    """Make a run's directory, with its environment and its plan in it.

    Args:
        plan: what is to be measured.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        name: of the directory there.
        began: see :class:`Recorded`; now without it.

    Raises:
        UsageError: the directory cannot be made, or holds something.
        HelperError: TensorFlow is missing, or of an unsupported version.
    """
    require_tensorflow()
    return make_run(plan, out, name, began=began)


def make_run(plan: RunPlan, out: Path | None, name: str, *, began: float | None = None) -> Recorded:
    """Make a run's directory as :func:`open_run` does, in a process that has loaded TensorFlow itself or does without.

    Raises:
        UsageError: the directory cannot be made, or holds something.
    """
    directory = make_run_directory(out, name, datetime.fromisoformat(plan.created_utc))
    machine = read_machine(directory)
    # The plan comes last: with it the directory is a run's.
    write_json(directory / ENVIRONMENT, machine)
    write_json(directory / PLAN, plan.model_dump(mode="json"))
    return Recorded(directory, plan, machine, began=time.monotonic() if began is None else began)


def read_run(directory: Path) -> Recorded:
    """A run from its directory.

    Raises:
        JournalError: a file is missing, torn in the middle, or of another schema version.
    """
    return Recorded(directory, read_plan(directory), read_environment(directory), read_trials(directory))


_DIGITS: Final = 16
_MOST_FILES: Final = 5000
"""More Python files than these are no one's own project: a directory full of environments, or a home."""
_NOT_CODE: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env", "reports"})


def code_identity(target: str, *, bundled: bool) -> str | None:
    """Hash of the Python files that a target may come from: its package, or the directory of its file.

    For the bundled workload these are this package's own. ``None`` where they cannot be found or are too many.

    Raises:
        TargetError: the name is none of a target.
    """
    roots = [Path(xttsbench.__file__).parent] if bundled else _roots(parse_target(target))
    digest = hashlib.sha256()
    count = 0
    for root in roots:
        for path in _python_files(root):
            count += 1
            if count > _MOST_FILES:
                return None
            try:
                content = path.read_bytes()
            except OSError:
                return None
            name = path.relative_to(root) if path != root else path.name
            digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape"))
            digest.update(content)
    return digest.hexdigest()[:_DIGITS] if count else None


def data_identity(directories: Collection[str | None]) -> str | None:
    """Hash of data sets of the bundled workload: the metadata, and the name and size of each sound file.

    ``None`` stands for the default one. The answer is ``None`` without any, as for other targets, whose data nobody but
    they know, and where one cannot be read.
    """
    if not directories:
        return None
    # Here and not above: speech data are the bundled workload's alone.
    from xttsbench.xtts.data.make import ensure_default_data

    digest = hashlib.sha256()
    for data in sorted(set(directories), key=str):
        directory = Path(data) if data is not None else ensure_default_data()
        try:
            digest.update((directory / "metadata.csv").read_bytes())
            sounds = sorted(
                (entry.name, entry.stat().st_size) for entry in os.scandir(directory / "wavs") if entry.is_file()
            )
        except OSError:
            return None
        digest.update(repr(sounds).encode(errors="surrogateescape"))
    return digest.hexdigest()[:_DIGITS]


def _roots(target: TargetSpec) -> list[Path]:
    """Where the target's code is: the directory of a file; for a module its top-level package or file."""
    if target.kind == "file":
        return [Path(target.folder)]
    name = target.place.partition(".")[0]
    for candidate in (Path(target.folder) / name, Path(target.folder) / f"{name}.py"):
        if candidate.exists():
            return [candidate]
    if name in sys.builtin_module_names:
        return []
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if found is None:
        return []
    return [Path(place) for place in found.submodule_search_locations or ([found.origin] if found.origin else [])]


def _python_files(root: Path) -> Iterator[Path]:
    """The ``.py`` files below a directory in a fixed order, or the file itself."""
    if root.is_file():
        yield root
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _NOT_CODE and not name.startswith("."))
        yield from (Path(folder) / name for name in sorted(files) if name.endswith(".py"))
