"""Is the share of CPU contention that a trial finds the one that is really there? Prints a table; JSON with ``--out``.

``python benchmarks/contention [--only NAME ...] [--seconds 20] [--out FILE]``: targets whose input and step compete for
two processors, behind a prefetch of 2, 16, 64 and AUTOTUNE, and in processes of their own. The truth is measured in a
process of its own, by a loop that knows nothing of rounds: the step while no input exists, before and after, and the
step beside its input in a long training, of which the beginning is left out. Goals: the share within
three points of the truth, and the same processor time per step in the step alone of all rounds. It is for two idle
processors; on others the input hardly gets in the step's way.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xttsbench.analysis.steps import steps_of
from xttsbench.diagnosis import build_diagnosis
from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import run_trial
from xttsbench.files import atomic_write
from xttsbench.probes.environment import environment
from xttsbench.probes.monitor import Monitor
from xttsbench.records.trial import TrialRecord, TrialSpec

TARGETS = Path(__file__).with_name("targets.py")
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "prefetch 2": ("slow_map", {"prefetch": 2}),
    "prefetch 16": ("slow_map", {"prefetch": 16}),
    "prefetch 64": ("slow_map", {"prefetch": 64}),
    "prefetch AUTOTUNE": ("slow_map", {"prefetch": -1}),
    "one loader in a process": ("in_processes", {"workers": 1}),
}
POINTS = 0.03  # Between the share that a trial finds and the truth
CPU_SPREAD = 0.10  # Of the processor time of a step alone, from round to round


def truth(name: str, seconds: float) -> dict[str, float]:
    """Milliseconds of the step beside its input in a long training and without one, and the share that it lost."""
    import targets

    function, arguments = CASES[name]
    dataset, step = getattr(targets, function)(**arguments)
    iterator = iter(dataset)
    batches = [next(iterator) for _ in range(8)]
    del iterator
    alone, beside = [_pace_s(lambda n: step(batches[n % 8]), seconds / 4)], []
    iterator = iter(dataset)
    _pace_s(lambda n: step(next(iterator)), seconds)
    beside.append(_pace_s(lambda n: step(next(iterator)), seconds))
    time.sleep(seconds / 4)  # Its buffers are full, and it stands still
    alone.append(_pace_s(lambda n: step(batches[n % 8]), seconds / 4))
    pace_s = float(np.mean(beside))
    return {"wall_ms": 1e3 * pace_s, "alone_ms": 1e3 * float(np.mean(alone)), "share": 1 - np.mean(alone) / pace_s}


def _pace_s(step: Any, seconds: float) -> float:
    for number in range(3):
        step(number)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step(steps)
        steps += 1
    return (time.perf_counter() - began) / steps


def found(name: str, helper: Helper) -> dict[str, Any]:
    """What a trial says of a case: the share of contention, and the processor time of the step alone by round."""
    function, arguments = CASES[name]
    spec = TrialSpec(trial_id="000-ladder", kind="ladder", target=f"{TARGETS}:{function}", kwargs=arguments, block=1)
    trial = run_trial(spec, helper, Limits(180.0, 60.0), monitor=lambda pid: Monitor(pid, gpus=(None, "not asked")))
    told = build_diagnosis([trial], environment())
    return {
        "bottleneck": told.bottleneck,
        "share": told.evidence.share("contention"),
        "input_alone_ms": 1e3 * told.figures["input_alone_s"].value,
        "idle": [mark.input_idle for mark in trial.rounds if mark.input_idle is not None],
        "alone_cpu_ms": cpu_ms_by_round(trial),
        "seconds": trial.duration_s,
    }


def cpu_ms_by_round(trial: TrialRecord) -> list[float]:
    """Mean processor time of a step alone, children included, in milliseconds; one for each round."""
    segment = trial.segment("step_only")
    steps = steps_of(segment) if segment is not None else None
    return [] if steps is None else [1e3 * steps.cpu_s[steps.round == n].mean() for n in np.unique(steps.round)]


def judged(row: dict[str, Any]) -> list[str]:
    """Goals that a case misses."""
    cpu_ms = np.array(row["trial"]["alone_cpu_ms"])
    return [
        *(["share"] if abs(row["trial"]["share"] - row["truth"]["share"]) > POINTS else []),
        *(["processor time"] if (np.abs(cpu_ms / np.median(cpu_ms) - 1) > CPU_SPREAD).any() else []),
        *(["idle"] if not all(row["trial"]["idle"]) else []),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; 1 where one misses a goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seconds", type=float, default=20.0, help="of the truth's measured stretch")
    parser.add_argument("--out", type=Path, help="file for the JSON")
    parser.add_argument("--truth", choices=list(CASES), help=argparse.SUPPRESS)  # In a process of its own
    options = parser.parse_args(arguments)
    if options.truth:
        print(json.dumps(truth(options.truth, options.seconds)), flush=True)
        return 0
    rows: dict[str, Any] = {}
    with Helper() as helper:
        helper.wait_ready()
        for name in options.only:
            command = [sys.executable, str(Path(__file__).parent), "--truth", name, "--seconds", str(options.seconds)]
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
            row = {"truth": json.loads(said.splitlines()[-1]), "trial": found(name, helper)}
            rows[name] = row | {"missed": judged(row)}
            print(
                f"{name:24} truth {row['truth']['share']:6.1%}  found {row['trial']['share']:6.1%}  "
                f"step alone {', '.join(f'{ms:.1f}' for ms in row['trial']['alone_cpu_ms'])} ms of processor time  "
                f"{', '.join(rows[name]['missed']) or 'ok'}",
                flush=True,
            )
    if options.out:
        atomic_write(options.out, json.dumps(rows, indent=1, default=float).encode())
    return int(any(row["missed"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
