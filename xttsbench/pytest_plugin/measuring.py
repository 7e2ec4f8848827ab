"""A target measured for a test, in fresh processes of its own, diagnosed if asked; and what the test demands, judged.

The run's directory is that of ``xttsbench run``, but for the pages and plots: ``xttsbench report DIR`` draws them. The
test's process never imports TensorFlow.

The process is the unit of replication, so every interval of a demand is over processes, one number for each, and on the
log scale, with what processes differ by known beforehand (:mod:`xttsbench.analysis.evidence`); against a saved run the
noise between sessions is added (:mod:`xttsbench.comparison.effects`). A gate fails only where the whole interval is
beyond its limit, and passes only where none of it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import xttsbench
from xttsbench.analysis.evidence import LEAST_SCALE
from xttsbench.comparison.effects import MIN_PROCESSES, weigh
from xttsbench.comparison.figures import figures_of
from xttsbench.comparison.runs import GroupRuns, VariantRuns, collect
from xttsbench.errors import TargetError, UsageError, XttsbenchError
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.child import now_utc
from xttsbench.execution.helper import Helper
from xttsbench.execution.run_directory import write_json
from xttsbench.records.base import Estimate
from xttsbench.records.plan import Comparison, PlannedVariant, RunPlan
from xttsbench.records.redaction import Redaction
from xttsbench.records.report import Report
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.diagnose import VERDICT_S, diagnose
from xttsbench.workflows.diagnose import Request as Diagnosis
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.session import Session
from xttsbench.workflows.reports.scenario import assemble_run
from xttsbench.workflows.runs import DONE, INCONCLUSIVE, INTERRUPTED, INVALID, judge_run, open_run

_STALL_S: Final = 60.0
PER_PROCESS: Final = ("throughput_per_s", "step_time_s", "utilization")


@dataclass(frozen=True)
class Asked:
    """Measurement that a test asks for; ``name`` and ``command`` are for the run's own files.

    Raises:
        UsageError: a number is not above 0, or an argument cannot be told to a fresh process.
    """

    name: str
    command: str
    target: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    accelerator: str = "real"
    steps: int = 240
    blocks: int = 3
    window_s: float = 10.0
    budget_s: float = 120.0
    diagnose: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "blocks", "window_s", "budget_s"):
            if (value := getattr(self, name)) <= 0:
                raise UsageError(f"xttsbench_benchmark: {name} must be above 0, got {value!r}.")
        try:
            json.dumps(dict(self.kwargs), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"xttsbench_benchmark: kwargs go to a fresh process as JSON, and {dict(self.kwargs)!r} cannot "
                f"({error}); pass numbers, text, lists and dictionaries (a path as str)."
            ) from error


@dataclass(frozen=True)
class Measured:
    """Result of a measurement for a test.

    Attributes:
        report: of the measurement.
        diagnosis: where one was asked for.
        directory: of the run; the diagnosis has one of its own beside it.
        step_times_s: each steady step, wall time, the processes one after another.
        per_process: names of :data:`PER_PROCESS` -> one number for each process, empty where it was not measured.
    """

    report: Report
    diagnosis: Report | None
    directory: Path
    step_times_s: tuple[float, ...]
    per_process: Mapping[str, tuple[float, ...]]


def measure(asked: Asked, directory: Path, helper: Helper | None = None) -> Measured:
    """Measure a target, each block in a fresh process.

    The directory is empty or does not exist. A helper is for the first block, where nothing is to be learnt from the
    times; it stays the caller's.

    Raises:
        UsageError, InvalidInputError: the target or an option is wrong.
        XttsbenchError: nothing was measured, or a process ended before it had measured.
        KeyboardInterrupt: it was interrupted.
    """
    began = time.monotonic()
    diagnosis = _diagnosed(asked, directory) if asked.diagnose else None
    left_s = max(asked.budget_s - (time.monotonic() - began), 1.0)
    plan = _plan(asked, left_s)
    block = None if helper is None else 0
    with open_run(plan, directory, asked.name) as run:
        comparison = run.comparison
        with Session(directory, helper=helper, block=block, budget_s=left_s, redaction=run.redaction) as session:
            trials = compare_arms(comparison, session, budget_s=left_s, seed=plan.seed)
        report = run.redaction.kept(assemble_run(replace(run, trials=trials).kept))
        write_json(directory / "report.json", report.model_dump(mode="json"))
    if not trials:
        raise UsageError(
            f"Target {asked.target!r}: budget_s={asked.budget_s:g} is too short to start a process and measure in it; "
            "give more, 30 at least."
        )
    code, message = judge_run(report, trials, comparison)
    _check(code, run.redaction.kept(message))
    (group,) = collect(comparison, trials)
    if group.ended is not None:
        raise XttsbenchError(f"Target {asked.target!r}: a process ended before it had measured ({group.ended}).")
    undisturbed = weigh(group, comparison.margin).group
    if len(undisturbed.baseline.steps) >= MIN_PROCESSES:  # else too few would be left for any gate
        group = undisturbed
    steps = [steps.wall_s for steps in group.baseline.steps.values()]
    return Measured(report, diagnosis, directory, tuple(np.concatenate(steps).tolist()), _per_process(group))


def _plan(asked: Asked, budget_s: float) -> RunPlan:
    parse_target(asked.target)
    accelerator, kwargs = parse_accelerator(asked.accelerator), dict(asked.kwargs)
    comparison = Comparison(
        name=asked.name,
        description="a test of pytest",
        target=asked.target,
        arms=(PlannedVariant(id="target", role="baseline", kwargs=kwargs),),
        accelerators=(accelerator,),
        blocks=asked.blocks,
        steps=asked.steps,
        window_s=asked.window_s,
        trial_s=budget_s,
        stall_s=min(_STALL_S, budget_s),
    )
    return RunPlan(
        kind="run",
        command=asked.command,
        created_utc=now_utc(),
        target=asked.target,
        kwargs=kwargs,
        accelerator=accelerator,
        steps=asked.steps,
        budget_s=budget_s,
        comparison=comparison,
    )


def _diagnosed(asked: Asked, directory: Path) -> Report:
    """The diagnosis of the target as it is given, in a directory beside that of the run."""
    outcome = diagnose(
        Diagnosis(
            target=asked.target,
            kwargs=asked.kwargs,
            accelerator=asked.accelerator,
            budget_s=min(VERDICT_S, asked.budget_s / 2),
            out=directory.with_name(f"{directory.name}-diagnosis"),
            command=asked.command,
        )
    )
    _check(outcome.exit_code, outcome.message)
    return outcome.report


def _check(code: int, message: str | None) -> None:
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (DONE, INCONCLUSIVE):
        raise (TargetError if code == INVALID else XttsbenchError)(message or f"the run ended with code {code}")


def _per_process(group: GroupRuns) -> dict[str, tuple[float, ...]]:
    """The figures of each process alone, which intervals over processes are made from."""
    runs, found = group.baseline, dict[str, list[float]]((name, []) for name in PER_PROCESS)
    for block, trial in sorted(runs.trials.items()):
        alone = VariantRuns(runs.arm, {block: trial}, {block: runs.steps[block]}, None)
        figures = figures_of(alone, GroupRuns(group.accelerator, (alone,)), LEAST_SCALE)
        for name, values in found.items():
            if isinstance(figures[name], Estimate):
                values.append(figures[name].estimate)
    return {name: tuple(values) for name, values in found.items()}


_NOT_ASKED: Final = "the target was measured and not diagnosed; ask with diagnose=True"
_OF_ARM: Final = ("throughput_per_s", "input_wait_fraction", "utilization", "utilization_of", "cv", "steps")
_OF_VERDICT: Final = ("step_time_s", "step_time_median_s", "step_time_p95_s")


def extra_info(asked: Asked, measured: Measured) -> dict[str, Any]:
    """The record of a measurement; its intervals are the report's, over processes and blocks of steps.

    ``unmeasured`` has a reason for each ``None``. ``per_process`` is what a later run is compared with.
    """
    report, arm = measured.report, measured.report.arms[0]
    told = measured.diagnosis or report
    found: dict[str, Any] = {
        "xttsbench_version": xttsbench.__version__,
        "run": str(measured.directory),
        "target": asked.target,
        "kwargs": Redaction().kept(dict(asked.kwargs), "kwargs"),
        "accelerator": {"kind": report.accelerator["kind"], "label": report.accelerator["label"]},
        "fingerprint": report.environment.get("fingerprint"),
        "verdict": {
            "bottleneck": told.verdict.bottleneck,
            "confidence": told.verdict.confidence,
            "summary": told.verdict.summary,
            "diagnosed": measured.diagnosis is not None,
        },
        **{name: _plain(getattr(report.verdict, name)) for name in _OF_VERDICT},
        **{name: _plain(getattr(arm, name)) for name in _OF_ARM},
        "processes": arm.blocks,
        "warm_up_steps_cut": report.warm_up.steps_cut,
        "steady_state": report.warm_up.steady_state,
        "per_process": {name: list(values) or None for name, values in measured.per_process.items()},
        "findings": None,
        "gates": [],
        "warnings": list(report.warnings),
    }
    reasons = {name: report.unmeasured.get(f"verdict.{name}") for name in _OF_VERDICT}
    reasons |= {name: report.unmeasured.get(f"arms.0.{name}") for name in _OF_ARM}
    reasons["utilization_of"] = reasons["utilization"]
    if measured.diagnosis is None:
        reasons["findings"] = _NOT_ASKED
    else:
        found["findings"] = [
            finding.model_dump(include={"rule", "severity", "limiting", "title", "remedy"})
            for finding in measured.diagnosis.findings
        ]
        found["warnings"] += measured.diagnosis.warnings
    found["utilization_of"] = found["utilization_of"] or None
    found["unmeasured"] = {name: reasons.get(name) or "not known" for name, value in found.items() if value is None}
    return found


def _plain(value: object) -> object:
    return value.model_dump() if isinstance(value, Estimate) else value
