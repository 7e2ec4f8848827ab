"""A case's command, run in a folder that holds its target, and the rows of all cases."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from judging import Case, goals, judged

PROJECT = Path(__file__).resolve().parents[2]
LIMIT_S = 400.0
"""Seconds of a command before it is taken to hang."""


def ran(case: Case, folder: Path) -> dict[str, Any]:
    """The row of a case whose target is in a folder."""
    path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "xttsbench", *case.command, "--out", "run"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120", "TF_CPP_MIN_LOG_LEVEL": "3", **dict(case.environment)},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
        check=False,
    )
    (folder / "screen.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    row: dict[str, Any] = {"number": case.number, "reference": case.reference, "title": case.title}
    row |= {"seconds": round(time.monotonic() - began, 1), "command": " ".join(["xttsbench", *case.command])}
    found, screen = folder / "run" / "report.json", done.stdout + done.stderr
    last = (done.stderr.strip().splitlines() or ["nothing"])[-1][-300:]
    none = {"verdict": {"bottleneck": "inconclusive", "confidence": 0.0, "summary": last}, "findings": []}
    report = json.loads(found.read_text(encoding="utf-8")) if found.exists() else none
    return row | judged(case, report, screen, (folder / case.file).read_text(encoding="utf-8"))


def stored(path: Path, row: dict[str, Any], markdown: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """Keep a row in place of the one of its number, and write the page."""
    kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    rows = sorted([*(old for old in kept if old["number"] != row["number"]), row], key=lambda one: one["number"])
    machine = f"{len(os.sched_getaffinity(0))} processors, Linux, Python {platform.python_version()}"
    result = {"machine": machine, "goals": goals(rows), "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(result), encoding="utf-8")
    return result


def options_of(about: str | None) -> argparse.ArgumentParser:
    """The options that runs of cases have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="N,N", help="these cases")
    parser.add_argument("--out", type=Path, default=PROJECT / "reports/reference/benchmarks", help="folder of the rows")
    parser.add_argument("--work", type=Path, help="folder for the runs (a temporary one)")
    return parser


def main(
    options: argparse.Namespace,
    cases: Sequence[Case],
    make: Callable[[Case, Path], None],
    name: str,
    markdown: Callable[[dict[str, Any]], str],
) -> int:
    """Run the cases, each in a folder that ``make`` puts its target into, and print what was found; the exit code."""
    wanted = {int(number) for number in options.only.split(",")} if options.only else {case.number for case in cases}
    result: dict[str, Any] = {"goals": {"wrong": 0}}
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as temporary:
        for case in cases:
            if case.number in wanted:
                folder = (options.work or Path(temporary)).resolve() / f"{case.number:02d}"
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                make(case, folder)
                row = ran(case, folder)
                result = stored(options.out / f"{name}.json", row, markdown)
                print(f"{case.number:2} named {row['named']}, cured {row['cured']}: {row['said']}", flush=True)
    print(json.dumps(result["goals"]))
    return int(result["goals"]["wrong"] > 0)
