"""Is what xttsbench says of other people's code right, and what does it give? Prints JSON; a table lies beside it.

``python benchmarks/others --code DIR [--only NAME ...] [--budget 75] [--rounds 5] [--work DIR] [--out FILE]``
and ``python benchmarks/others --readme``, which measures nothing and writes the tables of README.md and of
docs/case-studies.md again.

``DIR`` has clones of the repositories that README.md of this folder lists. For each pipeline of :mod:`listed`:

1. Its published code goes unchanged into a target's file in the work folder, with data that are made there.
2. The command that the table names is run on that file.
3. What it says is applied: its patch, or its plan where it writes no patch, or the change that it advises.
4. A plain loop with a clock times the file before and after, and the faster form that the authors publish themselves,
   in turns of fresh processes, without xttsbench (:mod:`plain`).

Runs and rounds that the work folder has are not run again, so that it need not be in one piece (``--limit``).
Nothing else should run on the machine. The code of others stays outside of this repository.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from listed import HERE, PIPELINES, REPOSITORIES, Pipeline
from made import make
from outcomes import cases, markdown, outcome, readme, said, with_table
from published import PublishedError, beside, commit, target

from xttsbench.analysis.evidence import LEAST_SCALE, interval
from xttsbench.files import atomic_write
from xttsbench.records.report import Report

PROJECT = HERE.parents[1]
OUT = PROJECT / "reports/reference/benchmarks/others.json"
_PATH = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
"""Ours first, then what the code of others imports."""
LIMIT_S = 120.0  # on top of the budget, and of a loop, before a process is taken to hang
SECONDS = 3.0  # of a loop, and what is left of its epoch


def measured(pipeline: Pipeline, options: argparse.Namespace) -> dict[str, Any]:
    """All that is found out about one pipeline."""
    folder: Path = options.work / pipeline.name
    template, clone = pipeline.template(), pipeline.clone
    words = pipeline.words(options.budget)
    row: dict[str, Any] = {
        "case": pipeline.name,
        "title": pipeline.title,
        "repository": REPOSITORIES[clone],
        "commit": commit(options.code / clone),
        "command": " ".join(
            [*(f"{name}={value}" for name, value in pipeline.environment.items()), "xttsbench", *words]
        ),
        "known": list(pipeline.known),
        "advised": bool(pipeline.advised),
    }
    for name in pipeline.data:
        make(name, options.work / "data")
    before = folder / "before"
    before.mkdir(parents=True, exist_ok=True)
    source = target(template, options.code, options.work / "data")
    (before / pipeline.file).write_text(source, encoding="utf-8")
    for tree in pipeline.trees:
        beside(options.code / tree, before)
    os.environ.pop("TF_USE_LEGACY_KERAS", None)
    os.environ.update(pipeline.environment)
    row |= _asked(words, before, folder / "run", options.budget)
    if row.get("failed"):
        return row
    row |= said(
        Report.model_validate_json((folder / "run" / "report.json").read_bytes()).model_dump(), pipeline.file, source
    )
    row["patch"] = bool(row["fixes"]) and (folder / "run" / "patch.diff").exists()
    sides = {"before": _loop(pipeline, before / pipeline.file)}
    if pipeline.advised:
        after = folder / "after" / f"{pipeline.advised}.py"
        after.parent.mkdir(exist_ok=True)
        advised = target(pipeline.template(pipeline.advised), options.code, options.work / "data")
        after.write_text(advised, encoding="utf-8")
        for tree in pipeline.trees:
            beside(options.code / tree, after.parent)
        sides["after"] = _loop(pipeline, after)
    elif row["fixes"]:
        sides["after"] = _loop(pipeline, *_applied(pipeline, folder, patch=row["patch"]))
    if pipeline.own:
        sides["own"] = _loop(pipeline, before / pipeline.file, function=pipeline.own)
    if not row["fixes"]:
        sides |= {name: _loop(pipeline, file) for name, file in _tried(pipeline, folder).items()}
    return row | _in_turns(sides, folder / "loops.json", options)


def _asked(words: Sequence[str], folder: Path, run: Path, budget_s: float) -> dict[str, Any]:
    """Run a command of xttsbench, unless its run is there."""
    note = run.parent / "asked.json"
    if not (run / "report.json").exists() or not note.exists():
        shutil.rmtree(run, ignore_errors=True)
        environment = {**os.environ, "PYTHONPATH": _PATH, "TF_CPP_MIN_LOG_LEVEL": "3"}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "xttsbench", *words, "--out", str(run)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=budget_s + LIMIT_S,
            check=False,
        )
        found = {"seconds": round(time.monotonic() - began, 1), "exit_code": done.returncode}
        if not (run / "report.json").exists():
            found["failed"] = done.stderr.strip().splitlines()[-1][-300:] if done.stderr.strip() else "no report"
        note.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(note.read_text(encoding="utf-8"))


def _applied(pipeline: Pipeline, folder: Path, *, patch: bool) -> tuple[Path, Path | None]:
    """The file with the fixes in it, or the same file and the plan that holds them."""
    before, after = folder / "before", folder / "after"
    if not patch:
        return before / pipeline.file, folder / "run" / "optimized.yaml"
    shutil.rmtree(after, ignore_errors=True)
    shutil.copytree(before, after, ignore=shutil.ignore_patterns("__pycache__"))
    diff = str(folder / "run" / "patch.diff")
    subprocess.run(["patch", "-p1", "-i", diff], cwd=after, check=True, stdout=subprocess.DEVNULL)
    return after / pipeline.file, None


def _tried(pipeline: Pipeline, folder: Path) -> dict[str, Path]:
    """The file with each edit by hand, by the edit's name."""
    files = {}
    for number, (name, old, new) in enumerate(pipeline.tried):
        tree = folder / f"tried{number}"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(folder / "before", tree, ignore=shutil.ignore_patterns("__pycache__"))
        files[name] = tree / pipeline.file
        source = files[name].read_text(encoding="utf-8")
        if source.count(old) != 1:
            raise PublishedError(f"{pipeline.file} has {old!r} {source.count(old)} times; it has to be there once")
        files[name].write_text(source.replace(old, new), encoding="utf-8")
    return files


def _loop(pipeline: Pipeline, file: Path, plan: Path | None = None, *, function: str = "") -> list[str]:
    """The command that times a file."""
    words = [sys.executable, str(HERE / "plain.py"), str(file)]
    words += ["--script", pipeline.script] if pipeline.script else [function or pipeline.name]
    words += ["--seconds", f"{SECONDS:g}"]
    words += ["--plan", str(plan)] if plan is not None else []
    return words + (["--step-ms", f"{pipeline.step_ms:g}"] if pipeline.step_ms is not None else [])


def _run(command: Sequence[str]) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": _PATH}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _same(one: list[str], other: list[str]) -> bool | None:
    """Whether two sides have the same first elements, or samples; ``None`` where one does not repeat itself."""
    first, again, changed = (_run([*side, "--digest"]) for side in (one, one, other))
    known = [key for key in ("in_order", "any_order") if first[key] == again[key]]
    return any(first[key] == changed[key] for key in known) if known else None


def _in_turns(sides: dict[str, list[str]], note: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a step of each side, and how many times as fast as ``before`` the others are.

    Sides that are not "before", "after" or "own" are edits by hand.

    Rounds that ``note`` has are not run again, and none is begun that would end behind ``--limit``.
    """
    kept: dict[str, Any] = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {"rounds": []}
    longest_s = 0.0
    while len(kept["rounds"]) < options.rounds and time.monotonic() + longest_s < options.until:
        began = time.monotonic()
        names = random.Random(len(kept["rounds"])).sample(sorted(sides), len(sides))
        kept["rounds"].append({name: _run(sides[name])["step_s"] for name in names})
        atomic_write(note, json.dumps(kept).encode())
        longest_s = max(longest_s, time.monotonic() - began)
    compared = [name for name in sides if name not in ("before", "own") and "--script" not in sides[name]]
    for name in set(compared) - set(kept.setdefault("same", {})):
        if time.monotonic() + longest_s < options.until:
            kept["same"][name] = _same(sides["before"], sides[name])
            atomic_write(note, json.dumps(kept).encode())
    row: dict[str, Any] = {"rounds": len(kept["rounds"]), "same_in_loop": kept["same"].get("after"), "tried": {}}
    if not kept["rounds"]:
        return row
    logs = {name: np.log([found[name] for found in kept["rounds"]]) for name in sides}
    for name, found in logs.items():
        if name in ("before", "after", "own"):
            row[f"{name}_ms"] = round(float(np.exp(found.mean())) * 1e3, 4)
        if name != "before":
            ratio = interval(logs["before"] - found, LEAST_SCALE).model_dump()
            times = {key: round(value, 4) for key, value in ratio.items()}
            if name in ("after", "own"):
                row["ratio" if name == "after" else "own_ratio"] = times
            else:
                row["tried"][name] = times | {"same": kept["same"].get(name)}
    return row


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, metavar="DIR", help="folder with the clones")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these pipelines")
    parser.add_argument("--budget", type=float, default=75.0, help="seconds of a command of xttsbench")
    parser.add_argument("--rounds", type=int, default=5, help="turns of before and after")
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/xttsbench/others", help="work folder")
    parser.add_argument("--out", type=Path, default=OUT, help="file for the JSON; the table lies beside it as .md")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no loop is begun")
    parser.add_argument("--readme", action="store_true", help="only write the tables of the pages again")
    options = parser.parse_args(arguments)
    names = [pipeline.name for pipeline in PIPELINES]
    if not options.readme and options.code is None:
        parser.error("--code DIR, with the clones that README.md lists, is missing")
    if unknown := set(options.only or ()) - set(names):
        parser.error(f"no pipeline {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if PROJECT in options.work.resolve().parents:
        parser.error(f"--work {options.work} is in this repository, where the code of others has no place")
    options.work, options.code = options.work.resolve(), options.code and options.code.resolve()
    options.until = time.monotonic() + options.limit
    return options


def written(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the results, with what they come to, and their page."""
    order = [pipeline.name for pipeline in PIPELINES]
    cpus = len(os.sched_getaffinity(0))
    result = {
        "machine": f"{cpus} processors, Linux {platform.release()}, Python {platform.python_version()}",
        "rows": [row | {"outcome": outcome(row)} for row in sorted(rows, key=lambda row: order.index(row["case"]))],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, f"{json.dumps(result, indent=1)}\n".encode())
    atomic_write(path.with_suffix(".md"), markdown(result).encode())


def main() -> None:
    """Measure what the work folder has not, and print."""
    options = parsed()
    rows = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.exists() else []
    if options.readme:
        for page, table in ((PROJECT / "README.md", readme), (PROJECT / "docs/case-studies.md", cases)):
            atomic_write(page, with_table(page.read_text(encoding="utf-8"), table(rows)).encode())
        return
    for pipeline in PIPELINES:
        if options.only and pipeline.name not in options.only:
            continue
        row = measured(pipeline, options)
        if "failed" in row or row["rounds"]:
            rows = [*(kept for kept in rows if kept["case"] != pipeline.name), row]
            written(options.out, rows)
        print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
