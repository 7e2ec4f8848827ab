"""The verdict on a job of several ranks: which of them hangs, died, has another's samples or too few, or is late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from xttsbench.analysis import ranks as told
from xttsbench.records.ranks import CodeLine, RankFinding, RankRow, RankRun, RanksReport
from xttsbench.records.watch import WatchSummary

_DUPLICATED: Final = 0.05
_EXPLAINS: Final = 0.3  # Share of what a rank is late that a part of its step has to account for
_CAUSES: Final = {"input": "waits for its own input", "compute": "computes", "host": "does host work"}
_REMEDIES: Final = {
    "input": "Make the input of that rank as fast as the others': xttsbench diagnose names the op, on that rank alone.",
    "compute": "Compare that rank's device, its clock and its neighbours with the others', and its batches' sizes.",
    "host": "Do that work less often, or on all ranks at the same step, or on another thread.",
    "": "Watch that rank with xttsbench monitor --pid: something outside of its steps takes its processors.",
}
_EVEN: Final = (
    "Give each rank the same number of batches: repeat() with a fixed number of steps, or as many as the smallest "
    "shard has."
)
_SHARD: Final = (
    "Shard the data, and before they are shuffled: AutoShardPolicy.DATA or FILE, or in distribute_datasets_from_"
    "function dataset.shard(context.num_input_pipelines, context.input_pipeline_id)."
)
_OVER: Final = "has ended"
_NAMES: Final = {"killed": "was killed", "raised": "raised an error", "exited": "ended", "interrupted": "was ended"}


@dataclass(frozen=True)
class Rank:
    """One rank's files, and whether its process runs."""

    run: RankRun
    summary: WatchSummary
    running: bool

    @property
    def state(self) -> str:
        """State in words."""
        if self.running:
            return "running"
        end = self.summary
        named = _NAMES.get(end.ended, "is over")
        return named + (f" by {end.signal}" if end.signal else f" with code {end.exit_code}" if end.exit_code else "")

    @property
    def failed(self) -> bool:
        """True where it ended, and not as a script should."""
        return not self.running and (self.summary.ended in ("killed", "raised") or bool(self.summary.exit_code))


def judge(ranks: Sequence[Rank]) -> RanksReport:
    """Verdict on a job from the files of its ranks; ``ranks`` are in the order of their numbers."""
    runs = [one.run for one in ranks]
    found, shards = told.together(runs), told.shards_of(runs)
    stepped = [run for run in runs if run.steps]
    step_s = float(np.median([run.wall_s / run.steps for run in stepped])) if stepped else 0.0
    per_step = float(np.median([run.measured / run.steps for run in stepped])) if stepped else 0.0
    notes = [shards.why] if shards is not None and shards.why else []
    missing = sorted(set(range(runs[0].task.ranks)) - {run.task.rank for run in runs})
    if missing:
        notes.append(f"no run of {_named(missing)} is here, of {runs[0].task.ranks}")
    if len({run.clock for run in runs}) > 1:
        notes.append("the clocks of the hosts were set by the ends of collectives")
    findings = [*_stuck(ranks), *_of_data(ranks, shards), *_late(ranks, found, step_s, per_step)]
    waits = found.waits_s
    report = RanksReport(
        ranks=runs[0].task.ranks,
        rows=tuple(_row(one) for one in ranks),
        sentence="",
        findings=tuple(findings),
        collective_s=float(found.cost_s.mean()) * per_step if len(found) else None,
        collective_quiet_s=found.quiet_s * per_step if len(found) else None,
        lost_s=float(np.median(waits, axis=1).mean()) * per_step if len(found) else None,
        seen_once=shards.common < _DUPLICATED if shards is not None and shards.common is not None else None,
        notes=tuple(notes),
    )
    return report.model_copy(update={"sentence": findings[0].sentence if findings else _healthy(report, step_s)})


def _healthy(report: RanksReport, step_s: float) -> str:
    if len(report.rows) == 1:
        only = f"Only rank {report.rows[0].rank} of {report.ranks} is here"
        return f"{only}: who is late, and whose samples are whose, takes all of them."
    if report.collective_s is None or not step_s:
        return "No fault was found; too few collectives were seen to say who is late."
    once = {True: "no sample came to two ranks", False: "", None: "whether samples came to two ranks is not known"}
    return (
        f"No rank is late for the others: of a step of {_ms(step_s)}, {_ms(report.lost_s or 0.0)} is waiting for the "
        f"last rank and {_ms(report.collective_s)} the collectives themselves; {once[report.seen_once]}."
    )


def _stuck(ranks: Sequence[Rank]) -> Iterator[RankFinding]:
    runs, dead = [one.run for one in ranks], [one for one in ranks if one.failed]
    waiting = [one.run.task.rank for one in ranks if one.running]
    if dead:
        first = min(dead, key=lambda one: one.summary.updated_utc)
        if (gone := _left(ranks, first)) is not None:
            what, remedy, line = _missing(gone)
            where = f" at {line}" if line is not None else ""
            left = "" if what == _OVER else " and has ended"
            error = f": {first.summary.error}" if first.summary.error else ""
            yield RankFinding(
                fault="hang",
                rank=gone.run.task.rank,
                sentence=(
                    f"Rank {gone.run.task.rank} {what}{where}{left}; rank {first.run.task.rank} waited for it in a "
                    f"collective, and {first.state}{error}."
                ),
                remedy=remedy,
                line=line,
                evidence={"steps": gone.run.steps},
            )
            return
        others = [one.run.task.rank for one in ranks if one is not first]
        run_on = "runs" if len(others) == 1 else "run"
        after = f"; {_named(others)} {run_on if waiting else 'ended'} without it" if others else ""
        error = f": {first.summary.error}" if first.summary.error else ""
        yield RankFinding(
            fault="died",
            rank=first.run.task.rank,
            sentence=f"Rank {first.run.task.rank} {first.state} after {first.summary.steps:,} steps{error}{after}.",
            remedy="Find in that rank's own output and its system's log what ended it; the others can only wait.",
            line=_line(first),
            evidence={"steps": first.summary.steps},
        )
        return
    for at in told.hanging(runs, [one.running for one in ranks]):
        one, rank = ranks[at], runs[at].task.rank
        others = [
            other.run.task.rank
            for other in ranks
            if other.running and other.run.position is not None and other.run.position.activity == "collective"
        ]
        idle_s = max(run.position.idle_s for run in runs if run.position is not None)
        waits = f"{_named([other for other in others if other != rank])} waits for it in a collective"
        if len(others) > 1 + (rank in others):
            waits = waits.replace(" waits", " wait")
        what, remedy, line = _missing(one)
        yield RankFinding(
            fault="hang",
            rank=rank,
            sentence=f"Rank {rank} {what}{f' at {line}' if line is not None else ''}, and {waits}.",
            remedy=remedy,
            line=line,
            evidence={"idle_s": idle_s, "steps": runs[at].steps},
        )


def _left(ranks: Sequence[Rank], failed: Rank) -> Rank | None:
    """The first rank that ended as a script should while others, the failed one among them, had collectives left."""
    gone = [
        one
        for one in ranks
        if not one.running
        and not one.failed
        and one.run.begun < failed.run.begun
        and one.summary.updated_utc <= failed.summary.updated_utc
    ]
    return min(gone, key=lambda one: one.summary.updated_utc, default=None)


def _missing(one: Rank) -> tuple[str, str, CodeLine | None]:
    """Doings of a rank in place of the collective; the remedy; the line."""
    run, position = one.run, one.run.position
    asks = one.running and position is not None and position.activity == "input"
    if run.epochs and run.epochs[-1].ended and not asks:
        what = f"has no data left after {run.epochs[-1].batches:,} batches"
        return what, _EVEN, run.lines.get("request") or _line(one)
    if not one.running:
        return _OVER, _EVEN, run.lines.get("request")
    if position is not None and position.activity == "collective":
        return "is in an earlier collective", "Have all ranks take the same branches around collectives.", position.line
    if asks and position is not None:
        remedy = "See what that line waits for: a file, a lock, a connection that two ranks share."
        return "waits for its own data", remedy, position.line or run.lines.get("request")
    remedy = "See what that line waits for; all ranks have to come to each collective."
    return "is not in a collective but elsewhere", remedy, _line(one)


def _of_data(ranks: Sequence[Rank], shards: told.Shards | None) -> Iterator[RankFinding]:
    if shards is None:
        return
    lines = [one.run.lines.get("request") for one in ranks]
    if shards.common is not None and shards.common >= _DUPLICATED:
        first, second = shards.pair
        yield RankFinding(
            fault="duplicated",
            rank=ranks[second].run.task.rank,
            sentence=(
                f"{_named([ranks[at].run.task.rank for at in (first, second)])} train on the same samples: "
                f"{shards.common:.0%} of those of one came to the other in the same pass."
            ),
            remedy=_SHARD,
            line=lines[second],
            evidence={"common": shards.common},
        )
    if any(one.running for one in ranks):
        return
    for at, share in told.starved(shards.samples).items():
        yield RankFinding(
            fault="starved",
            rank=ranks[at].run.task.rank,
            sentence=(
                f"Rank {ranks[at].run.task.rank} had {shards.samples[at]:,} samples in its pass, {share:.0%} of what "
                "the others had."
            ),
            remedy=_EVEN,
            line=lines[at],
            evidence={"samples": shards.samples[at], "share": share},
        )


def _late(ranks: Sequence[Rank], found: told.Collectives, step_s: float, per_step: float) -> Iterator[RankFinding]:
    runs = [one.run for one in ranks]
    late = told.stragglers(found, step_s, per_step)
    for at, late_s in sorted(late.items(), key=lambda pair: -pair[1]):
        cause, excess_s = told.cause_of(at, runs)
        cause = cause if excess_s >= _EXPLAINS * late_s else ""
        line = runs[at].lines.get(cause) or (runs[at].lines.get("request") if cause == "input" else None)
        where = f", most of it at {line}" if line is not None else ""
        why = f"it {_CAUSES[cause]} {_ms(excess_s)} longer than they do{where}" if cause else "why was not seen"
        rank = runs[at].task.rank
        yield RankFinding(
            fault="straggler",
            rank=rank,
            cause=cause,
            sentence=f"Rank {rank} is late: the others wait {_ms(late_s)} of a step of {_ms(step_s)} for it; {why}.",
            remedy=_REMEDIES[cause],
            line=line,
            evidence={"late_s": late_s, "step_s": step_s, "excess_s": excess_s},
        )


def _row(one: Rank) -> RankRow:
    run = one.run
    steps, parts = run.steps, told.parts_of(run)
    return RankRow(
        rank=run.task.rank,
        host=run.host,
        state=one.state,
        steps=steps,
        step_s=run.wall_s / steps if steps else None,
        input_s=parts["input"] if steps else None,
        compute_s=parts["compute"] if steps else None,
        host_s=parts["host"] if steps else None,
        collective_s=run.parts.collective / steps if steps else None,
        samples=run.epochs[0].samples if run.epochs else None,
    )


def _line(one: Rank) -> CodeLine | None:
    return one.run.position.line if one.run.position is not None else None


def _named(ranks: Sequence[int]) -> str:
    words = [str(one) for one in ranks]
    return f"rank {words[0]}" if len(words) == 1 else f"ranks {', '.join(words[:-1])} and {words[-1]}" if words else ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
