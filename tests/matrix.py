"""``make matrix``: the tests on each version of TensorFlow that is claimed, with each Python that there are wheels for.

``python tests/matrix.py [--only 2.19-3.11] [--parts unit e2e-script] [--again]``

Each cell has a virtual environment of its own with the newest release of that version and what pip puts beside it, as a
user gets them; ``constraints.txt`` holds for 2.21 alone and is left out. Tests that fail are run once more by
themselves, since some assert on times. After each part ``reports/reference/matrix.json`` and ``matrix.md`` are written
anew; what they hold of other parts and cells stays. Interpreters are looked for on the path and among pyenv's; what
cannot be had is named in the table. Standard library only, so that any Python runs it.
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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "reports" / "reference" / "matrix.json"
OLDEST_PYTHON = 11
PACKAGES = ("tensorflow", "keras", "numpy", "protobuf", "tensorboard")
"""Whose versions the table has."""

OF_THE_TABLE = "tests/unit/test_matrix.py"
"""Tests of what is written here: they hold once all of it is."""
GRAPHS = ("findings", "fixes", "guard", "pipeline", "samedata")
STEPS = ("step", "training", "xtts")
FIVE = {
    "dataset": "test_bottlenecks.py::test_the_bottleneck_is_found[eager_step_that_reads_its_loss-dispatch-rules1]",
    "script": "test_scripts.py::test_a_compiled_loop_that_waits_for_its_input_is_told_the_line",
    "surgery": "test_optimize.py::test_a_sleeping_function_is_mended_proved_patched_and_kept_as_a_plan",
    "pool": "test_optimize.py::test_a_function_that_computes_becomes_ops_or_is_kept_or_runs_in_processes",
    "trainer": "test_train.py::test_a_run_is_reported_gone_on_with_and_compared",
}
"""A dataset with a step, a script, graph surgery with the same-data check, a pool of processes, the bundled trainer."""
KERAS_2 = "e2e-keras-2"
"""The part in which scripts run with ``TF_USE_LEGACY_KERAS=1``."""


def parts() -> dict[str, list[str]]:
    """Name of each part of a cell -> its tests; together all of ``tests/unit`` and ``tests/tf``, and five of e2e.

    The table has one column for those that begin alike: ``processes`` and ``processes-worker``.
    """
    folder = ROOT / "tests" / "tf"
    rest = {path.name for path in folder.iterdir() if any(path.rglob("test_*.py")) or path.name.startswith("test_")}
    rest -= {*GRAPHS, *STEPS, "worker"}
    tf = {"graphs": GRAPHS, "steps": STEPS, "processes": sorted(rest), "processes-worker": ["worker"]}
    return {
        "unit": ["tests/unit"],
        **{part: [f"tests/tf/{name}" for name in names] for part, names in tf.items()},
        **{f"e2e-{name}": [f"tests/e2e/{test}"] for name, test in FIVE.items()},
        KERAS_2: [f"tests/{path}" for path in ("tf/worker/script", "e2e/test_scripts.py", "e2e/test_watch.py")],
    }


@dataclass(frozen=True)
class Cell:
    """One version of TensorFlow on one version of Python."""

    tensorflow: str
    python: str
    interpreter: str | None
    """Path of a Python of that version, or ``None`` where there is none."""
    wheels: bool = True

    @property
    def name(self) -> str:
        """As ``--only`` takes it: ``2.19-3.11``."""
        return f"{self.tensorflow}-{self.python}"


def claimed() -> tuple[str, ...]:
    """The versions that the package says it works with, read from its source without importing it."""
    tree = ast.parse((ROOT / "xttsbench" / "records" / "machine.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.target) == "TENSORFLOW":
            return tuple(ast.literal_eval(node.value))
    raise SystemExit("xttsbench/records/machine.py names no TENSORFLOW")


def cells(only: list[str] | None) -> Iterator[Cell]:
    """Those that are named, else all on each Python for which pip's index has wheels of any of the versions."""
    if only is not None:
        for name in only:
            version, _, python = name.partition("-")
            yield Cell(version, python, interpreter(python))
        return
    minor, wheels = OLDEST_PYTHON, wheels_for(f"3.{OLDEST_PYTHON}")
    while wheels & {*claimed()}:
        for version in claimed():
            yield Cell(version, f"3.{minor}", interpreter(f"3.{minor}"), version in wheels)
        minor += 1
        wheels = wheels_for(f"3.{minor}")


def wheels_for(python: str) -> set[str]:
    """The versions of TensorFlow, as ``2.19``, that have wheels for a Python."""
    command = [sys.executable, "-m", "pip", "index", "versions", "tensorflow"]
    done = subprocess.run(
        [*command, "--python-version", python, "--only-binary", ":all:"], capture_output=True, text=True, check=False
    )
    listed = next((line for line in done.stdout.splitlines() if line.startswith("Available versions: ")), "")
    return {".".join(one.split(".")[:2]) for one in listed.partition(": ")[2].split(", ") if one}


def interpreter(python: str) -> str | None:
    """A Python of that version that runs: on the path, or among pyenv's."""
    name = f"python{python}"
    folders = [*os.get_exec_path(), *map(str, sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin")))]
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            asked = [str(path), "-c", "import ensurepip, ssl, sys; print('%d.%d' % sys.version_info[:2])"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.stdout.strip() == python:
                return str(path)
    return None


def make(cell: Cell, folder: Path) -> Path:
    """Make a cell's environment unless it is there; return its Python."""
    python, whole = folder / cell.name / "bin" / "python", folder / cell.name / ".installed"
    if not whole.exists():
        print(f"{cell.name}: installing", flush=True)
        subprocess.run([str(cell.interpreter), "-m", "venv", "--clear", str(folder / cell.name)], check=True)
        wanted = [f"{name}=={cell.tensorflow}.*" for name in ("tensorflow", "tensorboard")]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--editable", f"{ROOT}[dev]", *wanted], check=True)
        whole.touch()
    return python


def versions(python: Path) -> dict[str, str]:
    """What is installed beside it, and its own version."""
    code = (
        "import json, platform, sys; from importlib.metadata import version;"
        "print(json.dumps({'python': platform.python_version()} | {name: version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run([str(python), "-c", code, *PACKAGES], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def run(python: Path, tests: list[str], at_a_time: int) -> dict[str, Any]:
    """Run tests, and those that failed once more by themselves."""
    began = time.monotonic()
    named = "::" in tests[0]
    several = ["--numprocesses", str(at_a_time), "--dist", "loadfile", "--no-loadscope-reorder"]
    chosen = ["-m", "not slow and not alone", f"--ignore={OF_THE_TABLE}", *several]
    first = pytest(python, tests if named else [*tests, *chosen])
    failed = sorted(name for name, how in first.items() if how == "failed")
    outcomes = first | (pytest(python, failed) if failed else {})
    return {
        "passed": list(outcomes.values()).count("passed"),
        "skipped": list(outcomes.values()).count("skipped"),
        "failed": [name for name in failed if outcomes[name] != "passed"],
        "passed_when_run_again": [name for name in failed if outcomes[name] == "passed"],
        "seconds": round(time.monotonic() - began),
        "date": datetime.now(UTC).date().isoformat(),
    }


def again(python: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Run those of a part that failed, and take the others as they were."""
    outcomes = pytest(python, found["failed"])
    passed = [name for name in found["failed"] if outcomes.get(name) == "passed"]
    return {
        **found,
        "passed": found["passed"] + len(passed),
        "failed": [name for name in found["failed"] if name not in passed],
        "passed_when_run_again": sorted([*found["passed_when_run_again"], *passed]),
    }


TELLING = """
import json, sys, pytest

class Outcomes:
    def __init__(self):
        self.outcomes = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            if self.outcomes.get(report.nodeid) != "failed":
                self.outcomes[report.nodeid] = report.outcome

    def pytest_collectreport(self, report):
        if report.outcome == "failed":
            self.outcomes[report.nodeid] = "failed"

told, *arguments = sys.argv[1:]
outcomes = Outcomes()
pytest.main(arguments, plugins=[outcomes])
open(told, "w", encoding="utf-8").write(json.dumps(outcomes.outcomes))
"""
"""Runs pytest in a cell's Python, and writes how each test ended."""


def pytest(python: Path, arguments: list[str]) -> dict[str, str]:
    """Name of each test -> passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        foreign = {"PYTHONPATH", "PYTEST_ADDOPTS"}
        environment = {name: value for name, value in os.environ.items() if name not in foreign}
        command = [str(python), "-c", TELLING, str(told), "-q", "-p", "no:cacheprovider", *arguments]
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
        outcomes = dict(json.loads(told.read_text(encoding="utf-8"))) if told.exists() else {}
    if not outcomes:
        raise SystemExit("pytest ran no test, see above")
    return outcomes


def stored() -> dict[str, Any]:
    """The results so far."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"cells": {}, "not_tried": {}}


def write(results: dict[str, Any]) -> None:
    """Write both files."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(table(results), encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    """The results as a page."""
    columns = columns_of(parts())
    lines = [
        "# Tried versions",
        "",
        "What `make matrix` ran on each TensorFlow and Python: the newest release of that TensorFlow and what pip puts",
        "beside it. Unit tests; tests with TensorFlow of graphs and fixes, of steps, trainer and model, of processes",
        "and targets; five end to end (a dataset with a step, a script, `optimize` with graph surgery and the check of",
        "its data, a pool of processes, the trainer). Of tests that are marked slow only the pool's is run. No GPU.",
        "The version in `constraints.txt` is the one on which `make test` runs everything.",
        "",
        f"| TensorFlow | Python | Keras | NumPy | {' | '.join(columns)} |",
        "|---" * (4 + len(columns)) + "|",
    ]
    notes = []
    for name, cell in sorted(results["cells"].items()):
        had = [cell["versions"][package] for package in ("tensorflow", "python", "keras", "numpy")]
        lines.append(f"| {' | '.join([*had, *(said(in_column(cell['parts'], one)) for one in columns)])} |")
        for part, found in cell["parts"].items():
            notes += [f"- {name}, {part}: failed: `{test}`" for test in found["failed"]]
            notes += [f"- {name}, {part}: passed when run again: `{test}`" for test in found["passed_when_run_again"]]
    missing = [f"- TensorFlow and Python {name}: {why}" for name, why in sorted(results["not_tried"].items())]
    for heading, said_of in (("Tests that failed at least once", notes), ("Not tried", missing)):
        lines += ["", f"## {heading}", "", *said_of] if said_of else []
    return "\n".join([*lines, ""])


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns of the table that these parts stand in."""
    return list(dict.fromkeys(name.partition("-")[0] for name in names))


def in_column(found: dict[str, dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """The parts of a cell that one column holds."""
    return [how for part, how in found.items() if part.partition("-")[0] == column]


def said(found: list[dict[str, Any]]) -> str:
    """One field of the table."""
    if not found:
        return "not run"
    failed, skipped = sum(len(one["failed"]) for one in found), sum(one["skipped"] for one in found)
    counts = ((failed, f"**{failed} failed**"), (skipped, f"{skipped} skipped"))
    return ", ".join([f"{sum(one['passed'] for one in found)} passed", *(words for count, words in counts if count)])


def main() -> int:
    """Try them all; the exit code is 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="cells, as 2.19-3.11")
    parser.add_argument("--parts", nargs="*", choices=list(parts()), default=list(parts()), help="which tests")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "matrix", help="where they are made")
    parser.add_argument("--at-a-time", type=int, default=3, help="how many files of tests run beside one another")
    parser.add_argument("--again", action="store_true", help="only tests that failed when they were run last")
    options = parser.parse_args()
    failed = False
    for cell in cells(options.only):
        results = stored()
        if cell.interpreter is None or not cell.wheels:
            results["not_tried"][cell.name] = "no wheels" if not cell.wheels else f"no Python {cell.python} at hand"
            write(results)
            continue
        python = make(cell, options.environments)
        for part in options.parts:
            before = stored()["cells"].get(cell.name, {"parts": {}})["parts"].get(part, {"failed": []})
            if options.again and not before["failed"]:
                continue
            print(f"{cell.name}: {part}", flush=True)
            os.environ["TF_USE_LEGACY_KERAS"] = str(int(part == KERAS_2))
            found = again(python, before) if options.again else run(python, parts()[part], options.at_a_time)
            failed |= bool(found["failed"])
            results = stored()  # another one may have been run beside this one
            entry = results["cells"].setdefault(cell.name, {"parts": {}})
            entry["versions"] = versions(python)
            entry["parts"][part] = found
            results["not_tried"].pop(cell.name, None)
            write(results)
            print(f"{cell.name}: {part}: {said([found])}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
