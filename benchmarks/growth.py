"""Time and memory of commands against the size of what they read; prints JSON, and draws it with ``--plot``.

``python benchmarks/growth.py [--quick] [--only AXIS] [--plot FILE]``. A size is one of these axes:

- ``steps``: of a stored run with an emulated accelerator, its rows repeated; ``report`` (with its page and plots) and
  ``compare`` of two such runs;
- ``trials``: of a stored sweep, its trials repeated as further processes; ``report``;
- ``configurations``: of a stored sweep, its trials repeated as further configurations; ``report``, and ``plan``: from
  a scenario's YAML to the comparison, and the choice of a first round;
- ``operations``: ``diagnose`` of a dataset whose maps have so many operations together; ``report`` of that run.

A time is the processor time of one process and its children, its memory the largest resident set of any of them.
``exponent`` is the slope of log(time) over log(size) in the upper half of the sizes, above what the smallest size
takes: 1 is linear. Goal: at most 1.2 in every row.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).resolve().parent.parent / "reports" / "reference"
GOAL = 1.2
SIZES = {
    "steps": (100, 1_000, 10_000, 100_000, 1_000_000),
    "trials": (10, 100, 1_000, 10_000, 100_000),
    "configurations": (10, 100, 1_000, 10_000),
    "operations": (10, 100, 1_000, 10_000),
}


@dataclass(frozen=True)
class Cost:
    """What one command took at one size."""

    size: int
    cpu_s: float
    peak_mb: float
    file_mb: float
    exit_code: int


def cost_of(command: list[str], size: int, read: Path, cwd: Path) -> Cost:
    """Run a command and wait for it; ``read`` is the file whose size is told."""
    with (cwd / "err.txt").open("wb") as err:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, cwd=cwd)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        sys.exit(f"{command} ended with {process.returncode}: {(cwd / 'err.txt').read_text(errors='replace')[-2000:]}")
    read_mb = read.stat().st_size / 1e6 if read.exists() else math.nan
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(size, round(cpu_s, 3), round(usage.ru_maxrss / 1e3, 1), round(read_mb, 3), process.returncode)


def xttsbench(*arguments: str) -> list[str]:
    """The command of this interpreter's package."""
    return [sys.executable, "-m", "xttsbench", *arguments]


def stored(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Plan and trials of a stored run."""
    plan = json.loads((REFERENCE / name / "plan.json").read_text(encoding="utf-8"))
    lines = (REFERENCE / name / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    return plan, [json.loads(line) for line in lines]


def write_run(directory: Path, name: str, plan: dict[str, Any], trials: Iterator[dict[str, Any]]) -> Path:
    """A run's directory with that plan and those trials; its environment is the stored run's."""
    directory.mkdir(parents=True)
    (directory / "environment.json").write_bytes((REFERENCE / name / "environment.json").read_bytes())
    (directory / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    journal = directory / "trials.jsonl"
    with journal.open("w", encoding="utf-8") as file:
        for trial in trials:
            file.write(json.dumps(trial, separators=(",", ":")) + "\n")
    return journal


def repeated_rows(columns: dict[str, list[int]], rows: int) -> dict[str, list[int]]:
    """Columns of that many rows: the given ones over and over, their starts moved on."""
    starts, walls = columns["start_ns"], columns["wall_ns"]
    period_ns, old = starts[-1] + walls[-1] - starts[0], len(starts)
    times = math.ceil(rows / old)
    found = {name: (values * times)[:rows] for name, values in columns.items() if len(values) == old}
    moved = [start + turn * period_ns for turn in range(times) for start in starts]
    return {**columns, **found, "start_ns": moved[:rows]}


def run_of_steps(directory: Path, steps: int, created_utc: str) -> Path:
    """The run of an oscillating and a cured configuration, each with that many steps."""
    plan, trials = stored("oscillation")
    plan["created_utc"] = created_utc
    for trial in trials:
        for segment in trial["segments"]:
            segment["columns"] = repeated_rows(segment["columns"], steps)
    return write_run(directory, "oscillation", plan, iter(trials))


def _template() -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    plan, trials = stored("sweep")
    return plan, trials[0], [trial for trial in trials[1:] if trial["spec"]["block"] in (0, 1)]


def run_of_trials(directory: Path, count: int) -> Path:
    """A sweep of five configurations in as many blocks as that many trials take."""
    plan, parity, block = _template()
    block = [trial for trial in block if trial["spec"]["block"] == 0]

    def trials() -> Iterator[dict[str, Any]]:
        yield parity
        for index in range(count):
            trial = block[index % len(block)]
            number = index // len(block)
            yield {**trial, "spec": {**trial["spec"], "trial_id": f"{index:06d}", "block": number}}

    return write_run(directory, "sweep", plan, trials())


def run_of_configurations(directory: Path, count: int) -> Path:
    """A sweep of that many configurations in two blocks."""
    plan, parity, found = _template()
    arms = plan["comparison"]["arms"]
    baseline, candidate, again = arms[0], arms[1], arms[-1]
    made = [{**candidate, "id": f"calls={calls}", "config": {"calls": calls}} for calls in range(2, count + 1)]
    plan["comparison"]["arms"] = [baseline, *made, again]
    kept = {(trial["spec"]["arm"], trial["spec"]["block"]): trial for trial in found}

    def trials() -> Iterator[dict[str, Any]]:
        number = 0
        yield parity
        for block in (0, 1):
            for arm in [baseline, *made, again]:
                own = arm if (arm["id"], block) in kept else candidate
                trial, number = kept[own["id"], block], number + 1
                spec = {**trial["spec"], "trial_id": f"{number:06d}", "arm": arm["id"]}
                yield {**trial, "spec": spec}

    return write_run(directory, "sweep", plan, trials())


PLANNED = """
import sys
from pathlib import Path
from xttsbench.comparison.sweep import next_round, seen_in
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.planning import plan_comparison, plan_procedure
from xttsbench.scenario.load import load_scenario
from xttsbench.scenario.settings import MOST_SWEEP_ARMS
scenario = load_scenario(Path(sys.argv[1]), target=str, accelerator=str, most_arms=MOST_SWEEP_ARMS)
comparison = plan_comparison(scenario, [parse_accelerator("emulated:10")])
assert next_round(comparison, plan_procedure(scenario), seen_in(comparison, ())) is not None
"""

MAPS = """
import tensorflow as tf


def longer(value):
    for _ in range({operations}):
        value = value + 1
    return value


def make():
    dataset = tf.data.Dataset.range(1_000_000)
    for _ in range({maps}):
        dataset = dataset.map(longer)
    return dataset.batch(16).prefetch(1)
"""
IN_A_MAP = 100  # a chain of 1,000 maps takes TensorFlow itself minutes before its first element


def steps(size: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    """Costs at that many steps."""
    journal = run_of_steps(folder / "a", size, "2026-11-21T18:15:00.000+00:00")
    run_of_steps(folder / "b", size, "2026-11-21T19:15:00.000+00:00")
    yield "report", cost_of(xttsbench("report", "a"), size, journal, folder)
    yield "compare", cost_of(xttsbench("compare", "a", "b"), size, journal, folder)


def trials(size: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    """Costs at that many trials in a journal."""
    journal = run_of_trials(folder / "a", size)
    yield "report", cost_of(xttsbench("report", "a"), size, journal, folder)


def configurations(size: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    """Costs at that many configurations."""
    journal = run_of_configurations(folder / "a", size)
    yield "report", cost_of(xttsbench("report", "a"), size, journal, folder)
    scenario = folder / "calls.yaml"
    values = ", ".join(map(str, range(1, size + 1)))
    text = f"name: calls\ntarget: data.py:make\ngrid:\n  calls: [{values}]\n"
    scenario.write_text(text, encoding="utf-8")
    yield "plan", cost_of([sys.executable, "-c", PLANNED, str(scenario)], size, scenario, folder)


def operations(size: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    """Costs of a dataset of that many operations."""
    wide = min(size, IN_A_MAP)
    (folder / "maps.py").write_text(MAPS.format(operations=wide, maps=size // wide), encoding="utf-8")
    journal = folder / "run" / "trials.jsonl"
    command = xttsbench("diagnose", "maps.py:make", "--accelerator", "emulated:5", "--budget", "300", "--out", "run")
    yield "diagnose", cost_of(command, size, journal, folder)
    yield "report", cost_of(xttsbench("report", "run"), size, journal, folder)


AXES: dict[str, Callable[[int, Path], Iterator[tuple[str, Cost]]]] = {
    "steps": steps,
    "trials": trials,
    "configurations": configurations,
    "operations": operations,
}


def exponent(costs: list[Cost], value: Callable[[Cost], float]) -> float | None:
    """Slope of log(value) over log(size) between the last sizes, above the value of the first; ``None`` where flat."""
    base, upper = value(costs[0]), costs[-2:]
    above = [value(cost) - base for cost in upper]
    if len(costs) < 3 or min(above) < 0.05 * base:
        return None
    return round(math.log(above[1] / above[0]) / math.log(upper[1].size / upper[0].size), 2)


def drawn(rows: dict[str, list[Cost]], file: Path) -> None:
    """Draw processor time and peak memory over size, a panel an axis."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name.split()[0] for name in rows))
    figure, panels = plt.subplots(2, len(names), figsize=(3.6 * len(names), 6), squeeze=False, layout="constrained")
    for column, axis in enumerate(names):
        for name, costs in rows.items():
            if name.split()[0] != axis:
                continue
            sizes = [cost.size for cost in costs]
            panels[0, column].loglog(sizes, [cost.cpu_s for cost in costs], "o-", label=name.split()[1])
            panels[1, column].loglog(sizes, [cost.peak_mb for cost in costs], "o-", label=name.split()[1])
        panels[0, column].set(title=axis, ylabel="processor time [s]" if not column else "")
        panels[1, column].set(xlabel=axis, ylabel="peak memory [MB]" if not column else "")
        panels[0, column].legend()
    figure.savefig(file, dpi=100)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out the largest size of each axis")
    parser.add_argument("--only", choices=AXES, help="one axis alone")
    parser.add_argument("--plot", type=Path, help="file of a plot")
    options = parser.parse_args()
    rows: dict[str, list[Cost]] = {}
    for axis in [options.only] if options.only else AXES:
        for size in SIZES[axis][: -1 if options.quick else None]:
            with tempfile.TemporaryDirectory() as folder:
                for command, cost in AXES[axis](size, Path(folder)):
                    rows.setdefault(f"{axis} {command}", []).append(cost)
                    print(axis, command, cost, file=sys.stderr)
    found = {
        name: {
            "exponent_of_time": exponent(costs, lambda cost: cost.cpu_s),
            "exponent_of_memory": exponent(costs, lambda cost: cost.peak_mb),
            "costs": [asdict(cost) for cost in costs],
        }
        for name, costs in rows.items()
    }
    slopes = [row[name] for row in found.values() for name in ("exponent_of_time", "exponent_of_memory")]
    met = all(slope is None or slope <= GOAL for slope in slopes)
    print(json.dumps({"goal": {"exponent": GOAL}, "met": met, "rows": found}, indent=2))
    if options.plot:
        drawn(rows, options.plot)


if __name__ == "__main__":
    main()
