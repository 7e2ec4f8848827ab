"""``xttsbench run SCENARIO`` and ``xttsbench sweep``: configurations against their baseline, or until one has won.

A run that goes on keeps its plan, and measures again what was interrupted or killed. It is refused where the scenario,
the code, the data or the machine is another one, since its trials would not be comparable with those that the journal
holds. What a sweep measures next, and what it comes to, is decided from the trials alone
(:mod:`xttsbench.comparison.sweep`), so that the same journal gives the same winner again.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from xttsbench.comparison import sweep as sweeps
from xttsbench.comparison.arms import interim_status
from xttsbench.comparison.effects import MIN_PROCESSES, settled_arms
from xttsbench.comparison.runs import collect, parity_found
from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.child import now_utc
from xttsbench.execution.ending import finishes
from xttsbench.execution.journal import trials_to_keep
from xttsbench.execution.run_directory import PLAN, lock_run, read_environment, read_plan, write_first
from xttsbench.planning import IMPORT_S, Part, divide, expected_s, plan_comparison, plan_procedure
from xttsbench.probes.environment import environment as read_machine
from xttsbench.records.plan import Comparison, Procedure, RunPlan
from xttsbench.records.trial import TrialRecord, interrupted
from xttsbench.scenario.load import changed, load_scenario
from xttsbench.scenario.settings import MOST_ARMS, MOST_SWEEP_ARMS, Scenario
from xttsbench.shipped import locate
from xttsbench.targets.configuration import configuration_problems
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.code_identity import code_identity, data_identity
from xttsbench.workflows.measure.arms import Trials, compare_parts
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Progress, Session, Silent
from xttsbench.workflows.measure.turns import TURN_S, AfterRound
from xttsbench.workflows.resumed import differences
from xttsbench.workflows.runs import REPORT_S, Outcome, finish, open_run
from xttsbench.xtts.data.pool import Progress as DataProgress

if TYPE_CHECKING:
    from xttsbench.workflows.measure.cluster import Cluster


Compare = Callable[..., list[TrialRecord]]
"""Runs the parts of a comparison: :func:`~xttsbench.workflows.measure.arms.compare_parts`, or on a cluster."""


def run(request: Request, *, progress: Progress | None = None, data_progress: DataProgress | None = None) -> Outcome:
    """Run a scenario and write its run's directory.

    Everything measured is on disk before the next trial starts, and a report is written however the run ended.

    Raises:
        UsageError, InvalidInputError: the request or the scenario is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    with _cluster(request.on) as cluster, begin(request, "run", data_progress, cluster) as begun:
        return finish(replace(begun, trials=_measured(begun, request, progress or Silent(), _on(cluster, begun))))


def _cluster(on: str | None) -> AbstractContextManager[Cluster | None]:
    if on is None:
        return nullcontext()
    # Here and not above: it is for those who have a cluster.
    from xttsbench.workflows.measure.cluster import connected

    return connected(on)


def _on(cluster: Cluster | None, run: Recorded) -> dict[str, Any]:
    """Function that measures the parts of a run's comparison, and number of those that it measures at a time."""
    compare = compare_parts if cluster is None else cluster.compare
    return {"compare": compare, "devices": run.plan.devices or 1}


def _measured(begun: Recorded, request: Request, told: Progress, on: Mapping[str, Any]) -> Sequence[TrialRecord]:
    plan, comparison = begun.plan, begun.comparison

    def tell(done: int, rounds: int, trials: Sequence[TrialRecord]) -> None:
        told.status(f"round {done} of {rounds} at most is done: {interim_status(comparison, trials)}")

    with begun.session(told, print_to_stderr=request.print_to_stderr) as session:
        until_s = max(plan.budget_s - REPORT_S, session.spent_s + 1.0)
        measure(comparison, session, until_s=until_s, seed=plan.seed, after_round=tell, **on)
    return session.trials


def measure(
    comparison: Comparison,
    session: Trials,
    *,
    until_s: float,
    seed: int,
    after_round: AfterRound | None = None,
    compare: Compare = compare_parts,
    devices: int = 1,
) -> None:
    """Measure configurations until each is decided in two processes, or has as many rounds as the comparison asks for.

    A process lives through some rounds; then a new one of each configuration that is not decided goes on, since more
    rounds in the same one show little of what others would do. Everything has to be over at ``until_s`` seconds of the
    session, which has the trials. Several ``devices`` measure so many processes of each at a time.
    """
    left, processes = comparison.blocks, min(MIN_PROCESSES, comparison.blocks)
    alone = all(arm.role != "candidate" for arm in comparison.arms)
    each = left if alone else min(sweeps.LEAST_ROUNDS, math.ceil(left / processes))
    block = 0
    if devices > 1:  # their data once, before any of them measures
        compare([Part(comparison, 0, 0)], session, budget_s=until_s - session.spent_s, parity=True, seed=seed)
        if interrupted(session.trials) or parity_found(comparison, session.trials).failed is not None:
            return
    while left > 0 and (plan := _undecided(comparison, session, processes)) is not None:
        parts = divide(comparison, plan, block, [min(each, left - done) for done in range(0, left, each)], devices)
        ran = compare(
            parts,
            session,
            budget_s=(until_s - session.spent_s) * sum(part.rounds for part in parts) / left,
            parity=not block and devices == 1,
            seed=seed,
            # In its first process a configuration is measured until that can say no more.
            enough=(lambda trials: settled_arms(comparison, trials, processes)) if block else None,
            after_round=after_round,
        )
        measured = [trial for trial in ran if trial.spec.kind == "arm"]
        if not measured or interrupted(measured):
            return
        rounds: Counter[Any] = Counter()
        for trial in measured:
            rounds[trial.spec.arm, trial.spec.emulated_ms] += max(1, len(trial.rounds))
        left -= max(rounds.values())
        block = max(trial.spec.block for trial in measured) + 1


def _undecided(comparison: Comparison, session: Trials, processes: int) -> Comparison | None:
    """Rest of a comparison that is left to be measured; ``None`` where there is none."""
    gone = set(parity_found(comparison, session.trials).differences)
    gone |= settled_arms(comparison, session.trials, processes)
    arms = tuple(arm for arm in comparison.arms if arm.id not in gone)
    used = tuple(group.accelerator for group in collect(comparison, session.trials) if group.ended is None)
    alone = all(arm.role != "candidate" for arm in comparison.arms)
    if not used or (not alone and not any(arm.role == "candidate" for arm in arms)):
        return None
    return comparison.model_copy(update={"arms": arms, "accelerators": used})


@dataclass(frozen=True)
class Request:
    """Options of the user; ``None`` or empty leaves the scenario's own.

    Attributes:
        scenario: name of a shipped one, or a path.
        accelerators: as on the command line.
        data: directory of the bundled workload's data set.
        settings: keyword arguments on top of the scenario's base.
        budget_s: seconds for everything but the making of data.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        resume: go on with the run in ``out``.
        print_to_stderr: what the target prints goes to standard error.
        redact: leave values of arguments, paths and names out of every file.
        on: a cluster whose devices measure, see :func:`~xttsbench.workflows.measure.cluster.connected`; ``None`` for
            this machine.
        command: as it was typed, for the report.
    """

    scenario: str
    blocks: int | None = None
    steps: int | None = None
    seed: int | None = None
    budget_s: float | None = None
    accelerators: tuple[str, ...] = ()
    data: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None
    resume: bool = False
    print_to_stderr: bool = False
    redact: bool = False
    on: str | None = None
    command: str = "xttsbench run"


def _scenario(request: Request, path: Path, most_arms: int) -> Scenario:
    """The scenario with the options of the request in place of its own; it may not have more configurations."""
    scenario = load_scenario(
        path,
        target=parse_target,
        accelerator=partial(parse_accelerator, beside=path.parent),
        arguments=configuration_problems,
        most_arms=most_arms,
    )
    changes = {
        "blocks": request.blocks,
        "steps": request.steps,
        "seed": request.seed,
        "budget_s": request.budget_s,
        "accelerator": list(request.accelerators) or None,
        "data": str(request.data) if request.data is not None else None,
    }
    return changed(scenario, changes, request.settings, arguments=configuration_problems, most_arms=most_arms)


@contextmanager
def begin(
    request: Request,
    kind: Literal["run", "sweep"],
    data_progress: DataProgress | None = None,
    cluster: Cluster | None = None,
) -> Iterator[Recorded]:
    """Plan a run, make what it reads, and open its directory, which is held until the run has its report.

    The devices of a cluster are asked whether they would measure the same.

    Raises:
        UsageError, InvalidInputError: the request or the scenario is wrong, the run cannot be gone on with, or nothing
            could be decided; nothing has been run, made or written.
    """
    path, is_sweep = locate("scenarios", request.scenario), kind == "sweep"
    scenario = _scenario(request, path, MOST_SWEEP_ARMS if is_sweep else MOST_ARMS)
    if is_sweep and len(scenario.accelerator) > 1:
        raise InvalidInputError(
            f"{scenario.name}: accelerator: a sweep looks for one winner on one device, got "
            f"{', '.join(scenario.accelerator)}; name one with --accelerator."
        )
    if request.resume and request.out is None:
        raise UsageError("--resume goes on with the run that --out names; give both.")
    accelerators = [parse_accelerator(text, beside=path.parent) for text in scenario.accelerator]
    comparison = plan_comparison(scenario, accelerators)
    if is_sweep:
        _fits(scenario, comparison)
    if comparison.bundled:
        # Here and not above: reading speech data is the bundled workload's alone.
        from xttsbench.workflows.bundled import prepare

        prepare([arm.kwargs for arm in comparison.arms], data_progress)
    began = time.monotonic()
    resumed = request.out if request.resume and request.out is not None and (request.out / PLAN).exists() else None
    plan = RunPlan(
        kind=kind,
        command=request.command,
        created_utc=now_utc(),
        target=comparison.target,
        kwargs=comparison.baseline.kwargs,
        accelerator=accelerators[0],
        steps=comparison.steps,
        budget_s=scenario.budget_s,
        seed=scenario.seed,
        redact=request.redact or (resumed is not None and read_plan(resumed).redact),
        comparison=comparison,
        procedure=plan_procedure(scenario, request.blocks) if is_sweep else None,
        code=code_identity(comparison.target, bundled=comparison.bundled),
        data=data_identity([arm.kwargs.get("data") for arm in comparison.arms] if comparison.bundled else []),
    )
    if cluster is not None:
        plan = plan.model_copy(update={"devices": cluster.admit(plan)})
    if resumed is not None:
        with lock_run(resumed), finishes():
            # The machines of a cluster may be unlike, and change while the run goes on.
            yield _go_on(resumed, plan, began, None if cluster else read_machine(resumed))
        return
    machine = cluster.environments[0] if cluster is not None else None
    with open_run(plan, request.out, scenario.name, began=began, clear=request.resume, machine=machine) as run:
        yield run


def _go_on(directory: Path, plan: RunPlan, began: float, here: Mapping[str, Any] | None) -> Recorded:
    before, machine = read_plan(directory), read_environment(directory)
    plan = plan.sealed(before.hidden.salt if before.hidden else secrets.token_hex(8))
    same: dict[str, Any] = {"command": before.command, "created_utc": before.created_utc}
    if before.devices is not None:  # what is measured follows from how many there were, wherever it is measured now
        same["devices"] = before.devices
    plan = plan.model_copy(update=same)
    run = Recorded(directory, plan, machine)
    reasons = differences(run.redaction.kept(before), run.kept.plan)
    if here is not None and machine.get("fingerprint") != here["fingerprint"]:
        reasons.append("the machine or the version of TensorFlow is another one (environment.json)")
    if reasons:
        raise UsageError(
            f"--resume: the run in {str(directory)!r} cannot be resumed: {'; '.join(reasons)}. "
            "Undo that, or start anew with another --out."
        )
    if run.kept.plan != before:
        write_first(directory, {PLAN: run.kept.plan.model_dump(mode="json")})
    trials = trials_to_keep(directory)
    took_s = sum(trial.duration_s for trial in trials) / (plan.devices or 1)
    return replace(run, trials=trials, began=began - took_s)


_PARITY_S: Final = 15.0  # kept for comparing the data before the first round


def sweep(request: Request, *, progress: Progress | None = None, data_progress: DataProgress | None = None) -> Outcome:
    """Search a scenario's configurations for the fastest, and write the run's directory with its ``best.yaml``.

    Everything measured is on disk before the next trial starts, and a report is written however the run ended.

    Raises:
        UsageError, InvalidInputError: the request or the scenario is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    told = progress or Silent()
    with _cluster(request.on) as cluster, begin(request, "sweep", data_progress, cluster) as run:
        plan, until_s = run.plan, run.plan.budget_s - REPORT_S
        procedure = plan.procedure or Procedure()
        with run.session(told, print_to_stderr=request.print_to_stderr) as session:
            on = _on(cluster, run)
            search(run.comparison, procedure, session, until_s=until_s, seed=plan.seed, progress=told, **on)
        return finish(replace(run, trials=session.trials))


def search(
    comparison: Comparison,
    procedure: Procedure,
    session: Session,
    *,
    until_s: float,
    seed: int,
    progress: Progress,
    compare: Compare = compare_parts,
    devices: int = 1,
) -> None:
    """Measure round after round; all that is found is in ``session.trials``.

    No block begins that is not expected to end ``until_s`` seconds after the run began. Several ``devices`` share the
    configurations, or measure so many processes of each at a time.
    """
    window_s = comparison.window_s
    data = [Part(comparison, 0, 0)]
    compare(data, session, budget_s=until_s - session.spent_s, window_s=window_s, parity=True, seed=seed)

    def need_no_more(trials: Sequence[TrialRecord]) -> set[str]:
        """Candidates that need no more turns; asked after each round, so it also tells the user how all stand."""
        state, left_s = sweeps.state_of(comparison, sweeps.seen_in(comparison, trials)), until_s - session.spent_s
        rounds, ahead = state.seen.rounds, state.ahead
        said = f"{rounds} {'round' if rounds == 1 else 'rounds'} done: {interim_status(comparison, trials)}"
        left = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{max(left_s, 0.0):.0f} s"
        progress.status(f"{said}; {len(ahead)} may still win, at most {left} left" if ahead else said)
        return sweeps.enough(comparison, procedure, state)

    while not interrupted(session.trials):
        seen = sweeps.seen_in(comparison, session.trials)
        now = sweeps.next_round(comparison, procedure, seen)
        if now is None:
            return
        had = max(seen.processes.get(arm.id, 0) for arm in now.comparison.arms if arm.role == "candidate")
        rounds = [now.rounds] * max(procedure.blocks - had, 1)
        ran = compare(
            divide(comparison, now.comparison, now.first_block, rounds, devices, apart=True, beside=now.beaten),
            session,
            budget_s=until_s - session.spent_s,
            window_s=window_s,
            parity=False,
            seed=seed,
            enough=need_no_more,
        )
        if not ran:
            return


def _fits(scenario: Scenario, comparison: Comparison) -> None:
    """Refuse what cannot be decided within its budget.

    Raises:
        InvalidInputError: there is nothing to compare.
        UsageError: not even the rounds that a winner takes would fit.
    """
    arms = len(comparison.arms) - any(arm.role == "aa" for arm in comparison.arms)
    if arms < 2:
        raise InvalidInputError(f"{scenario.name}: a sweep compares two configurations at least; give it a grid.")
    # Two processes of the baseline and of some configuration; all configurations once.
    # Large differences show in a turn or two of each.
    trial_s = expected_s(comparison, min(comparison.window_s, 2 * TURN_S), warm=True) / len(comparison.arms)
    least_s = (arms + 3) * trial_s + MIN_PROCESSES * IMPORT_S + REPORT_S + _PARITY_S
    if least_s > scenario.budget_s:
        raise UsageError(
            f"--budget {scenario.budget_s:g}: a sweep of {scenario.name!r} with {arms} configurations takes "
            f"{least_s:.0f} s at least, with {trial_s:.1f} s for a trial; give more seconds, fewer configurations, or "
            "a shorter window_s."
        )
