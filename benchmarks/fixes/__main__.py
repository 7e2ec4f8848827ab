"""What the fixes of ``xttsbench optimize`` are worth, on cases whose hand-tuned version is known.

``python benchmarks/fixes [--only CASE ...] [--budget 120] [--blocks 2] [--window 1] [--out DIR] [--resume]``: for each
case of :mod:`faulty`

- ``xttsbench optimize`` in a process, with the default settings: what it accepts, what it predicted, how long it took;
- side by side in one session, in turns: the original, what was accepted, the hand-tuned version, and AUTOTUNE with
  default options (:mod:`versions`), in two processes of each, one after another (:mod:`side_by_side`);
- the first elements of the original and of the fixed dataset, read in processes of their own and compared.

Goals: at least 95 % of the hand-tuned version's speed and no slower than AUTOTUNE, speed-ups predicted within 8 %
(median) and 25 % (90th percentile) where the interval of what was achieved is within 10 % of it (the errors of all
rows stand beside), 120 s for each, the same data; and 47 times as fast on a small data set that is decoded anew in
every epoch (:mod:`processor_bound`). A case marked ``*`` has another function for its hand-tuned
version, which no rewrite makes of it. ``--out`` gets ``results.json``, ``results.md``, a line in ``cases.jsonl`` when
a case is done, and each case's run; ``--resume`` does the cases that are not done, and goes on with one whose
``optimize`` has ended. The exit code is 0 unless it was interrupted. Some two minutes a case, on cores that have
nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from accepted import said
from faulty import PROJECT, Case, chosen, reachable
from goals import GOALS, figures, met
from kept import JOURNAL, keep, kept
from processes import optimize, same_data
from side_by_side import measured, planned
from written import markdown, short

BUSY_LIMIT, LOOK_S = 0.1, 0.3
"""Share of the cores in use by others above which figures are provisional, and how long is looked before each part."""


def done(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one case; what raises costs that case alone, and is told."""
    row: dict[str, Any] = {
        "case": case.name,
        "family": case.family,
        "reachable": reachable(case),
        "others_used_of_the_cores": _in_use(),
        **_circumstances(options),
    }
    folder, files = options.out / case.name, options.out / "files"
    finished = folder / "optimized.json"
    try:
        found = json.loads(finished.read_text(encoding="utf-8")) if finished.exists() else None
        for directory in (folder,) if found is None else (folder / "session", folder / "cache", folder / "read"):
            shutil.rmtree(directory, ignore_errors=True)
        for directory in (files, folder / "session", folder / "cache", folder / "read"):
            directory.mkdir(parents=True, exist_ok=True)
        if found is None:
            found = optimize(case, files, folder / "optimize", options.budget)
            finished.write_text(json.dumps(found), encoding="utf-8")
        row |= said(found)
        fixes = row.get("fixes")
        plan = planned(case, files, fixes, blocks=options.blocks, window_s=options.window)
        row["others_used_of_the_cores"] = max(row["others_used_of_the_cores"], _in_use())
        row |= measured(plan, folder / "session")
        row["data"] = same_data(case, files, folder / "read", fixes) if fixes else None
    except Exception as error:  # the next case may work
        traceback.print_exc()
        row["failed"] = f"{type(error).__name__}: {error}"
    return row


def _circumstances(options: argparse.Namespace) -> dict[str, float]:
    return {"budget_s": options.budget, "blocks": options.blocks, "window_s": options.window}


def _in_use() -> float:
    """Share of the cores in use while nothing of the benchmark runs."""
    return float(psutil.cpu_percent(interval=LOOK_S)) / 100


def summary(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """The output: goals, figures, whether they are met, circumstances, and the rows."""
    values = figures(rows)
    goals_met = met(values)
    return {
        "goals": GOALS,
        "value": values,
        "goals_met": goals_met,
        "met": all(is_met is not False for is_met in goals_met.values()),
        **_circumstances(options),
        "provisional": any(row["others_used_of_the_cores"] > BUSY_LIMIT for row in rows),
        "cpus": len(os.sched_getaffinity(0)),
        "results": rows,
    }


def write(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    """Both pages, after each case, since the next one may be what ends the run."""
    result = summary(rows, options)
    text = without_places(json.dumps(result, indent=2, ensure_ascii=False), options.out)
    (options.out / "results.json").write_text(f"{text}\n", encoding="utf-8")
    (options.out / "results.md").write_text(without_places(markdown(result), options.out), encoding="utf-8")


def without_places(text: str, out: Path) -> str:
    """A text without the directories of this machine."""
    return text.replace(str(out), "OUT").replace(f"{PROJECT}/", "")


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; ``cases`` are those to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="CASE", nargs="+", default=[], help="these cases")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of each optimize (120)")
    parser.add_argument("--blocks", type=int, default=2, help="processes of each version (2)")
    parser.add_argument("--window", type=float, default=1.0, help="seconds of a turn (1)")
    parser.add_argument("--out", type=Path, help="directory of the results (reports/<UTC time>-fixes)")
    parser.add_argument("--resume", action="store_true", help="go on with --out: cases that are done stay as they are")
    options = parser.parse_args(arguments)
    try:
        options.cases = chosen(options.only)
    except KeyError as error:
        parser.error(f"there is no case {error.args[0]!r} with something to mend")
    if options.blocks < 1 or options.window <= 0 or options.budget <= 0:
        parser.error("--blocks, --window and --budget are positive")
    if options.resume and options.out is None:
        parser.error("--resume takes --out, the directory to go on with")
    default = PROJECT / "reports" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-fixes"
    options.out = (options.out or default).resolve()
    if (options.out / JOURNAL).exists() and not options.resume:
        parser.error(f"{options.out} has results already; go on with --resume, or name another --out")
    return options


def main() -> None:
    """Do each case, and write after each."""
    options = parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    before = kept(options.out)
    for row in before.values():
        if any(row[name] != value for name, value in _circumstances(options).items()):
            sys.exit(f"{row['case']} was done with another --budget, --blocks or --window; name another --out")
    rows = list(before.values())
    waiting = [case for case in options.cases if case.name not in before]
    for number, case in enumerate(waiting, 1):
        row = done(case, options)
        rows.append(row)
        keep(options.out, row)
        write(rows, options)
        print(f"[{number} of {len(waiting)}] {short(row)}", file=sys.stderr, flush=True)
    write(rows, options)
    print((options.out / "results.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
