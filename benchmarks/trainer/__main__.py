"""What the trainer costs beside a loop written by hand, gains over an eager one, and waits for data; prints JSON.

``python benchmarks/trainer [--recipes tiny small] [--modes graph xla] [--quick] [--no-waiting] [--out FILE]``, in one
run, on speech that is made for it in a temporary directory:

- *the trainer adds nothing*: ``xttsbench train``'s process, started and followed as the command does (the whole loop
  over the packed loader, its watch, its monitor; no evaluation and no checkpoint in the timed steps), beside the bare
  loop of :mod:`bare` on the same batches, which lie in memory. Samples per second, both compiled in the same way. Goal
  for the ratio: 0.98, and 0.95 for the lower end of its interval.
- *ahead of eager*: the trainer over the same bare loop run eagerly, on the steps that both took. Goal for ``tiny``: 5;
  for ``small`` none, since the longer an operation computes, the less its dispatch weighs. The earlier project claimed
  5-10 times, on a GPU, where an operation takes microseconds and dispatch is nearly all there is: on a processor the
  arithmetic, which no compiler removes, sets the limit.
- *not starved*: the command ``xttsbench train`` behind an emulated accelerator, which waits as long as a GPU computes
  and leaves the input its real work. Share of the time that it waits for batches, out of its own report. Goals: 2 % at
  most with ``packed``; with ``numpy_wav`` more than 20 %, or the figure would show nothing.

Each side is a fresh process for each block, in random order, and in reverse in the next block; a ratio is the
geometric mean over the blocks, with Student's interval on its logs. Tracing, compilation and the first interval of
steps are left out on both sides (of the eager loop, a step of each shape).

Where the rest goes: beside the ratio is what the trainer's own watch says of the timed steps. *Waiting* is for a
batch; *between* the steps are the loop, what is told, and the losses that are fetched at an interval's end. What else
is missing from the ratio is in the *step*: the loader's threads share the processor with it, and its update looks for
gradients that are not finite. Its Adam is one operation for each weight, where Keras's are several, which works the
other way, so that a ratio above 1 is possible. Of the waiting, a part is no lack of batches: tf.data takes a while to
hand over even one that lies ready, the longer if the processor has idled meanwhile, and of a short step that is a
visible share (see ``--step-ms``).

A table goes to standard error. It needs a quiet machine: what other programs used of the cores just before each
process is in the output, and where that is more than a tenth the figures are called provisional. Some five minutes on
two cores; with ``small`` as well five more, and with ``xla`` several times as long, for every process compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
from blocks import Rates, Timed, figure, orders, ratio
from sides import FailedError, bare, trainer
from waiting import waited
from work import CLIPS, MAX_S, MIN_S, SEED, WORKS, Work, quick

from xttsbench.probes.environment import environment
from xttsbench.xtts.data.make import make_data

SAME_GOAL, SAME_LOW, EAGER_GOALS = 0.98, 0.95, {"tiny": 5.0}
EARLIER_CLAIM = "5-10 times eager, on a GPU"
STEP_MS, WAIT_STEPS, QUICK_WAIT_STEPS = 10.0, 300, 40
WAIT_GOAL, VISIBLE_GOAL = 0.02, 0.2
BUSY_LIMIT, LOOK_S = 0.1, 0.2
"""Share of the cores in use by others above which figures are provisional, and how long is looked before a process."""

EAGER = "bare eager"


class Runs:
    """Runs processes on a data set, and notes how busy the machine was before each."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data, self._folder = data, folder
        self.busy: list[float] = []

    def directory(self) -> Path:
        """Return a new directory."""
        return Path(tempfile.mkdtemp(dir=self._folder))

    def timed(self, work: Work, arm: str) -> Timed:
        """Run one process of an arm, ``trainer MODE`` or ``bare MODE``."""
        self.look()
        side, mode = arm.split()
        job = work.job(mode, self.data, self.directory())
        return trainer(job, work.intervals) if side == "trainer" else bare(job, 1 if arm == EAGER else work.intervals)

    def look(self) -> None:
        """Note which share of the cores is in use, when nothing of ours runs."""
        self.busy.append(psutil.cpu_percent(interval=LOOK_S) / 100)


def played(runs: Runs, work: Work, modes: list[str], seed: int) -> dict[str, dict[int, Timed]]:
    """Return what each arm's processes measured, by the number of the block."""
    arms = [*(f"{side} {mode}" for mode in modes for side in ("bare", "trainer")), EAGER]
    found: dict[str, dict[int, Timed]] = {arm: {} for arm in arms}
    for block, order in enumerate(orders(arms, {EAGER: work.eager_blocks}, work.blocks, seed)):
        print(f"{work.recipe}: block {block + 1} of {work.blocks}: {', '.join(order)}", file=sys.stderr, flush=True)
        for arm in order:
            found[arm][block] = runs.timed(work, arm)
    return found


def rates(timed: dict[int, Timed], intervals: int | None = None) -> Rates:
    """Return samples per second by the number of the block."""
    return {block: own.rate(intervals) for block, own in timed.items()}


def compared(work: Work, modes: list[str], found: dict[str, dict[int, Timed]]) -> dict[str, Any]:
    """Return a recipe's figures, each beside its goal."""
    figures = {}
    for mode in modes:
        ours, theirs = found[f"trainer {mode}"], found[f"bare {mode}"]
        same = figure(ratio(rates(ours), rates(theirs)), SAME_GOAL, low=SAME_LOW)
        shares = [own.shares for own in ours.values() if own.shares is not None]
        where = {name: round(statistics.mean(own[name] for own in shares), 4) for name in shares[0]}
        figures[f"{work.recipe}: trainer / bare loop, {mode}"] = same | {"trainer_time": where}
        # One interval, for the eager loop took no other.
        ahead = figure(ratio(rates(ours, 1), rates(found[EAGER], 1)), EAGER_GOALS.get(work.recipe))
        figures[f"{work.recipe}: trainer {mode} / bare loop, eager"] = ahead | {"earlier_claim": EARLIER_CLAIM}
    return figures


def starving(runs: Runs, step_ms: float, steps: int) -> dict[str, Any]:
    """Return the shares of the time that the command waited, each beside its goal."""
    figures = {}
    for loader in ("packed", "numpy_wav"):
        print(f"waiting for data: {loader}", file=sys.stderr, flush=True)
        runs.look()
        # The command makes its run's directory itself.
        value = waited(loader, runs.data, step_ms, steps, runs.directory() / "run")
        goal, at_most = (WAIT_GOAL, True) if loader == "packed" else (VISIBLE_GOAL, False)
        figures[f"waiting for data, {loader}, steps of {step_ms:g} ms"] = figure(value, goal, at_most=at_most)
    return figures


def table(result: dict[str, Any]) -> str:
    """Return the output for people."""
    lines = [f"{'figure':50} {'value':>8} {'interval':>18} {'goal':>8} {'met':>4}"]
    for name, own in result["figures"].items():
        value, goal = own["value"], own["goal"]
        interval = f"{value['low']:.3f} .. {value['high']:.3f}" if value and "low" in value else ""
        shown = "" if goal is None else f"{'<=' if own.get('at_most') else '>='} {goal:g}"
        met = {True: "yes", False: "NO", None: ""}[own["met"]]
        estimate = f"{value['estimate']:.3f}" if value else "none"
        lines.append(f"{name:50} {estimate:>8} {interval:>18} {shown:>8} {met:>4}")
        if "trainer_time" in own:
            told = ", ".join(f"{what} {share:.1%}" for what, share in own["trainer_time"].items())
            lines.append(f"    the trainer's time: {told}")
        if "earlier_claim" in own:
            lines.append(f"    the earlier project claimed {own['earlier_claim']}")
    if result["provisional"]:
        busy = result["others_used_of_the_cores"]["median"]
        lines += ["", f"provisional: other programs used {busy:.0%} of the cores (median), or it is a smoke test"]
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="trainer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", nargs="+", choices=list(WORKS), default=["tiny"], help="to train (tiny)")
    parser.add_argument("--modes", nargs="+", choices=["graph", "xla"], default=["graph"], help="of the step (graph)")
    parser.add_argument("--blocks", type=int, help="in place of each recipe's own number")
    parser.add_argument("--step-ms", type=float, default=STEP_MS, help=f"of the emulated accelerator ({STEP_MS:g})")
    parser.add_argument("--seed", type=int, default=0, help="of the order within the blocks (0)")
    parser.add_argument("--no-waiting", action="store_true", help="leave the waiting for data out")
    parser.add_argument("--quick", action="store_true", help="a smoke test: too few steps and blocks to judge by")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    if options.step_ms <= 0 or (options.blocks is not None and options.blocks < 1):
        parser.error("--step-ms is above 0, --blocks 1 at least")
    return options


def main() -> None:
    """Measure and print."""
    options = parsed()
    works = [quick(WORKS[name]) if options.quick else WORKS[name] for name in options.recipes]
    if options.blocks is not None:
        works = [replace(work, blocks=options.blocks) for work in works]
    wait_steps = QUICK_WAIT_STEPS if options.quick else WAIT_STEPS
    figures: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="trainer-") as name:
        folder = Path(name)
        os.environ["XTTSBENCH_CACHE"] = str(folder / "cache")  # where the features go, in all processes
        print("making the data", file=sys.stderr, flush=True)
        make_data(folder / "data", CLIPS, SEED, MIN_S, MAX_S)
        runs = Runs(folder / "data", folder)
        try:
            for work in works:
                found = played(runs, work, options.modes, options.seed)
                figures |= compared(work, options.modes, found)
                measured[work.recipe] = {
                    arm: [round(own.rate(), 2) for own in by_block.values()] for arm, by_block in found.items()
                }
            if not options.no_waiting:
                figures |= starving(runs, options.step_ms, wait_steps)
        except FailedError as error:
            sys.exit(f"nothing was compared: {error}")
    machine, busy = environment(), statistics.median(runs.busy)
    result = {
        "met": all(own["met"] for own in figures.values() if own["goal"] is not None),
        "provisional": options.quick or busy > BUSY_LIMIT,
        "figures": figures,
        "samples_per_s": measured,
        "others_used_of_the_cores": {"median": round(busy, 3), "most": round(max(runs.busy), 3)},
        "machine": {"cpu": machine["cpu"]["model"], "cores": len(os.sched_getaffinity(0))},
        "versions": {"python": machine["python"]["version"], "tensorflow": machine["packages"]["tensorflow"]},
        "settings": {
            "works": [asdict(work) for work in works],
            "modes": options.modes,
            "clips": CLIPS,
            "seconds_of_a_clip": [MIN_S, MAX_S],
            "emulated_step_ms": options.step_ms,
            "emulated_steps": wait_steps,
            "order": f"random, and its reverse in the next block, seed {options.seed}",
        },
    }
    print(table(result), file=sys.stderr)
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
