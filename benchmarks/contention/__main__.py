"""Is the share of CPU contention that a trial finds the one that is really there? Prints a table; JSON with ``--out``.

``python benchmarks/contention [--only NAME ...] [--turns 6] [--out FILE]``: targets whose input and step compete for
two processors, behind a prefetch of 2, 16, 64 and AUTOTUNE, and in processes of their own. The truth is measured by two
processes that know nothing of rounds and take turns: the step beside its input, and the step where no input exists.
Goals: the share within three points of the truth, and the same processor time per step in the step alone of all
rounds. It is for two processors; on more the input hardly gets in the step's way.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
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


TURN_S, SETTLE_S = 4.0, 1.0
"""Length of a turn, of which the beginning is left out."""
_MOST_STEPS = 100_000


def stepping(name: str, side: str, times: Path) -> None:
    """Step for ever, ``beside`` the input or ``alone`` in a process that has none by then; steps' ends go to a file."""
    import targets

    function, arguments = CASES[name]
    dataset, step = getattr(targets, function)(**arguments)
    iterator = iter(dataset)
    batches = [next(iterator) for _ in range(8)]
    if side == "alone":
        del iterator
        for child in multiprocessing.active_children():
            child.kill()
    ends = np.memmap(times, dtype=np.float64, mode="r+", shape=(_MOST_STEPS,))
    for number in range(_MOST_STEPS):
        step(batches[number % 8] if side == "alone" else next(iterator))
        ends[number] = time.perf_counter()


def truth(name: str, turns: int, folder: Path) -> dict[str, float]:
    """Milliseconds of the step beside its input and without one, in two processes that take turns; the share lost.

    Whatever a neighbour does hits both alike. Each stands still, with all that it started, while the other runs.
    """
    walls: dict[str, list[float]] = {"beside": [], "alone": []}
    files = {side: folder / side for side in walls}
    children = {}
    for side, file in files.items():
        np.zeros(_MOST_STEPS).tofile(file)
        command = [sys.executable, str(Path(__file__).parent), "--truth", name, "--side", side, "--times", str(file)]
        children[side] = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for side, child in children.items():
            while not np.fromfile(files[side])[20]:  # built, compiled, and on its way
                assert child.poll() is None, f"{name}: the process of the step {side} ended"
                time.sleep(0.2)
            os.killpg(child.pid, signal.SIGSTOP)
        for turn in range(turns):
            for side in sorted(children, reverse=bool(turn % 2)):
                began = time.perf_counter()
                os.killpg(children[side].pid, signal.SIGCONT)
                time.sleep(SETTLE_S + TURN_S)
                os.killpg(children[side].pid, signal.SIGSTOP)
                ends = np.fromfile(files[side])
                walls[side] += np.diff(ends[ends > began + SETTLE_S]).tolist()
    finally:
        for child in children.values():
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    beside_s, alone_s = (float(np.mean(walls[side])) for side in ("beside", "alone"))
    return {"wall_ms": 1e3 * beside_s, "alone_ms": 1e3 * alone_s, "share": 1 - alone_s / beside_s}


def found(name: str, helper: Helper) -> dict[str, Any]:
    """The share of contention that a trial finds in a case, and the processor time of the step alone by round."""
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
    parser.add_argument("--turns", type=int, default=6, help="of each process that measures the truth")
    parser.add_argument("--out", type=Path, help="file for the JSON")
    parser.add_argument("--truth", choices=list(CASES), help=argparse.SUPPRESS)  # In a process of its own
    parser.add_argument("--side", choices=("beside", "alone"), help=argparse.SUPPRESS)
    parser.add_argument("--times", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.truth:
        stepping(options.truth, options.side, options.times)
        return 0
    rows: dict[str, Any] = {}
    with Helper() as helper, tempfile.TemporaryDirectory() as folder:
        helper.wait_ready()
        for name in options.only:
            row = {"truth": truth(name, options.turns, Path(folder)), "trial": found(name, helper)}
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
