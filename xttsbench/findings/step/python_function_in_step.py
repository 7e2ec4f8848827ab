"""The rule `python-function-in-step`."""

from __future__ import annotations

from xttsbench.analysis.attribution import THRESHOLD
from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import heaviest_line, place_of
from xttsbench.findings.rule import Findings, rule


@rule(
    "python-function-in-step",
    evidence="share of the step, and how many such functions",
    threshold="every one is reported; a bottleneck from 10 % where the step computes",
    remedy="Write it in TensorFlow ops, or move it into the input pipeline.",
    false_alarms="one that runs once in many steps",
)
def python_function_in_step(evidence: Evidence) -> Findings:
    """Python inside the compiled step: it runs on the processor and holds the interpreter lock."""
    anatomy = evidence.anatomy
    if anatomy is None or not anatomy.python_functions_in_step:
        return
    share = anatomy.kinds.get("python_function", 0.0)
    yield python_function_in_step.finding(
        f"the step calls Python from inside its graph: {anatomy.python_functions_in_step[0]}",
        {"share_of_step": share, "functions": len(anatomy.python_functions_in_step)},
        severity="warning" if share >= THRESHOLD else "info",
        limiting=share >= THRESHOLD and evidence.bottleneck == "compute",
        location=place_of(heaviest_line(evidence, ("python_function",))),
    )
