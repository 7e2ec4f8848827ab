"""What ``xttsbench --help`` costs beside a trivial Typer application, against the goal; prints JSON.

``python benchmarks/startup.py [--quick]``: processes in the order A, B, B, A, and the ratio of the medians of wall time
and of user processor time. Goal: at most 1.5. Also whether importing ``xttsbench.cli`` leaves TensorFlow alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL = 1.5
ROUNDS, QUICK_ROUNDS = 15, 4
"""Rounds of four processes."""

TRIVIAL = '''
import typer

app = typer.Typer(add_completion=False)


@app.command()
def hello(name: str = typer.Option("world", help="Whom to greet.")) -> None:
    """Greet."""
    typer.echo(f"hello {name}")


app()
'''

IMPORTED = "import sys, xttsbench.cli; print('tensorflow' in sys.modules, len(sys.modules))"


def once(command: list[str]) -> tuple[float, float]:
    """Wall and user processor seconds of one process."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)  # reaped here, for the usage of this process alone
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return wall_s, usage.ru_utime


def own_command() -> list[str]:
    """The installed command, or the module where it is not installed beside this interpreter."""
    script = Path(sys.executable).with_name("xttsbench")
    return [sys.executable, *([str(script)] if script.exists() else ["-m", "xttsbench"]), "--help"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds instead of {ROUNDS}")
    rounds = QUICK_ROUNDS if parser.parse_args().quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "trivial.py"
        app.write_text(TRIVIAL, encoding="utf-8")
        commands = {"xttsbench": own_command(), "trivial": [sys.executable, str(app), "--help"]}
        for command in commands.values():
            once(command)  # the page cache and the byte code
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name in ("xttsbench", "trivial", "trivial", "xttsbench"):
                times[name].append(once(commands[name]))
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    wall_ratio, user_ratio = (ours / theirs for ours, theirs in zip(*medians.values(), strict=True))
    loaded, modules = subprocess.run(
        [sys.executable, "-c", IMPORTED], check=True, capture_output=True, text=True
    ).stdout.split()
    result = {
        "goal": {"wall_ratio": GOAL, "user_cpu_ratio": GOAL, "tensorflow_imported": False},
        "value": {
            "wall_ratio": round(wall_ratio, 3),
            "user_cpu_ratio": round(user_ratio, 3),
            "tensorflow_imported": loaded == "True",
        },
        "met": max(wall_ratio, user_ratio) <= GOAL and loaded == "False",
        "processes_each": 2 * rounds,
        "median_wall_s": {name: round(values[0], 4) for name, values in medians.items()},
        "median_user_cpu_s": {name: round(values[1], 4) for name, values in medians.items()},
        "modules_after_importing_xttsbench_cli": int(modules),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
