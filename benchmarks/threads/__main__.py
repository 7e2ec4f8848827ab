"""What xttsbench says of other people's trouble: twenty public reports, made anew in our own code.

``python benchmarks/threads [--only 3,7] [--out DIR] [--work DIR]``: the command of each case of :mod:`cases` runs once,
in a fresh folder that holds its target. Judged are the report and the screen: whether the cause is named, whether it is
cured, or said that it is not ours. Rows are kept by number in DIR/threads.json, with a page beside it. Goals: named in
16 of 20, cured in 10, none wrong. Nothing else should run on the machine; the exit code is 1 where an answer is wrong.
"""

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
from pathlib import Path
from typing import Any

from cases import CASES, TARGETS, Case
from judging import goals, judged, markdown

PROJECT = TARGETS.parents[2]
LIMIT_S = 400.0
"""Seconds of a command before it is taken to hang."""


def measured(case: Case, folder: Path) -> dict[str, Any]:
    """Run a case in a folder, and judge it."""
    folder.mkdir(parents=True)
    stem = case.file.removesuffix(".py")
    for file in TARGETS.glob(f"{stem}*"):  # a case of two versions has both
        shutil.copy(file, folder)
    path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "xttsbench", *case.command, "--out", "run"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120", "TF_CPP_MIN_LOG_LEVEL": "3"},
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


def stored(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Keep a row in place of the one of its number, and write the page."""
    kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    rows = sorted([*(old for old in kept if old["number"] != row["number"]), row], key=lambda one: one["number"])
    machine = f"{len(os.sched_getaffinity(0))} processors, Linux, Python {platform.python_version()}"
    result = {"machine": machine, "goals": goals(rows), "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(result), encoding="utf-8")
    return result


def main() -> None:
    """Run the cases, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="N,N", help="these cases")
    parser.add_argument("--out", type=Path, default=PROJECT / "reports/reference/benchmarks", help="folder of the rows")
    parser.add_argument("--work", type=Path, help="folder for the runs (a temporary one)")
    options = parser.parse_args()
    wanted = {int(number) for number in options.only.split(",")} if options.only else {case.number for case in CASES}
    result: dict[str, Any] = {"goals": {"wrong": 0}}
    with tempfile.TemporaryDirectory(prefix="threads-") as temporary:
        for case in CASES:
            if case.number in wanted:
                folder = (options.work or Path(temporary)).resolve() / f"{case.number:02d}"
                shutil.rmtree(folder, ignore_errors=True)
                row = measured(case, folder)
                result = stored(options.out / "threads.json", row)
                print(f"{case.number:2} named {row['named']}, cured {row['cured']}: {row['said']}", flush=True)
    print(json.dumps(result["goals"]))
    sys.exit(result["goals"]["wrong"] > 0)


if __name__ == "__main__":
    main()
