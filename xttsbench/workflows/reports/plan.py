"""The report of a plan: from a diagnosis and the measured costs of the service to what more machines would give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from xttsbench.diagnosis import build_diagnosis
from xttsbench.errors import JournalError
from xttsbench.records.report import Report
from xttsbench.records.scale import (
    Scale,
    ScaleRequest,
)
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting import units
from xttsbench.throughput.pace import STEP
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.reports.diagnose import assemble
from xttsbench.workflows.reports.planner import WORKERS, Planner

_TERMS: Final = 3  # of a fit of costs, which needs more stretches than that


def assembled_plan(run: Recorded) -> Report:
    """Everything that the run's files say, as the report record.

    Raises:
        JournalError: the run is no plan.
    """
    if run.plan.scale is None:
        raise JournalError(f"{run.directory}: the plan names no run that it is made from; run the command again.")
    base = assemble(replace(run, trials=[one for one in run.trials if one.spec.kind not in ("service", "workers")]))
    empty = {"findings": (), "arms": (), "predictions": (), "fixes": (), "ladder": ()}
    gone = ("pipeline", "step", "optimized", "profile")
    kept = {path: why for path, why in base.unmeasured.items() if path.split(".")[0] not in (*empty, *gone, "trials")}
    source = f"the run that the plan is made from has it: {run.plan.scale.run}"
    changed: dict[str, Any] = {**empty, **dict.fromkeys(gone), "unmeasured": kept | dict.fromkeys(gone, source)}
    scale = _scale(run, run.plan.scale)
    if isinstance(scale, str):
        changed["unmeasured"] |= {"scale": scale}
        said: tuple[str, ...] = (f"Nothing could be planned: {scale}.",)
    else:
        changed["scale"] = scale
        changed["unmeasured"] |= dict(_unmeasured(scale, run.trials))
        said = tuple(_sentences(scale, run.trials))
    changed |= {"comparison": said, "verdict": base.verdict.model_copy(update={"summary": " ".join(said)})}
    return base.model_copy(update=changed)


def _scale(run: Recorded, asked: ScaleRequest) -> Scale | str:
    """The plan, or why there is none, as a part of a sentence."""
    diagnosis = build_diagnosis(run.trials, run.environment, seed=run.plan.seed)
    measured = next((trial.service for trial in reversed(run.trials) if trial.service), ())
    costs = {way: [one for one in measured if one.splits or one.compressed == way] for way in (False, True)}
    failed = next((trial.cause for trial in run.trials if trial.spec.kind == "service" and trial.cause), None)
    if not diagnosis.figures or "input_alone_s" not in diagnosis.figures:
        return diagnosis.why_undecided or "its input alone was not measured"
    if any(sum(not one.splits for one in known) <= _TERMS for known in costs.values()):
        return f"the costs of the service were not measured ({failed or 'the trial did not end'})"
    evidence = diagnosis.evidence
    if evidence.batches is None or not evidence.batches.cached:
        return "the size of a batch is not known"
    proof = next((trial for trial in reversed(run.trials) if trial.spec.kind == "workers"), None)
    return Planner(diagnosis, costs, asked, proof, np.random.default_rng(run.plan.seed)).scale()


def _unmeasured(scale: Scale, trials: Sequence[TrialRecord]) -> Iterator[tuple[str, str]]:
    if scale.proof is None:
        yield "scale.proof", _why_no_proof(trials) or "was not asked for: --measure 3"
    elif scale.proof.needed is None:
        known = scale.needs["step_s"].estimate > 0
        yield "scale.proof.needed", "more workers gave too little more to tell" if known else "the target has no step"
    for name in ("cells", "choices"):
        for index, cell in enumerate(getattr(scale, name)):
            if cell.gbit_s is None:
                yield f"scale.{name}.{index}.gbit_s", "without workers nothing is sent"
            if name == "choices" and cell.price_per_hour is None:
                yield f"scale.{name}.{index}.price_per_hour", "no price is known: --prices names a file of them"


def _why_no_proof(trials: Sequence[TrialRecord]) -> str:
    """Reason why workers that were asked for gave nothing; empty where none were."""
    asked = next((trial for trial in reversed(trials) if trial.spec.kind == "workers"), None)
    return "" if asked is None else (asked.cause or "too few batches came").rstrip(".")


def _sentences(scale: Scale, trials: Sequence[TrialRecord]) -> Iterator[str]:
    own = [choice for choice in scale.choices if choice.accelerator == 1]
    knee = scale.usual
    for choice in own:
        who = f"{_many(choice.workers)} ({choice.machine})" if choice.workers else "This machine alone"
        keeps = "keep" if choice.workers > 1 else "keeps"
        price = f", for {choice.price_per_hour:.2f} {scale.currency} an hour" if choice.price_per_hour else ""
        yield f"{who} {keeps} the accelerator busy for {units.percent_interval(choice.utilization)} of the time{price}."
    if not own and knee.utilization.estimate < 1:
        why = "" if knee.limited_by == STEP else f": the pace is set by the {knee.limited_by}"
        yield f"No layout of up to {WORKERS[-1]} workers is sure to keep the accelerator busy for 90 %{why}."
    low, high = math.ceil(knee.workers.low), math.ceil(knee.workers.high)
    range_ = "" if low == high else f" ({low:,} to {high:,})"
    count = f"{_many(math.ceil(knee.workers.estimate))}{range_}"
    yield (
        f"At {knee.gbit_s:g} Gbit/s more than {count} of {knee.cores:g} cores "
        f"give no more than 5 %: then the pace is set by the {knee.limited_by}."
    )
    if why := _why_no_proof(trials) if scale.proof is None else "":
        yield f"The input was not run on workers of this machine: {why}."
    if scale.proof is not None and scale.proof.needed is not None:
        most, needed = scale.proof.rates[-1], scale.proof.needed
        yield (
            f"Measured here, {_many(most.workers)} of {scale.proof.cores:g} cores gave "
            f"{units.rate_interval(most.measured_per_s)}; {units.count_range(needed)} would keep up with the step."
        )


def _many(workers: int) -> str:
    return "1 input worker" if workers == 1 else f"{workers:,} input workers"
