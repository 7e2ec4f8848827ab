"""``xttsbench compare A B``: two runs, or two arms of one, against one another, and the limits that B has to keep."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args

from xttsbench.comparison.comparable import differences
from xttsbench.comparison.effects import SESSION_NOISE
from xttsbench.comparison.gates import judge_gates
from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.execution.child import now_utc
from xttsbench.execution.run_directory import make_run_directory
from xttsbench.files import atomic_write
from xttsbench.probes.environment import secrets_of, where
from xttsbench.records.base import DECIDED, MARGIN, Word
from xttsbench.records.comparison_result import ComparedPair, ComparedRun, ComparisonReport, Difference, Gate, Limit
from xttsbench.records.missing import nulls
from xttsbench.records.redaction import MASK, Redaction, secret_name
from xttsbench.records.report import Report, Variant
from xttsbench.reporting import markdown
from xttsbench.reporting.page import to_json
from xttsbench.reporting.sections.compare import comparison_document, spoken, to_junit
from xttsbench.reporting.units import percent, ratio_interval
from xttsbench.workflows.compare.pairs import Runs, Sides, compare_pairs, measured_of, read_sides
from xttsbench.workflows.compare.sides import Side
from xttsbench.workflows.reports import unread
from xttsbench.workflows.runs import DONE, GATE, INCONCLUSIVE, NOTHING

_OWN: Final = "it stands in the report of each run"
_SECTIONS: Final = (
    *("oscillation", "aa", "warm_up", "parity", "pipeline", "profile", "overhead", "readings", "ladder"),
)


@dataclass(frozen=True)
class Request:
    """Options of the user.

    Attributes:
        a, b: ``PATH[:ARM[@ACCELERATOR]]``.
        limits: gates on B.
        across: compare although the machines or the data differ.
        session_noise: standard deviation of speed between sessions, as a share.
        out: directory for ``report.json`` and ``report.md``.
        markdown, junit: files to write.
        redact: leave values of arguments, paths and names out of every file.
        command: as it was typed, for the report.
    """

    a: str
    b: str
    limits: Mapping[Limit, float] = field(default_factory=dict)
    across: bool = False
    session_noise: float = SESSION_NOISE
    out: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    redact: bool = False
    command: str = "xttsbench compare"


@dataclass(frozen=True)
class Compared:
    """``message`` is one sentence for standard error, where the exit code is not 0."""

    report: ComparisonReport
    exit_code: int
    message: str | None = None
    directory: Path | None = None


def compare(request: Request) -> Compared:
    """Compare two runs, and write what was asked for.

    Raises:
        UsageError: a configuration does not exist or is ambiguous, both sides are the same, or a file cannot be
            written.
        NothingMeasuredError: a run has no configurations.
        InvalidInputError: a run cannot be read, or the two cannot be compared and ``across`` was not given.
    """
    sides = read_sides(request.a, request.b)
    differing = _differences(sides)
    forbidding = [found for found in differing if not found.comparable]
    if forbidding and not request.across:
        what = "; ".join(f"{found.field}: {found.a} in A, {found.b} in B" for found in forbidding)
        raise InvalidInputError(
            f"{request.a} and {request.b} cannot be compared, since they differ in more than the code: {what}. "
            "Measure both alike, or add --across to compare them all the same."
        )
    noise = None if sides.same_run else request.session_noise
    compared, effects = compare_pairs(sides, margin=MARGIN, session_noise=noise)
    report = _report(request, sides, differing, compared, judge_gates(request.limits, compared, effects), noise)
    report = _without_secrets(report, sides, redact=request.redact)
    code, message = judge_comparison(report)
    return Compared(report, code, message, _write(request, report))


def judge_comparison(report: ComparisonReport) -> tuple[int, str | None]:
    """Exit code and sentence: nothing measured, a gate that failed, then whatever is not decided."""
    if all(pair.method == "not measured" for pair in report.pairs):
        return NOTHING, f"Nothing was measured that could be compared: {report.pairs[0].why}."
    failed = [gate for gate in report.gates if gate.outcome == "failed"]
    if failed:
        return GATE, "A gate failed: " + "; ".join(f"{gate.pair}: {gate.why} ({gate.limit})" for gate in failed) + "."
    if report.gates:
        undecided = [gate for gate in report.gates if gate.outcome != "passed"]
        said = [f"{gate.pair}: {gate.why} ({gate.limit}, {gate.outcome})" for gate in undecided]
    else:
        said = [f"{pair.name}: {pair.why}" for pair in report.pairs if pair.decision not in DECIDED]
    return (INCONCLUSIVE, f"Undecided: {'; '.join(said)}.") if said else (DONE, None)


def comment(report: ComparisonReport) -> str:
    """The comparison in Markdown, for a pull request."""
    return markdown.render(comparison_document(report), level=3)


def _differences(sides: Sides) -> tuple[Difference, ...]:
    """Differences of all pairs together; one that only some pairs have bears their names."""
    found: dict[Difference, list[str]] = {}
    for name, left, right in sides.pairs:
        for difference in differences(measured_of(left), measured_of(right), same_run=sides.same_run):
            found.setdefault(difference, []).append(name)
    told = [
        difference
        if len(names) == len(sides.pairs)
        else difference.model_copy(update={"field": f"{difference.field} ({', '.join(names)})"})
        for difference, names in found.items()
    ]
    return tuple(sorted(told, key=lambda difference: difference.comparable))


def _warnings(alone: Sequence[str], differing: Sequence[Difference], noise: float | None) -> tuple[str, ...]:
    found = []
    if forbidding := [one.field for one in differing if not one.comparable]:
        found.append(
            f"ACROSS: the two differ in {', '.join(forbidding)}, so a difference in speed may be that and nothing "
            "else; it was compared because --across was given"
        )
    if noise:
        found.append(
            f"two sessions: the interval allows for a standard deviation of {percent(noise)} between them, for what "
            "changes on a machine (--session-noise); configurations of one run need no such allowance"
        )
    elif noise is not None:
        found.append(
            "two sessions without an allowance for what changes on a machine between them (--session-noise 0): a "
            "difference may be the machine's"
        )
    if alone:
        found.append(f"compared with nothing: {'; '.join(alone)}")
    return tuple(found)


def _report(
    request: Request,
    sides: Sides,
    differing: tuple[Difference, ...],
    compared: tuple[ComparedPair, ...],
    gates: tuple[Gate, ...],
    noise: float | None,
) -> ComparisonReport:
    a, b, said = sides.a, sides.b, _sentence(compared)
    arms: list[Variant] = []
    unmeasured = {section: _OWN for section in _SECTIONS}
    unmeasured |= {path: why for path, why in b.report.unmeasured.items() if path.startswith("verdict.")}
    for index, ((_, left, right), pair) in enumerate(zip(sides.pairs, compared, strict=True)):
        ours = {"group": pair.name, "role": "baseline", "effect": None, "decision": None, "evidence": None}
        theirs = {"role": "candidate", "effect": pair.effect, "decision": pair.decision, "evidence": pair.evidence}
        arms += [left.arm.model_copy(update=ours), right.arm.model_copy(update={**ours, **theirs})]
        unmeasured |= _reasons(index, left, right, pair)
    unmeasured |= {f"gates.{index}.value": gate.why for index, gate in enumerate(gates) if gate.value is None}
    for prefix, side in (("", b), ("a.", a), ("b.", b)):
        unmeasured |= {f"{prefix}{path}": why for path, why in unread(side.report.disturbance).items()}
    if noise is None:
        unmeasured["session_noise"] = "configurations of one run share its session"
    return ComparisonReport(
        command=request.command,
        created_utc=now_utc(),
        target=dict(b.report.target),
        environment=dict(b.report.environment),
        verdict=b.report.verdict.model_copy(update={"summary": said}),
        arms=tuple(arms),
        accelerator=dict(b.report.accelerator),
        warnings=_warnings(sides.alone, differing, noise),
        comparison=tuple(_line(pair) for pair in compared),
        disturbance=b.report.disturbance,
        unmeasured=unmeasured,
        a=_run(a),
        b=_run(b),
        pairs=compared,
        gates=gates,
        differences=differing,
        across=request.across and any(not found.comparable for found in differing),
        session_noise=noise,
        margin=MARGIN,
    )


def _reasons(index: int, left: Runs, right: Runs, pair: ComparedPair) -> dict[str, str]:
    """A reason for every figure that is missing, that of the run's own report where it has one."""
    found: dict[str, str] = {}
    for offset, (side, runs, figures) in enumerate((("a", left, pair.a), ("b", right, pair.b))):
        source = _reasons_of(runs.side.report, runs.arm)
        default = "the run does not record it" if runs.side.trials else "a report alone does not hold it"
        found |= nulls(f"pairs.{index}.{side}", figures, source, default=default)
        path, but = f"arms.{2 * index + offset}", ("effect", "decision", "evidence")
        found |= nulls(path, runs.arm, source, but=but, default=default)
    for name in ("effect", "decision", "evidence"):
        found[f"arms.{2 * index}.{name}"] = "it is what the other is compared with"
    for name in ("effect", "evidence", "smallest_visible_effect"):
        if getattr(pair, name) is None:
            why = pair.why or "not tested"
            found[f"pairs.{index}.{name}"] = why
            if name in Variant.model_fields:
                found[f"arms.{2 * index + 1}.{name}"] = why
    return found


def _reasons_of(report: Report, arm: Variant) -> Mapping[str, str]:
    index = next((number for number, own in enumerate(report.arms) if own is arm or own == arm), None)
    prefix = f"arms.{index}."
    return {path.removeprefix(prefix): why for path, why in report.unmeasured.items() if path.startswith(prefix)}


def _run(side: Side) -> ComparedRun:
    report: Report = side.report
    return ComparedRun(
        given=side.given,
        path=str(side.path),
        kind=report.kind,
        command=report.command,
        created_utc=report.created_utc,
        target=str(report.target.get("name", "")),
        processes_known=bool(side.trials),
        disturbance=report.disturbance,
    )


def _without_secrets(report: ComparisonReport, sides: Sides, *, redact: bool) -> ComparisonReport:
    differing = tuple(
        one.model_copy(update={"a": MASK, "b": MASK})
        if one.field.startswith("argument ") and (redact or secret_name(one.field))
        else one
        for one in report.differences
    )
    report = report.model_copy(update={"differences": differing})
    guard = Redaction(secrets_of(os.environ), redact=redact, **where(Path()))
    kept: ComparisonReport = guard.kept(report)
    return kept


def _sentence(pairs: Sequence[ComparedPair]) -> str:
    if len(pairs) == 1:
        return _line(pairs[0])
    counted = Counter(pair.decision for pair in pairs)
    words = [f"{counted[name]} {spoken(name)}" for name in get_args(Word) if counted[name]]
    return f"Of {len(pairs)} configurations B is: {', '.join(words)}."


def _line(pair: ComparedPair) -> str:
    if pair.effect is None:
        return f"{pair.name}: not compared, {pair.why}."
    return f"{pair.name}: B is {ratio_interval(pair.effect)} as fast as A: {spoken(pair.decision)}."


def _write(request: Request, report: ComparisonReport) -> Path | None:
    made = nullcontext() if request.out is None else make_run_directory(request.out, "compare", datetime.now(UTC))
    with made as directory:
        files = [
            (directory and directory / "report.json", to_json),
            (directory and directory / "report.md", comment),
            (request.markdown, comment),
            (request.junit, to_junit),
        ]
        for path, written in files:
            if path is None:
                continue
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, written(report).encode())
            except OSError as error:
                raise UsageError(f"{path} cannot be written ({error.strerror or error}); name another file.") from error
        return directory
