"""Does the diagnosis name the cause, on pipelines and steps whose fault is known; and what XProf says; prints JSON.

``python benchmarks/diagnosis [--only NAME ...] [--family F] [--quick] [--budget 60] [--no-xprof] [--shuffle SEED]
[--out FILE]``: for each case of :mod:`known`, each in a process of its own,

- the plain loop, as it is and tuned, timed: the truth about what the fault costs. Where the tuned one is not 1.3 times
  as fast, the case is not worth its name, and the output says so;
- ``xttsbench diagnose``: whether its verdict is the known one, whether the required rules are among the findings, and
  none is limiting that must not be; whether a limiting finding points to the line at fault; the seconds that it took,
  what its attribution leaves over; and the throughput that it predicts, as it is and with the fixes that turn the case
  into the tuned one, beside the plain loop's;
- the dataset's way through its graph and back, and whether it and the tuned one yield the same elements;
- XProf, on a TensorFlow profile of the same loop with step markers around ``next()`` and the step, as its guide asks:
  whether it says that the step waits for its input, and what it advises. For a few cases also with ``next()`` outside
  of the marker, without markers, and with Keras ``fit``.

Goals: every verdict right and nothing wrongly limiting, healthy cases clean, within 60 s, a residual within 3 % of the
step, predictions within 10 % (median) and 25 % (90th percentile) both as it is and tuned. ``met`` is in the output;
the exit code is 0 always. A table goes to standard error. Some two hours on two cores that have nothing else to do;
``--quick`` takes one case of each family with less time for each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from cases import Case
from figures import GOALS, figures, met
from judging import error, judged, predicted_per_s, right
from known import CASES
from looks import PROJECT, diagnose, look
from table import HEAD, line

OTHER_WAYS = ("blocking_map", "gil_map_in_parallel", "interleave_in_turn", "compiled_and_prefetched")
"""Cases that XProf sees in other ways than its guide's, too."""
BUSY_LIMIT, LOOK_S = 0.1, 0.3
"""Share of the cores in use by others above which figures are provisional, and how long is looked before a case."""
QUICK_BUDGET_S, TIMED_S, QUICK_TIMED_S = 30.0, 5.0, 2.0


def measured(case: Case, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything about one case."""
    busy = psutil.cpu_percent(interval=LOOK_S) / 100
    seconds = str(QUICK_TIMED_S if options.quick else TIMED_S)
    plain = look(case, folder, "time", "--seconds", seconds)
    tuned = {} if case.healthy else look(case, folder, "time", "--tuned", "--seconds", seconds)
    row: dict[str, Any] = {
        "case": case.name,
        "family": case.family,
        "healthy": case.healthy,
        "others_used_of_the_cores": busy,
        "known": "|".join(case.bottlenecks),
        "fixes": list(case.fixes),
        "plain_steps_per_s": plain.get("steps_per_s"),
        "tuned_steps_per_s": tuned.get("steps_per_s"),
        "problems": [found["error"] for found in (plain, tuned) if "error" in found],
    }
    row["tuned_over_plain"] = _ratio(row["tuned_steps_per_s"], row["plain_steps_per_s"])
    row |= _diagnosed(case, row, diagnose(case, folder, options.budget))
    compared = look(case, folder, "trip")
    row["problems"] += [compared.pop("error")] if "error" in compared else []
    row |= compared
    if not options.no_xprof:
        row["xprof"] = _xprof(case, folder)
    return row


def _diagnosed(case: Case, row: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    report = found["report"]
    told = {"seconds": round(found["seconds"], 1), "exit_code": found["exit_code"]}
    if report is None:
        return told | {"right": False, "wrongly_limiting": [], "diagnosis_failed": found["error"]}
    as_it_is, step = predicted_per_s(report, ()), report["verdict"]["step_time_s"]
    with_fixes = predicted_per_s(report, case.fixes) if case.fixes else None
    return {
        **told,
        **judged(case, report),
        "failed_trials": [f"{one['id']}: {one['cause']}" for one in report["trials"] if one["status"] != "ok"],
        "unmeasured": {name: why for name, why in report["unmeasured"].items() if name in ("pipeline", "predictions")},
        "report_steps_per_s": 1 / step["estimate"] if step else None,
        "predicted_per_s": as_it_is,
        "prediction_error": error(as_it_is, row["plain_steps_per_s"]),
        "predicted_tuned_per_s": with_fixes,
        "tuned_prediction_error": error(with_fixes, row["tuned_steps_per_s"]),
    }


def _xprof(case: Case, folder: Path) -> dict[str, Any]:
    ways = ("markers", "outside", "none", "fit") if case.name in OTHER_WAYS else ("markers",)
    found = {}
    for how in ways:
        said = look(case, folder, "profile", "--how", how)
        says = said.get("says", "nothing")
        found[how] = said | {"right": right(says, input_bound="input" in case.bottlenecks)}
    return found


def _ratio(over: float | None, under: float | None) -> float | None:
    return round(over / under, 3) if over and under else None


def chosen(cases: Sequence[Case], options: argparse.Namespace) -> list[Case]:
    """The cases to measure: those named, those of a family, all, and with ``--quick`` the first of each family."""
    found = [case for case in cases if not options.only or case.name in options.only]
    found = [case for case in found if options.family in (None, case.family)]
    if options.quick and not options.only:
        found = list({case.family: case for case in reversed(found)}.values())[::-1]
    if options.shuffle is not None:
        random.Random(options.shuffle).shuffle(found)
    return found


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these cases")
    parser.add_argument("--family", choices=sorted({case.family for case in CASES}))
    parser.add_argument("--quick", action="store_true", help="one case of each family, and less time for each")
    parser.add_argument("--budget", type=float, help=f"seconds of a diagnosis (60, quick {QUICK_BUDGET_S:g})")
    parser.add_argument("--no-xprof", action="store_true", help="leave XProf out")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="in another order: what is done is a fair sample")
    parser.add_argument("--out", type=Path, help="a file for the JSON, beside standard output")
    options = parser.parse_args(arguments)
    options.budget = options.budget or (QUICK_BUDGET_S if options.quick else 60.0)
    if not chosen(CASES, options):
        parser.error(f"no such case; there are {', '.join(case.name for case in CASES)}")
    return options


def summary(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """The output: goals, figures, whether they are met, circumstances, and the rows."""
    values = figures(rows)
    goals_met = met(values)
    return {
        "goals": GOALS,
        "value": values,
        "goals_met": goals_met,
        "met": all(is_met is not False for is_met in goals_met.values()),
        "budget_s": options.budget,
        "quick": options.quick,
        "provisional": max(row["others_used_of_the_cores"] for row in rows) > BUSY_LIMIT,
        "cpus": len(os.sched_getaffinity(0)),
        "results": rows,
    }


def main() -> None:
    """Measure each case and print."""
    options = parsed()
    print(HEAD, file=sys.stderr)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="diagnosis-") as folder:
        for case in chosen(CASES, options):
            rows.append(measured(case, options, Path(folder)))
            print(line(rows[-1]), file=sys.stderr, flush=True)
            text = json.dumps(summary(rows, options), indent=2).replace(folder, "FOLDER").replace(f"{PROJECT}/", "")
            if options.out:  # after each case, since the next one may be what ends the run
                options.out.write_text(f"{text}\n", encoding="utf-8")
    print(json.dumps(figures(rows), indent=2), file=sys.stderr)
    print(text)


if __name__ == "__main__":
    main()
