"""The fixes of a diagnosis: proposed from what was measured, verified in the time that is left, and written down.

What running a script again takes: that it may be, and what its trials know of it. Pure.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from xttsbench import __version__
from xttsbench.diagnosis import Diagnosis
from xttsbench.evidence import Evidence
from xttsbench.execution.run_directory import read_record, write_json
from xttsbench.files import atomic_write
from xttsbench.fixes.dataset import DATASET
from xttsbench.fixes.predictions import predict_speedup
from xttsbench.fixes.proposal import Proposal
from xttsbench.fixes.proposals import proposals
from xttsbench.fixes.results import results
from xttsbench.fixes.rounds import PATCHED, slug
from xttsbench.fixes.step import STEP_GRAPH, STEP_NO_XLA, STEP_TRACED_ONCE, retraced
from xttsbench.fixes.verified import Verified, verified
from xttsbench.owners import owner
from xttsbench.planning import Job
from xttsbench.records.base import Location, name_and_place
from xttsbench.records.code import OwnBatches, ScriptAgain, ScriptRun
from xttsbench.records.fix import FixResult, FixSet, Optimized, Patch
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.plan import RunPlan
from xttsbench.records.trial import Trace, changed_file
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Session
from xttsbench.workflows.optimize.trials import SOURCES, copies, verify
from xttsbench.workflows.optimize.verification import Verification

PATCH: Final = "patch.json"
DIFF: Final = "patch.diff"
_FEWEST_S: Final = 30.0  # less than this is not worth beginning with


def verify_fixes(run: Recorded, job: Job, session: Session, evidence: Evidence, *, until_s: float) -> None:
    """Verify what the trials so far suggest, and write the patch of what is proposed in the end.

    The session has the trials of the isolation experiments, whose job and evidence are given, and gets those of fixes.
    Everything has to be over after ``until_s`` of its seconds.
    """
    if until_s - session.spent_s < _FEWEST_S or not session.trials or session.trials[0].status != "ok":
        return
    plan, directory, script = run.plan, run.directory, session.trials[0].script
    evidence = replace(evidence, asked=plan.tries)
    place = next((trial.step_place for trial in session.trials if trial.step_place is not None), None)
    if script is not None:
        place = step_place(script, session.trials[0].spec.target)

    def patched(fixes: str) -> Patch | None:
        own = script.own_batches if script is not None else None
        return patch_of(
            *(FixSet.parse(fixes), evidence.pipeline, directory),
            step_place=place,
            step_traces=evidence.traces,
            own_batches=own,
        )

    if script is not None:
        traced = retraced(evidence.traces, name_and_place(script.step_function)[0])
        mode_fix = STEP_NO_XLA if evidence.given_mode == "xla" else STEP_GRAPH
        step_fix = (mode_fix if traced is None else STEP_TRACED_ONCE).name
        step = patched(step_fix) if place is not None else None
        no_edit = step.unpatched.get(step_fix) if step is not None else None
        around = patched(DATASET.name) if script.own_batches is not None else None
        no_dataset = around.unpatched.get(DATASET.name) if around is not None else None
        known = again(script, directory, no_edit, no_dataset, anything=plan.repeat)
        if known is None or why_not_again(plan, script) is not None:
            return
        job = replace(job, again=known)
        session.runs_scripts_again(script.imports, IN_GRAPH if known.in_graph else None, said_again(script))

    @cache
    def step_files(fixes: str) -> Mapping[str, str]:
        """Changed copies of the files of a script's own step; empty for a Keras model, changed in its process."""
        parts = FixSet.parse(fixes)
        in_source = FixSet(tuple(one for one in parts if one.kind == DATASET.name or (place and one.is_of_step)))
        if script is None or not in_source:
            return {}
        patch = patched(str(in_source))
        return {} if patch is None or patch.unpatched else copies(directory, patch, slug(str(in_source)))

    patch = verify(
        Verification(
            job=job,
            accelerator=plan.accelerator,
            evidence=evidence,
            proposed=proposals(evidence),
            directory=directory,
            session=session,
            until_s=until_s,
            patch=patched,
            step_files=step_files,
        )
    )
    if plan.redact:  # copies of the user's files, which nothing may be masked in
        shutil.rmtree(directory / SOURCES, ignore_errors=True)
    last = session.trials[-1].spec.model_copy(update={"trial_id": f"{len(session.trials):03d}-patch"})
    if patch is None or changed_file(session.trials) is not None or session.source_changed(last):
        return
    if plan.assume_pure and patch.diff:
        told = f"Assumed to be pure (--assume-pure): {', '.join(plan.assume_pure)}\n"
        patch = patch.model_copy(update={"assumed": plan.assume_pure, "diff": told + patch.diff})
    patch = run.redaction.kept(patch)
    write_json(directory / PATCH, patch.model_dump(mode="json"))
    if patch.diff:
        atomic_write(directory / DIFF, patch.diff.encode())


def read_patch(directory: Path) -> Patch | None:
    """The patch that a run wrote, or ``None``.

    Raises:
        JournalError: the file is there and is none.
    """
    path = directory / PATCH
    return read_record(path, Patch, "the patch of a run") if path.exists() else None


def fix_section(
    run: Recorded, diagnosis: Diagnosis, patch: Patch | None
) -> tuple[tuple[FixResult, ...], Optimized | None]:
    """The report's results of fixes, and what is applied again later. Pure."""
    plan = run.plan
    if plan.kind not in ("diagnose", "optimize"):
        return (), None
    evidence = replace(diagnosis.evidence, asked=plan.tries)
    proposed = proposals(evidence)
    found = verified(run.trials, plan.accelerator)
    why = plan.why_unverified
    if plan.verified and (script := evidence.script) is not None:
        why = why_not_again(plan, script)
    rows = results(
        proposed,
        found,
        _measured(patch, found),
        predicted=lambda fixes: predict_speedup(evidence, fixes),
        why_stopped=why,
    )
    return rows, _optimized(run, proposed, found, rows)


def _measured(patch: Patch | None, found: Verified) -> Patch | None:
    """The patch with what running it showed."""
    if patch is None:
        return None
    data, speed = (found.semantics.get(PATCHED), found.measured.get(PATCHED)) if patch.ran else (None, None)
    ratio = speed.evidence.ratio if speed and speed.evidence else None
    why_not = None
    if patch.ran and data is None and found.chosen is not None:  # its trials ran what the patch is
        data, speed = found.semantics.get(found.chosen), found.measured.get(found.chosen)
        ratio = speed.evidence.ratio if speed and speed.evidence else None
    if data is None:
        by_hand = "; ".join(f"{fix}: {why}" for fix, why in patch.unpatched.items())
        why_not = by_hand or patch.why_not or "there was no time to run it"
    elif data.equivalent is not True:
        why_not = data.sentence
    elif ratio is None:
        why_not = (speed.ended if speed else None) or "there was no time to measure it"
    return patch.model_copy(
        update={"equivalent": data.equivalent if data else None, "verified_speedup": ratio, "why_not": why_not}
    )


def _optimized(
    run: Recorded, proposed: Sequence[Proposal], found: Verified, rows: Sequence[FixResult]
) -> Optimized | None:
    if (
        changed_file(run.trials) is not None
        or not any(one.worth for one in proposed)
        or (not found.semantics and found.unreadable is None)
    ):
        return None  # nothing was to be verified, or nothing was
    chosen = next((row for row in rows if row.chosen), None)
    plan, fixes = run.plan, chosen.fixes if chosen else ()
    return Optimized(
        run=str(run.directory),
        target=plan.target,
        kwargs=plan.kwargs,
        fixes=fixes,
        identity=found.identity,
        speedup=chosen.verified_speedup if chosen else None,
        equivalent=chosen.semantics.equivalent if chosen and chosen.semantics else None,
        assume_pure=plan.assume_pure,
        data=chosen.semantics.sentence if chosen and chosen.semantics else "the original",
        proven=chosen is not None,
        blocks=chosen.blocks if chosen else 0,
        accelerator=plan.accelerator.label,
        fingerprint=str(run.environment.get("fingerprint") or ""),
        xttsbench_version=__version__,
    )


def patch_of(
    fixes: FixSet,
    pipeline: Pipeline | None,
    directory: Path,
    *,
    step_place: Location | None = None,
    step_traces: Sequence[Trace] = (),
    own_batches: OwnBatches | None = None,
) -> Patch | None:
    """The patch of some fixes; ``None`` where no pipeline was read, and the script's loop takes some dataset.

    The user's step is defined at ``step_place``; its traces are
    those of tf.functions as the target ran.
    """
    if pipeline is None and own_batches is None:
        return None
    from xttsbench.fixes.patch import propose

    patch = propose(
        fixes,
        pipeline or Pipeline(),
        lambda file: Path(file).read_bytes().decode(),  # line ends as they are
        # Neither installed, nor Python's, nor ours but for the bundled workload, which is a target like any other.
        own=lambda file: owner(str(Path(file).resolve())) in ("user", "workload"),
        step_place=step_place,
        step_traces=step_traces,
        own_batches=own_batches,
    )
    return patch.model_copy(update={"diff": _from_here(patch.diff, patch.files)})


def _from_here(diff: str, files: Iterable[str]) -> str:
    """The diff with names from the working directory on, where its files lie under it, so that ``patch -p1`` does."""
    here = Path.cwd().resolve()
    for file in files:
        path = Path(file).resolve()
        if path.is_relative_to(here):
            whole, short = file.lstrip("/"), path.relative_to(here).as_posix()
            diff = diff.replace(f"--- a/{whole}", f"--- a/{short}").replace(f"+++ b/{whole}", f"+++ b/{short}")
    return diff


_NAMED: Final = 3
IN_GRAPH: Final = "the loop of the script lies within one tf.function, where nothing can be held up"
_REPEAT: Final = "Say --repeat if it may do so again."


def why_not_again(plan: RunPlan, script: ScriptRun) -> str | None:
    """Why fixes of a script are not verified, in one sentence; ``None`` where it may run again.

    What a script writes is no reason where it can be redirected. What it tells other machines always is one, and so
    is a script that was only to be diagnosed, unless ``--repeat`` was said.
    """
    if script.data is None and script.own_batches is None:
        return "the script fed its training loop from no tf.data.Dataset that could be seen"
    if plan.repeat:
        return None
    if plan.kind not in ("optimize", "prove"):
        return "a script is run once; say --repeat if it may run again, or use xttsbench optimize"
    if script.contacted:
        return f"the script connected to {_listed(script.contacted)}, which another run would do again. {_REPEAT}"
    if script.wrote and script.not_redirected is not None:
        why = script.not_redirected
        return f"the script wrote {_listed(script.wrote)}, and it cannot be kept from that here: {why}. {_REPEAT}"
    if script.uncovered:
        return f"the script wrote {_listed(script.uncovered)}, which cannot be kept in memory. {_REPEAT}"
    return None


def again(
    script: ScriptRun,
    directory: Path,
    no_edit: str | None = None,
    no_dataset: str | None = None,
    *,
    anything: bool = False,
) -> ScriptAgain | None:
    """Facts about a script for trials of its fixes, with why its step, or its loop, cannot be edited."""
    own = script.own_batches
    if script.data is None and own is None:
        return None
    return ScriptAgain(
        data=script.data,
        own=own.number if own is not None else None,
        trains=script.trains,
        in_graph=script.in_one_call,
        step=None if _is_keras(script) else script.step_function,
        no_edit=no_edit,
        no_dataset=no_dataset,
        redirected=script.not_redirected is None,
        directory=str(directory.absolute()),
        anything=anything,
    )


def said_again(script: ScriptRun) -> str:
    """The sentence by which the user learns that the script runs several times, and what becomes of its writes."""
    if script.not_redirected is None:
        writes = "what it writes meanwhile goes to memory and is gone with it"
    elif script.wrote:
        writes = f"it writes {_listed(script.wrote)} again each time"
    else:
        writes = "it wrote nothing"
    return f"the script runs again, as it is and with each fix; {writes}"


def said_writes(script: ScriptRun) -> str | None:
    """The sentence by which the user learns what became of the writes of a script's first run; ``None`` for none."""
    if script.uncovered:
        return f"the script wrote {_listed(script.uncovered)} for good: it could not be kept in memory"
    if script.in_memory:
        files = "1 file" if script.in_memory == 1 else f"{script.in_memory:,} files"
        return (
            f"the script's writes were kept in memory and are gone: {files} ({_listed(script.wrote)}); "
            "--keep-writes keeps them"
        )
    if script.wrote and script.not_redirected is not None:
        why = script.not_redirected
        return f"the script wrote {_listed(script.wrote)} for good: writes cannot be kept in memory here ({why})"
    return None


def step_place(script: ScriptRun, file: str) -> Location | None:
    """Definition of the function that takes the batch; ``None`` where a Keras model is trained.

    Of a step that is written out in the loop it is the script's ``file``, without a line.
    """
    _, place = name_and_place(script.step_function)
    if _is_keras(script):
        return None
    return place if place.file else Location(file=file)


def _is_keras(script: ScriptRun) -> bool:
    return "fit" in script.iterations


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest
