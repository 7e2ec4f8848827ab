"""What ``xttsbench optimize`` is worth on scripts, beside their hand-tuned version and AUTOTUNE.

``python benchmarks/fixes/scripts.py [--only NAME ...] [--code DIR] [--budget 120] [--blocks 2] --out DIR``: for each
script of :mod:`script_cases`, and of :mod:`public_scripts` whose clones lie in ``--code``, unmodified,

- ``xttsbench optimize SCRIPT -- ARGS`` in a directory of its own, unless its run is there;
- in one session, in turns in the script's own loop: the original, the script with the patch of that run, the hand-tuned
  text, and AUTOTUNE's (:mod:`script_cases`).

``--out`` gets ``scripts.md`` with what :mod:`__main__` has for callables, and a line in ``cases.jsonl`` for each case.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from accepted import said
from faulty import PROJECT
from kept import keep, kept
from public_scripts import ENVIRONMENT, PUBLIC, MissingError
from script_cases import CASES, ScriptCase
from side_by_side import GROUP, OURS, STALL_S, STEPS, TRIAL_S, TUNED, measured
from versions import AUTOTUNE, ORIGINAL
from written import short, table

from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.journal import read_trials
from xttsbench.records.plan import Comparison, PlannedVariant
from xttsbench.records.report import Report
from xttsbench.workflows.measure.session import Session
from xttsbench.workflows.optimize import IN_GRAPH, again, read_patch

_AFTER_BUDGET_S = 60.0


def optimized(case: ScriptCase, folder: Path, budget_s: float) -> dict[str, Any]:
    """The report of the command on a copy of the script, which is run unless it is there; see :func:`accepted.said`."""
    out = folder / "run"
    if case.file.parent != folder:
        (folder / case.file.name).write_bytes(case.file.read_bytes())
    began = time.monotonic()
    if not (out / "report.json").exists():
        command = [sys.executable, "-m", "xttsbench", "optimize", case.file.name, "--json", "--out", "run"]
        subprocess.run(
            [*command, "--budget", f"{budget_s:g}", "--", *case.arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.DEVNULL,
            timeout=budget_s + _AFTER_BUDGET_S,
            check=False,
        )
        (out / "seconds").write_text(f"{time.monotonic() - began:.1f}")
    report = Report.model_validate_json((out / "report.json").read_bytes()).model_dump()
    return said({"seconds": float((out / "seconds").read_text()), "exit_code": 0, "report": report})


def planned(case: ScriptCase, folder: Path, fixes: str | None, options: argparse.Namespace) -> Comparison:
    """The comparison of a script's versions in its own loop; without accepted fixes the original stands for ours.

    Raises:
        ValueError: the script could not be run again.
    """
    script = str(folder / case.file.name)
    first = read_trials(folder / "run")[0].script
    known = again(first, folder / "session") if first is not None else None
    if known is None:
        raise ValueError("the script fed its training loop from no tf.data.Dataset that could be seen")
    texts = {TUNED: case.version(case.tuned), AUTOTUNE: case.version(case.autotune)}
    patch, fix = read_patch(folder / "run"), None
    if fixes and patch is not None and patch.files and not patch.unpatched:
        (texts[OURS],) = patch.files.values()
    elif fixes:
        fix = fixes
    arms = [PlannedVariant(id=ORIGINAL, role="baseline")]
    for name in (OURS, TUNED, AUTOTUNE):
        if name not in texts and (name != OURS or fix is None):
            continue
        version = folder / f"{name}.py"
        version.write_text(texts.get(name, case.version({})), encoding="utf-8")
        config = {"version": name}
        patched = {script: str(version)} if name in texts else {}
        arms.append(
            PlannedVariant(id=name, role="candidate", config=config, patched=patched, fix=None if patched else fix)
        )
    return Comparison(
        name=GROUP,
        target=script,
        arguments=case.arguments,
        script=known,
        arms=tuple(arms),
        accelerators=(parse_accelerator("real"),),
        blocks=options.blocks,
        steps=STEPS,
        window_s=options.window,
        trial_s=TRIAL_S,
        stall_s=STALL_S,
        fill_caches=True,
        fill_s=STALL_S / 2,
    )


def done(case: ScriptCase, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one script."""
    folder = options.out / case.name
    (folder / "session").mkdir(parents=True, exist_ok=True)
    row: dict[str, Any] = {"case": case.name, "reachable": case.reachable, "budget_s": options.budget}
    row |= optimized(case, folder, options.budget)
    if options.optimize:
        return row
    row["others_used_of_the_cores"] = psutil.cpu_percent(interval=0.5) / 100
    plan = planned(case, folder, row["fixes"], options)

    def begin(session: Session) -> None:
        first = read_trials(folder / "run")[0].script
        assert first is not None
        session.runs_scripts_again(first.imports, IN_GRAPH if first.in_one_call else None, case.name)

    with contextlib.chdir(folder):
        row |= measured(plan, folder / "session", begin=begin)
    found: Mapping[str, Any] = row.get("data_said") or {}
    row["data"] = {"same": found["equivalent"], "how": found["how"]} if found else None
    return row


def main() -> None:
    """Do each script, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in (*CASES, *PUBLIC)]
    parser.add_argument("--only", metavar="NAME", nargs="+", default=names)
    parser.add_argument("--code", type=Path, help="directory of the clones of public scripts, by repository")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of each optimize (120)")
    parser.add_argument("--blocks", type=int, default=2, help="processes of each version (2)")
    parser.add_argument("--window", type=float, default=1.0, help="seconds of a turn (1)")
    parser.add_argument("--optimize", action="store_true", help="only run xttsbench optimize, to be measured later")
    parser.add_argument("--out", type=Path, required=True, help="directory of the results, gone on with")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    finished = kept(options.out)
    for one in (one for one in (*CASES, *PUBLIC) if one.name in options.only and one.name not in finished):
        try:
            case = one if isinstance(one, ScriptCase) else one.case(options.code, options.out / one.name)
        except MissingError as missing:
            print(missing, file=sys.stderr)
            continue
        os.environ.update({} if isinstance(one, ScriptCase) else ENVIRONMENT)
        row = done(case, options)
        if not options.optimize:
            keep(options.out, row)
        print(short(row), flush=True)
    rows = [row for name, row in kept(options.out).items()]
    busy = any(row["others_used_of_the_cores"] > 0.1 for row in rows)
    text = [
        "# Scripts, beside their hand-tuned version and AUTOTUNE",
        "",
        f"`python benchmarks/fixes/scripts.py`: {len(rows)} unmodified scripts on {psutil.cpu_count()} processors.",
        "`*`: what was done by hand is another function. Processes of versions with the same text have been 1.2 apart,",
        "and 1.6 where a step takes less than 2 ms.",
        *(["", "**Provisional: others used the processors meanwhile.**"] if busy else []),
        "",
        *table(rows),
    ]
    (options.out / "scripts.md").write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
