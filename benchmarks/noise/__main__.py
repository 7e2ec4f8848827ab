"""Does a neighbour turn a verdict or a comparison wrong? Prints JSON; a table in Markdown lies beside it.

``python benchmarks/noise [--only NAME ...] [--neighbour NAME ...] [--budget 60] [--out FILE] [--again]``: the command,
``xttsbench diagnose`` on planted and healthy targets whose verdict is known (:mod:`disturbed`), and ``xttsbench run``
and ``xttsbench sweep`` on arms of known speed, each beside each neighbour of :mod:`neighbours`: none, a core taken,
bursts on all cores, a memory hog, a quota of one core, and stolen time of 15, 35 and 60 %.

For each neighbour: verdicts right, undecided and wrong, seconds to the report, whether the report names the neighbour,
and what was said of the arms with their ratios. Goals: without a neighbour 98 % right and 2 % undecided at most; beside
any of them none wrong, and 90 % right. What is undecided costs time; what is wrong costs trust.

Results are written after each case, and a case that the file has already is not run again (``--again`` does), so that
the hours that it takes need not be in one piece. Nothing else should run on the machine. Stolen time needs the right to
run real-time processes (root, or CAP_SYS_NICE), the quota a writable control group; what is not possible is skipped
with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from disturbed import ARMS, PROJECT, TARGETS, Arms, Target
from looks import run
from neighbours import WORDS, NotPossibleError, beside
from told import GOALS, compared, diagnosed, figures, table

from xttsbench.files import atomic_write
from xttsbench.records.report import Report

OUT = PROJECT / "reports/reference/benchmarks/noise.json"
RUN_BUDGET_S = 120.0  # of a comparison of arms
LIMIT_S, LOOK_S = 180.0, 0.5
"""On top of the budget, before a command is taken to hang; and how long is looked who else computes, before a case."""
Case = Target | Arms


def measured(case: Case, neighbour: str, budget_s: float, folder: Path) -> dict[str, Any]:
    """Run a case beside a neighbour."""
    row: dict[str, Any] = {
        "case": case.name,
        "neighbour": neighbour,
        "kind": "diagnose" if isinstance(case, Target) else case.command,
        "known": "|".join(case.right(neighbour)) if isinstance(case, Target) else "",
        "at_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "others_before": psutil.cpu_percent(interval=LOOK_S) / 100,
    }
    try:
        with beside(neighbour, seed=sum(case.name.encode())) as prefix:
            found = _command([*prefix, *_asked(case, budget_s, folder)], budget_s + LIMIT_S)
    except NotPossibleError as error:
        return row | {"skipped": str(error), "outcome": "skipped"}
    report = found.pop("report")
    if isinstance(case, Target):
        told = diagnosed(report, case.right(neighbour), neighbour)
    else:
        told = compared(report, {name: speed for name, (_, speed) in case.arms.items()}, neighbour)
    return row | found | told


def _asked(case: Case, budget_s: float, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "xttsbench"]
    if isinstance(case, Arms):
        scenario = folder / f"{case.name}.yaml"
        scenario.write_text(case.scenario(), encoding="utf-8")
        command += ["run", str(scenario)] if case.command == "run" else ["sweep", "--grid", str(scenario)]
        command += ["--budget", f"{max(budget_s, RUN_BUDGET_S):g}"]
    else:
        command += ["diagnose", f"{case.file}:{case.name}", "--no-verify", "--budget", f"{budget_s:g}"]
        command += ["--accelerator", f"emulated:{case.accelerator_ms:g}"] if case.accelerator_ms else []
        for name, value in case.settings.items():
            command += ["--set", f"{name}={value.format(folder=folder)}"]
    return [*command, "--json", "--out", str(folder / "run")]


def _command(command: Sequence[str], limit_s: float) -> dict[str, Any]:
    """The report that a command prints, its exit code and its seconds."""
    began = time.monotonic()
    code, printed, said = run(command, limit_s)
    found: dict[str, Any] = {"seconds": round(time.monotonic() - began, 1), "exit_code": code}
    try:
        return found | {"report": Report.model_validate_json(printed).model_dump()}
    except ValueError:
        return found | {"report": None, "error": said[-500:] or "no report"}


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases to run."""
    gpu = Path("/proc/driver/nvidia/version").exists()
    every: list[Case] = [*(target for target in TARGETS if gpu or not target.needs_gpu), *ARMS]
    return [case for case in every if not options.only or case.name in options.only]


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these cases")
    parser.add_argument("--neighbour", metavar="NAME", nargs="+", choices=list(WORDS), help=f"of {', '.join(WORDS)}")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a diagnosis")
    parser.add_argument("--out", type=Path, default=OUT, help="file for the JSON; the table lies beside it as .md")
    parser.add_argument("--again", action="store_true", help="run what the file has already, too")
    options = parser.parse_args(arguments)
    if not chosen(options):
        parser.error(f"no such case; there are {', '.join(case.name for case in (*TARGETS, *ARMS))}")
    return options


def written(path: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Write results and table, each whole, and give the results."""
    cpus = len(os.sched_getaffinity(0))
    machine = f"{cpus} processors, Linux {platform.release()}"
    result = {"goals": GOALS, "machine": machine, "neighbours": dict(WORDS), "value": figures(rows), "rows": list(rows)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for file, text in ((path, json.dumps(result, indent=1)), (path.with_suffix(".md"), table(rows, WORDS, machine))):
        atomic_write(file, f"{text.rstrip()}\n".encode())
    return result


def main() -> None:
    """Run what is not there yet, neighbour by neighbour, and print."""
    options = parsed()
    rows = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.exists() else []
    for neighbour in options.neighbour or list(WORDS):
        for case in chosen(options):
            same = [row for row in rows if (row["case"], row["neighbour"]) == (case.name, neighbour)]
            if same and not options.again:
                continue
            folder = Path(tempfile.mkdtemp(prefix="noise-"))
            try:
                row = measured(case, neighbour, options.budget, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            rows = [*(kept for kept in rows if kept not in same), row]
            written(options.out, rows)
            said = row.get("verdict") or {name: arm["decision"] for name, arm in row.get("arms", {}).items()}
            print(
                f"{neighbour:8} {case.name:32} {row['outcome']:10} {row.get('seconds', ''):>6} {said}"
                f"  {row.get('machine') or row.get('skipped') or row.get('error', '')}",
                file=sys.stderr,
                flush=True,
            )
    print(json.dumps(written(options.out, rows)["value"], indent=1))


if __name__ == "__main__":
    main()
