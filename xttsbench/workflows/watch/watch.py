"""``xttsbench watch SCRIPT``: the script runs to its end as it does without us; then a screen says how it went."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.execution import journal
from xttsbench.execution.child import SharedRows
from xttsbench.execution.whole_run import ROWS, Left, run_whole
from xttsbench.files import atomic_write
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialSpec
from xttsbench.records.watch import SUMMARY_FILE, WatchSummary
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.diagnose.report import assemble
from xttsbench.workflows.outcome import DONE, GATE, INCONCLUSIVE, INTERRUPTED, INVALID, NOTHING
from xttsbench.workflows.recorded import Recorded, open_run
from xttsbench.workflows.watch.gates import DEFAULTS, judge, parse
from xttsbench.workflows.watch.observer import About, Observer

PATIENCE_S: Final = 10.0
"""A loop that takes no gradients is taken for the main one when it has had so many seconds."""
Shown = Callable[[WatchSummary], None]


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        script: a file of Python.
        arguments: of the script.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        tensorboard: directory for scalars.
        fail_on: gates as they were typed.
        baseline: an earlier ``summary.json``, or its directory.
        print_to_stderr: what the script prints goes to standard error.
        command: as it was typed, for the report.
    """

    script: str
    arguments: tuple[str, ...] = ()
    out: Path | None = None
    tensorboard: Path | None = None
    fail_on: tuple[str, ...] = ()
    baseline: Path | None = None
    print_to_stderr: bool = False
    command: str = "xttsbench watch"


@dataclass(frozen=True)
class Watched:
    """How a watched run ended: ``message`` is one sentence for standard error, where the exit code is not 0."""

    summary: WatchSummary
    directory: Path
    exit_code: int
    message: str | None = None


def watch(request: Request, shown: Shown) -> Watched:
    """Run a script to its end and say what its steps were like; ``shown`` is called where somebody asks meanwhile.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
        HelperError: the script's process cannot be started.
    """
    target = parse_target(request.script, scripts=True)
    if target.kind != "script":
        raise UsageError(f"{request.script!r} is no script: watch runs a file.py to its end; diagnose takes callables.")
    baseline = read_summary(request.baseline) if request.baseline is not None else None
    gates = tuple(map(parse, request.fail_on or (DEFAULTS if baseline is not None else ())))
    if baseline is None and any(gate.relative for gate in gates):
        raise UsageError("--fail-on with a + compares with an earlier run: name it with --baseline SUMMARY.")
    plan = plan_of(request.script, request.arguments, request.command)
    run = open_run(plan, request.out, f"watch-{target.name}")
    spec = TrialSpec(
        trial_id="watch", rung="script", target=request.script, arguments=request.arguments, window_s=PATIENCE_S
    )
    about = About(
        script=shlex.join([request.script, *request.arguments]),
        next_command=diagnose_command(request.script, request.arguments),
    )
    with SharedRows(ROWS + 1) as shared:
        observer = Observer(run.directory, spec, shared.memory, about, tensorboard=request.tensorboard, shown=shown)
        left = run_whole(spec, observer, shared, print_to_stderr=request.print_to_stderr)
    name = signal.Signals(-left.returncode).name if left.returncode < 0 else None
    code = left.returncode if left.returncode >= 0 else None
    observer.finish(signal=name, exit_code=code, interrupted=_interrupted(left))
    summary = finished(observer, run)
    if gates:
        summary = summary.model_copy(update={"fail_on": judge(gates, summary, baseline)})
    observer.conclude(summary)
    return Watched(summary, run.directory, *judged(summary, request.script))


def plan_of(script: str, arguments: Sequence[str], command: str) -> RunPlan:
    """The plan of a watched run."""
    return RunPlan(
        kind="watch",
        command=command,
        created_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        target=script,
        arguments=tuple(arguments),
        steps=1,
        budget_s=1.0,
        verified=False,
    )


def finished(observer: Observer, run: Recorded) -> WatchSummary:
    """Write the journal and the report of a run that is over, and return what it comes to."""
    record = observer.record()
    journal.append(run.directory, record)
    report = report_of_watched(replace(run, trials=(record,)))
    from xttsbench.reporting.write import to_json

    atomic_write(run.directory / "report.json", to_json(report).encode())
    return observer.summary(report)


def report_of_watched(run: Recorded) -> Report:
    """The report of a watched run, from its files."""
    return assemble(run.plan, run.environment, run.trials, directory=run.directory)


def read_summary(path: Path) -> WatchSummary:
    """The summary of a run, by its file or its directory.

    Raises:
        InvalidInputError: there is none, or it cannot be read.
    """
    file = path / SUMMARY_FILE if path.is_dir() else path
    try:
        found = WatchSummary.model_validate_json(file.read_bytes())
    except OSError as error:
        raise InvalidInputError(
            f"{file} cannot be read ({error.strerror or error}); name the directory of a watched run."
        ) from error
    except ValidationError as error:
        why = str(error).splitlines()[0]
        raise InvalidInputError(f"{file} is not the summary of a watched run: {why}.") from error
    if not found.over and not _runs(found):  # it was killed together with what would have said so
        return found.model_copy(update={"over": True, "ended": "killed"})
    return found


def _runs(summary: WatchSummary) -> bool:
    """Whether the process of a run that is not over is there, and is not another one with its number."""
    try:
        return psutil.Process(summary.pid).create_time() <= datetime.fromisoformat(summary.updated_utc).timestamp()
    except psutil.Error:
        return False


def diagnose_command(script: str, arguments: Sequence[str]) -> str:
    """The command that proves what is likely."""
    return shlex.join(["xttsbench", "diagnose", script, *(["--", *arguments] if arguments else [])])


def judged(summary: WatchSummary, script: str) -> tuple[int, str | None]:
    """Exit code and sentence: an interruption and the script's own failure come before gates."""
    if summary.ended == "interrupted":
        return INTERRUPTED, "Interrupted; what was seen until then is in the summary."
    if summary.ended == "killed":
        return INVALID, f"{script} was killed by {summary.signal}; what was seen until then is in the summary."
    if summary.exit_code:
        why = f": {summary.error}" if summary.error else ""
        return INVALID, f"{script} ended with exit code {summary.exit_code}{why}"
    failed = next((gate for gate in summary.fail_on if gate.outcome == "failed"), None)
    if failed is not None:
        return GATE, f"--fail-on {failed.expression}: {failed.why}."
    open_one = next((gate for gate in summary.fail_on if gate.outcome != "passed"), None)
    if open_one is not None:
        return INCONCLUSIVE, f"--fail-on {open_one.expression}: {open_one.why}."
    if not summary.stretches:
        reason = summary.unmeasured.get("steps", "no batch was taken in a way that can be seen")
        return NOTHING, f"No training step was seen: {reason.rstrip('.')}. See docs/watch.md for what can be."
    return DONE, None


def _interrupted(left: Left) -> bool:
    """Whether the script ended because somebody asked it to."""
    return left.asked is not None or left.returncode in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)
