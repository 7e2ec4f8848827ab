"""``xttsbench plan``: from a run of ``diagnose`` and the measured costs of the tf.data service to larger layouts.

The trials of that run are copied into the plan's own, and one trial is added, in which a service runs on this machine,
or a second one, of the input on several workers.
All that is predicted follows from these files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from xttsbench.errors import InvalidInputError
from xttsbench.evidence import known_cpus
from xttsbench.execution.child import now_utc
from xttsbench.execution.journal import append_trial
from xttsbench.execution.limits import Limits
from xttsbench.execution.run_directory import PLAN
from xttsbench.planning import job_of
from xttsbench.records.scale import Prices, ScaleRequest, Served, Workers
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.service import loopback
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Progress, Silent
from xttsbench.workflows.runs import Outcome, finish, open_run, read_run
from xttsbench.workflows.saved import newest_file, read_saved

_WINDOW_S: Final = 12.0
_WORKERS_S: Final = 16.0  # of each number of workers
_WORKER_CORES: Final = 0.25
"""Quota of a worker whose input is measured: several fit in this machine, beside the client."""
_TRIAL_S: Final = 120.0
_IMITATED: Final = "xttsbench.worker.service_costs:imitated"
_FROM: Final = ("diagnose", "optimize", "plan")


@dataclass(frozen=True)
class Request:
    """Options of the user.

    Attributes:
        run: directory of a run of ``diagnose``, or of another plan, whose costs are taken; ``None`` for the newest
            under ``reports/``.
        prices: a file of prices.
        cores: of each worker; ``None`` for as many as this machine has.
        measure: workers of this machine, a quarter of a core each, on which the input is run, from one up to so many.
    """

    run: Path | None = None
    prices: Path | None = None
    cores: float | None = None
    latencies_s: tuple[float, ...] = ()
    sharding: str = "dynamic"
    measure: int = 0
    out: Path | None = None
    redact: bool = False
    print_to_stderr: bool = False
    show_output: bool = False
    command: str = "xttsbench plan"


def plan(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Plan, and write the plan's directory.

    Raises:
        InvalidInputError: there is no run, it is of another kind or another machine, or the prices cannot be read.
        JournalError: the run cannot be read.
        HelperError, ServiceError: TensorFlow, or its service, cannot be started here.
    """
    began = time.monotonic()
    source = request.run or _newest(Path.cwd() / "reports")
    diagnosed = read_run(source)
    if diagnosed.plan.kind not in _FROM:
        raise InvalidInputError(f"{source} is a run of {diagnosed.plan.kind}; name one of 'xttsbench diagnose'.")
    if request.measure and parse_target(diagnosed.plan.target, scripts=True).kind == "script":
        raise InvalidInputError(
            f"--measure {request.measure} runs the input by itself, and {diagnosed.plan.target} is a script; name a "
            "function that makes its dataset, as module:function, to diagnose, and plan from that run."
        )
    most = int(max((known_cpus(diagnosed.environment) or 1.0) - 1.0, _WORKER_CORES) / _WORKER_CORES)
    if request.measure > most:
        raise InvalidInputError(
            f"--measure {request.measure}: so many workers of {_WORKER_CORES:g} cores do not fit into this machine "
            f"beside the client; --measure {most} does."
        )
    prices = prices_of(request.prices) if request.prices is not None else None
    asked = {"cores": request.cores, "sharding": request.sharding, "latencies_s": request.latencies_s, "prices": prices}
    scale = ScaleRequest(run=str(source), **{name: value for name, value in asked.items() if value})
    changed = {"kind": "plan", "command": request.command, "created_utc": now_utc(), "budget_s": 0.0, "scale": scale}
    own = diagnosed.plan.model_copy(update=changed | {"comparison": None, "redact": request.redact})
    costs_known = any(trial.service for trial in diagnosed.trials)
    measures = bool(request.measure) or not costs_known
    name = f"plan-{source.resolve().name.partition('-')[2] or 'run'}"
    with open_run(own, request.out, name, began=began, needs_tensorflow=measures) as run:
        if run.environment.get("fingerprint") != diagnosed.environment.get("fingerprint"):
            raise InvalidInputError(
                f"{source} was measured on another machine or with other versions, so that costs measured here do not "
                "belong to it; run 'xttsbench diagnose' here first."
            )
        for trial in diagnosed.trials:
            append_trial(run.directory, run.redaction.kept(trial))
        measured = _measured(run, diagnosed, request, progress or Silent(), costs=not costs_known) if measures else []
        return finish(replace(run, trials=(*diagnosed.trials, *measured)))


def prices_of(path: Path) -> Prices:
    """Read a file of prices.

    Raises:
        InvalidInputError: it is missing or malformed; all that is wrong is in the message.
    """
    return read_saved(path, Prices, name="machines.yaml", of="them", again="docs/scale.md shows such a file.")


def _newest(reports: Path) -> Path:
    found = newest_file(reports, PLAN, of="-diagnose-")
    if found is None:
        raise InvalidInputError(f"No run under {reports} is one of 'xttsbench diagnose'; run that first, or name one.")
    return found.parent


def _measured(
    run: Recorded, source: Recorded, request: Request, progress: Progress, *, costs: bool
) -> Sequence[TrialRecord]:
    """Trials that measure the costs of the service, on a batch of the target or an imitated one, and its workers."""
    with run.session(
        progress, print_to_stderr=request.print_to_stderr, keeps_output=not request.show_output
    ) as session:
        session.announce("starting a tf.data service on this machine")
        if costs:
            with loopback(workers=1) as cluster:
                served = Served(target=cluster.target, dispatcher=cluster.pids[0], worker=cluster.pids[1])
                spec = _spec(replace(source, plan=run.plan), served)
                session.run(spec, Limits(_TRIAL_S, _TRIAL_S / 2))
        if request.measure:
            spec = job_of(run.plan, _WORKERS_S * request.measure).spec(len(source.trials) + 1, "workers", block=-1)
            asked = Workers(most=request.measure, cores=_WORKER_CORES)
            limit_s = 2 * _TRIAL_S * (1 + request.measure)  # a shuffle may take minutes to fill at a quarter of a core
            session.run(spec.model_copy(update={"workers": asked, "emulated_ms": ()}), Limits(limit_s, limit_s))
        return session.trials


def _spec(run: Recorded, served: Served) -> TrialSpec:
    plan = run.plan
    if (size_bytes := _imitated_bytes(run)) is not None:
        update = {"target": _IMITATED, "kwargs": {"size_bytes": size_bytes}, "arguments": ()}
        plan = plan.model_copy(update=update)
    spec = job_of(plan, _WINDOW_S).spec(len(run.trials), "service", block=-1)
    return spec.model_copy(update={"service": served, "emulated_ms": ()})


def _imitated_bytes(run: Recorded) -> int | None:
    """Size of a batch of a script, which is not at hand without its run; ``None`` for other targets."""
    batches = next((trial.batches for trial in run.trials if trial.batches is not None), None)
    if parse_target(run.plan.target, scripts=True).kind != "script" or batches is None:
        return None
    return batches.bytes // max(batches.cached, 1)
