"""The verdict on targets whose bottleneck is known: is it the right one, how soon, and what is left over; prints JSON.

``python benchmarks/verdict.py [--all | --only NAME] [--quick]``: ``xttsbench diagnose --budget 60`` on targets of
``tests/targets``, in processes of their own: of ``bottlenecks.py`` the first one for each verdict, with ``--all`` every
one, and all of ``healthy.py``, where the verdict has to be ``compute`` and no finding may be limiting. A target that
needs a GPU is left out where there is none. Goals: the known verdict, within 60 s from the command to the written
report, with a residual within 3 % of the step. A table goes to standard error.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xttsbench.records.report import Report

TARGETS = Path(__file__).resolve().parent.parent / "tests" / "targets"
GOAL_S, RESIDUAL_GOAL = 60.0, 0.03
BUDGET, QUICK_BUDGET = "60", "30"
EXTRA = {
    # A dataset alone is limited by its input, always; an emulated accelerator makes it a question.
    "dataset_only": ("--accelerator", "emulated:20")
}
NEEDS_GPU = ("copies_to_the_device",)


@dataclass(frozen=True)
class Known:
    """A target and what is known of it."""

    name: str
    file: Path
    verdict: str
    healthy: bool


def known_targets() -> list[Known]:
    """Public functions of the two files; the first word of a docstring in ``bottlenecks.py`` is the verdict."""
    found, gpu = [], Path("/proc/driver/nvidia/version").exists()
    for name in ("bottlenecks.py", "healthy.py"):
        for node in ast.parse((TARGETS / name).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                if node.name in NEEDS_GPU and not gpu:
                    continue
                healthy = name == "healthy.py"
                verdict = "compute" if healthy else (ast.get_docstring(node) or "").partition(":")[0]
                found.append(Known(node.name, TARGETS / name, verdict, healthy))
    return found


def measure(target: Known, budget: str) -> dict[str, Any]:
    """Diagnose one target."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "xttsbench",
            "diagnose",
            f"{target.file}:{target.name}",
            "--budget",
            budget,
            "--no-verify",
        ]
        command += [part.format(folder=folder) for part in EXTRA.get(target.name, ())] + ["--out", f"{folder}/run"]
        began = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.monotonic() - began
        try:
            report = Report.model_validate_json(Path(folder, "run", "report.json").read_bytes()).model_dump()
        except OSError:
            return {"target": target.name, "known": target.verdict, "met": False, "error": done.stderr[-500:]}
    verdict = report["verdict"]
    limiting = [finding["rule"] for finding in report["findings"] if finding["limiting"]]
    step, parts = verdict["step_time_s"], verdict["attribution_s"]
    residual = abs(parts["residual"]) / step["estimate"] if step and parts else None
    right = verdict["bottleneck"] == target.verdict and done.returncode in (0, 3)
    right = right and not (target.healthy and limiting)
    small = residual is None or residual <= RESIDUAL_GOAL
    return {
        "target": target.name,
        "known": "compute, nothing limiting" if target.healthy else target.verdict,
        "verdict": verdict["bottleneck"],
        "confidence": round(verdict["confidence"], 3),
        "seconds": round(seconds, 1),
        "residual_share": round(residual, 4) if residual is not None else None,
        "step_ms": round(step["estimate"] * 1e3, 3) if step else None,
        "limiting": limiting,
        "exit_code": done.returncode,
        "met": right and seconds <= GOAL_S and small,
    }


def row(cells: dict[str, Any]) -> str:
    """One line of the table."""
    residual = cells.get("residual_share")
    return "{:31} {:26} {:13} {:>7} {:>9} {:>4}".format(
        cells["target"],
        cells["known"],
        cells.get("verdict", "error"),
        cells.get("seconds", ""),
        f"{residual:.2%}" if residual is not None else "",
        "yes" if cells["met"] else "NO",
    )


def chosen(targets: list[Known], only: str | None, *, every: bool) -> list[Known]:
    """The targets to measure."""
    if only:
        return [target for target in targets if target.name == only]
    if every:
        return targets
    first = {target.verdict: target for target in reversed(targets) if not target.healthy}
    return [target for target in targets if target.healthy or first[target.verdict] is target]


def main() -> None:
    """Measure each target and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every target (a quarter of an hour)")
    parser.add_argument("--only", metavar="NAME", help="one target")
    parser.add_argument("--quick", action="store_true", help=f"a budget of {QUICK_BUDGET} s instead of {BUDGET} s")
    options = parser.parse_args()
    targets = chosen(known_targets(), options.only, every=options.all)
    if not targets:
        parser.error(f"no target is called {options.only!r}; there are {[known.name for known in known_targets()]}")
    print(f"{'target':31} {'known':26} {'verdict':13} {'seconds':>7} {'residual':>9} {'met':>4}", file=sys.stderr)
    results = []
    for target in targets:
        results.append(measure(target, QUICK_BUDGET if options.quick else BUDGET))
        print(row(results[-1]), file=sys.stderr, flush=True)
    result = {
        "goal": {"verdict": "the known one", "seconds": GOAL_S, "residual_share": RESIDUAL_GOAL},
        "value": {
            "right": sum(found["met"] for found in results),
            "of": len(results),
            "seconds_max": max(found.get("seconds", 0.0) for found in results),
            "residual_share_max": max((found.get("residual_share") or 0.0 for found in results), default=0.0),
        },
        "met": all(found["met"] for found in results),
        "budget_s": float(QUICK_BUDGET if options.quick else BUDGET),
        "cpus": len(os.sched_getaffinity(0)),
        "results": results,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
