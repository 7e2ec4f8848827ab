"""What the tests of the rules share: ops, what was predicted and measured of fixes, and a rule held to the evidence."""

from __future__ import annotations

from xttsbench.evidence import Compared, Evidence
from xttsbench.findings.rule import Rule
from xttsbench.records.pipeline import PipelineOp, Prediction
from xttsbench.records.report import Finding
from xttsbench.records.trial import StackLine, Trace


def op(name: str, kind: str, *inputs: str, **fields) -> PipelineOp:
    return PipelineOp(name=name, op=kind, inputs=inputs, **fields)


def only(rule: Rule, evidence: Evidence) -> Finding:
    (found,) = rule(evidence)
    return found


def silent(rule: Rule, evidence: Evidence) -> bool:
    return not list(rule(evidence))


def predicted(name: str, speedup: float | None = 2.0, why_not: str | None = None) -> tuple[Prediction, ...]:
    rate, fixes = None if speedup is None else 10.0 * speedup, tuple(name.split(" + "))
    return (Prediction(name=name, fixes=fixes, batches_per_s=rate, speedup=speedup, why_not=why_not),)


def fixed(build, name: str, speedup: float | None = 2.5, spread: float = 0.02) -> dict[str, Compared]:
    estimate = None if speedup is None else build.estimate(speedup, spread)
    return {name: Compared(name, "ok" if speedup else "raised", speedup=estimate, processes=1)}


def line(
    kind: str, number: int = 7, *, share: float = 0.5, steps_share: float = 1.0, file: str = "train.py"
) -> StackLine:
    return StackLine(file=file, line=number, function="step", kind=kind, share=share, steps_share=steps_share)


def mode(build, name: str, speedup: float | None, spread: float = 0.01, **fields) -> dict[str, Compared]:
    return {name: Compared(name, "ok", speedup=build.estimate(speedup, spread) if speedup else None, **fields)}


def trace(reason: str) -> Trace:
    return Trace(step=5, function="train_step", reason=reason, signature="(8, 16)", time_s=0.2)
