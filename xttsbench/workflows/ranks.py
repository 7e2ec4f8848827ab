"""``xttsbench report DIR`` on the ranks of a job: their watched runs, read while they run or afterwards, judged."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from xttsbench.diagnosis.ranks import Rank, judge
from xttsbench.errors import JournalError
from xttsbench.execution.run_directory import read_record
from xttsbench.files import atomic_write
from xttsbench.probes.environment import where
from xttsbench.records.ranks import RANK_FILE, RankRun, RanksReport
from xttsbench.records.redaction import Redaction
from xttsbench.records.watch import SUMMARY_FILE, WatchSummary
from xttsbench.workflows.watch import read_summary

RANKS_FILE: Final = "ranks.json"
_SILENT_S: Final = 60.0
"""A rank of another host whose file has not been written for so long does not run any more."""


def ranks_in(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Run directories of a job's ranks: several of them, or those in one directory; none where it is no such."""
    if len(paths) > 1:
        return tuple(paths)
    return tuple(sorted(file.parent for file in paths[0].glob(f"*/{RANK_FILE}")))


def report_ranks(directories: Sequence[Path], into: Path | None, *, redact: bool = False) -> RanksReport:
    """Judge the ranks whose runs lie in these directories together, and write that into ``ranks.json``, where asked.

    With ``redact`` it is without what tells who measured where.

    Raises:
        JournalError: one of them is no run of a rank, or two are of the same rank, or of different jobs.
    """
    ranks = sorted((_read(one) for one in directories), key=lambda one: one.run.task.rank)
    numbers = [one.run.task.rank for one in ranks]
    if len({one.run.task.ranks for one in ranks}) > 1 or len(set(numbers)) < len(numbers):
        raise JournalError(
            f"{', '.join(map(str, directories))}: these are ranks {numbers} of jobs of "
            f"{sorted({one.run.task.ranks for one in ranks})}; name the runs of one job, each once."
        )
    who = where(directories[0])
    who["names"] |= {one.run.host for one in ranks}
    found: RanksReport = Redaction(redact=redact, **who).kept(judge(ranks))
    if into is not None:
        atomic_write(into / RANKS_FILE, found.model_dump_json(indent=1).encode() + b"\n")
    return found


def _read(directory: Path) -> Rank:
    run = read_record(directory / RANK_FILE, RankRun, "a rank", name="the runs of a job's ranks, from xttsbench watch")
    if run.host == socket.gethostname():
        summary = read_summary(directory)
    else:
        summary = read_record(
            directory / SUMMARY_FILE, WatchSummary, "the summary of a watched run", name="another run"
        )
        if not summary.over and time.time() - run.updated_s > _SILENT_S:
            summary = summary.model_copy(update={"over": True, "ended": "killed"})
    return Rank(_aged(run, running=not summary.over), summary, running=not summary.over)


def _aged(run: RankRun, *, running: bool) -> RankRun:
    """The rank with the time since its file was written added to the time for which it has not got on."""
    if run.position is None or not running:
        return run
    idle_s = run.position.idle_s + max(time.time() - run.updated_s, 0.0)
    return run.model_copy(update={"position": run.position.model_copy(update={"idle_s": idle_s})})
