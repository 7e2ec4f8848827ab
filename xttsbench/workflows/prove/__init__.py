"""``xttsbench prove OLD NEW``: the same data proved or the first difference shown, then both timed in turns.

Each version is read in processes of its own, the old one three times, as the guard of the fixes reads an original; then
both take turns. Their results are told by :mod:`xttsbench.workflows.reports.prove`, from the trials alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from xttsbench.comparison.effects import MIN_PROCESSES, settled_arms
from xttsbench.comparison.sweep import LEAST_ROUNDS
from xttsbench.errors import InvalidInputError, NotProvedError, UsageError
from xttsbench.execution.limits import Limits
from xttsbench.fixes.rounds import ORIGINAL, Size, comparison, guard_trial
from xttsbench.planning import Job, job_of
from xttsbench.records.plan import Comparison, PlannedVariant, RunPlan
from xttsbench.records.report import Kind
from xttsbench.records.trial import TrialRecord, TrialSpec, interrupted
from xttsbench.samedata.edit import Edit
from xttsbench.targets.spec import parse_target
from xttsbench.workflows import diagnose
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Progress, Session, Silent
from xttsbench.workflows.optimize import IN_GRAPH, again, said_again, said_writes, why_not_again
from xttsbench.workflows.prove.revisions import require_own, version
from xttsbench.workflows.reports.prove import NEW, edit_of
from xttsbench.workflows.runs import REPORT_S, Outcome, finish, open_run

MARGIN: Final = 0.10
_READ_SHARE: Final = 0.1  # of the budget, for what one trial reads: there are four
_SCRIPT_SHARE: Final = 0.05
_SHOW_S: Final = 30.0
_PROCESSES: Final = 6  # of each version, at most


@dataclass(frozen=True)
class Request(diagnose.Request):
    """Options of the user; ``target`` is the old version.

    Attributes:
        new: the new version; either has ``@REVISION`` where it is that of another one.
        margin: share of the old version's speed that the new one may lose.
        timed: time both, too.
    """

    new: str = ""
    margin: float = MARGIN
    timed: bool = True
    kind: Kind = "prove"


def prove(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Prove an edit, and write its run's directory.

    Raises:
        UsageError, InvalidInputError: the request is wrong, or a version cannot be read; nothing was proved.
        HelperError: TensorFlow cannot be started here.
    """
    began = time.monotonic()
    with ExitStack() as trees:
        sides = [trees.enter_context(version(text)) for text in (request.target, request.new)]
        scripts = {parse_target(target, scripts=True).kind == "script" for target, _ in sides}
        if len(scripts) > 1:
            raise UsageError(f"Two scripts or two callables are compared; got {request.target} and {request.new}.")
        plan = diagnose.plan_of(request)
        job = job_of(plan, max(_SCRIPT_SHARE * plan.budget_s, 2.0), script=True in scripts)
        jobs = {
            name: replace(job, target=target, checkout=checkout)
            for name, (target, checkout) in zip((ORIGINAL, NEW), sides, strict=True)
        }
        plan = plan.model_copy(update={"comparison": _compared(plan, jobs, request.margin)})
        with open_run(plan, request.out, "prove", began=began) as run:
            return finish(replace(run, trials=_measured(run, request, jobs, progress or Silent())))


def _compared(plan: RunPlan, jobs: Mapping[str, Job], margin: float) -> Comparison:
    """Both versions as configurations of a comparison, the old one twice."""
    old, job = jobs[ORIGINAL], jobs[NEW]
    new = PlannedVariant(id=NEW, role="candidate", kwargs=job.kwargs, target=job.target, script=job.again)
    sides, trial_s = (old, plan.accelerator, "old and new", [new]), max(plan.budget_s / 4, 30.0)
    planned = comparison(*sides, window_s=2.0, trial_s=trial_s, twice=True)
    checkouts = {NEW: job.checkout}
    arms = [arm.model_copy(update={"checkout": checkouts.get(arm.id, old.checkout)}) for arm in planned.arms]
    return planned.model_copy(update={"arms": tuple(arms), "margin": margin, "blocks": _PROCESSES})


def _measured(run: Recorded, request: Request, jobs: Mapping[str, Job], told: Progress) -> Sequence[TrialRecord]:
    plan, script = run.plan, jobs[NEW].script
    with run.session(
        told, print_to_stderr=request.print_to_stderr, scripts=script, keeps_output=not request.show_output
    ) as session:
        if script:
            jobs = {name: _known(run, job, session, told) for name, job in jobs.items()}
        _read(plan, jobs, session)
        edit = edit_of(plan, session.trials)
        # The values of batches that come while a loop trains are gone.
        kept = all(job.again is None or job.again.own is None for job in jobs.values())
        if edit is not None and edit.new is not None and kept and not plan.redact:
            _show(run, edit, jobs, session)
        if plan.timed and edit is not None and edit.outcome != "differs":
            _time(_compared(plan, jobs, request.margin), plan, session)
        return session.trials


def _known(run: Recorded, job: Job, session: Session, told: Progress) -> Job:
    """Run a script once, watched, so that its training loop's dataset is known in what comes."""
    plan, number = run.plan, len(session.trials)
    private = None if plan.keep_writes else str(run.directory.absolute())
    spec = job.spec(number, "script", block=-2 + number).model_copy(update={"private": private, "whole": True})
    record = session.run(spec, Limits(plan.budget_s / 3, plan.budget_s / 3, most_s=plan.budget_s / 2))
    script = record.script
    known = again(script, run.directory, anything=plan.repeat) if script and record.status == "ok" else None
    given = plan.new if number else plan.target
    if script is not None and known is None and record.status == "ok":
        raise NotProvedError(
            f"Not proved: no loop of {given} was seen to train on batches, so that none can be compared."
        )
    why = why_not_again(plan, script) if script and known else record.cause or record.status
    if script is None or known is None or why is not None:
        raise InvalidInputError(f"{given} cannot be run again and again: {why}.")
    if (said := said_writes(script)) is not None:
        told.status(said)
    if number:
        session.runs_scripts_again(script.imports, IN_GRAPH if known.in_graph else None, said_again(script))
    return replace(job, again=known)


def _read(plan: RunPlan, jobs: Mapping[str, Job], session: Session) -> None:
    """Read the old version, the new one with the hazards of what it does more, and the old one twice more."""
    window_s = max(_READ_SHARE * plan.budget_s, 4.0)
    limits = Limits(3 * window_s + plan.budget_s / 5, max(window_s, plan.budget_s / 5))
    had: tuple[str, ...] | None = None

    def spec_of(arm: str, again: int = 0) -> TrialSpec:
        number = len(session.trials) + max(again - 1, 0)
        spec = guard_trial(jobs[arm], number, Size(None, 10**9), block=0, arm=arm, again=again)
        return spec.model_copy(update={"whole": True, "window_s": window_s, "had": had if arm == NEW else None})

    for arm, given in ((ORIGINAL, plan.target), (NEW, plan.new or "")):
        record = session.run(spec_of(arm), limits)
        if record.status == "interrupted":
            return
        if record.elements is None:
            raise InvalidInputError(f"{given} cannot be read: {record.cause or record.status}")
        require_own(record.files, jobs[arm].checkout, given)
        had = record.elements.traits
    held = max((max(one.readings.host.rss_bytes, default=0) for one in session.trials if one.readings.host), default=0)
    room = session.processors > 1 and 4 * held < session.available_bytes
    session.run_all([spec_of(ORIGINAL, number) for number in (1, 2)], limits, most=1 + room)


def _show(run: Recorded, edit: Edit, jobs: Mapping[str, Job], session: Session) -> None:
    """Read the values at the first difference, of the old version and then of the new one."""
    file = run.directory / "values.npz"
    for arm, place in ((ORIGINAL, edit.old), (NEW, edit.new)):
        spec = guard_trial(jobs[arm], len(session.trials), Size(None, 1), block=0, arm=arm)
        changed = {"whole": True, "shown": place, "shown_file": str(file.absolute()), "group": "values"}
        session.run(spec.model_copy(update=changed | {"trial_id": f"{spec.trial_id}-values"}), Limits(_SHOW_S, _SHOW_S))
    file.unlink(missing_ok=True)


def _time(planned: Comparison, plan: RunPlan, session: Session) -> None:
    """Time both in turns, in one pair of processes after another, until the speed is decided or time is over."""
    for block in range(1, _PROCESSES + 1):
        left_s = plan.budget_s - REPORT_S - session.spent_s
        if settled_arms(planned, session.trials, MIN_PROCESSES) or interrupted(session.trials) or left_s <= 0:
            return
        compare_arms(
            *(planned, session), first_block=block, rounds=LEAST_ROUNDS, budget_s=left_s, parity=False, seed=plan.seed
        )
