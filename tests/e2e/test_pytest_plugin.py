"""``xttsbench_benchmark`` in a project of its own, with real runs of pytest.

Each run of pytest imports TensorFlow once: a shared helper stands for that of each block, which is shown to be fresh
in ``tests/unit/workflows``. ``test_loaders_benchmark.py`` uses the fixture as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.parent import SHARED

ROOT = Path(__file__).parents[2]
PLUGIN = "xttsbench.pytest_plugin"

CONFTEST = (
    SHARED
    + """
def pytest_unconfigure():
    assert "tensorflow" not in sys.modules, "the tests' process imported TensorFlow"
    end()
"""
)
TARGETS = """
import time

import numpy as np
import tensorflow as tf

from mine.light import BATCH


def waits(ms=30.0):
    def load(index):
        time.sleep(ms / 1e3)
        return np.full([BATCH, 8], index, np.float32)

    return tf.data.Dataset.range(1_000_000).map(
        lambda index: tf.ensure_shape(tf.numpy_function(load, [index], tf.float32), [BATCH, 8])
    )


def broken():
    raise ValueError("the files are gone")
"""
TESTS = """
import os

import pytest

from mine.light import BATCH

SMALL = {"steps": 20, "window_s": 0.6, "blocks": 2}


@pytest.mark.benchmark(group="waits")
@pytest.mark.parametrize("role", ["steady", "slowed"])
def test_speed(xttsbench_benchmark, role):
    ms = 30 * float(os.environ.get("SLOWER", "1")) if role == "slowed" else 30
    result = xttsbench_benchmark(
        "src/mine/data.py:waits", kwargs={"ms": ms}, accelerator="emulated:1", max_regression="30%", **SMALL
    )
    if result.report is not None:
        assert result.report.kind == "run"
        assert result.throughput_per_s.low <= result.throughput_per_s.estimate <= result.throughput_per_s.high
        assert result.extra_info["step_time_s"]["estimate"] == result.step_time_s.estimate


def own_target():
    import tensorflow as tf

    return tf.data.Dataset.range(1_000_000).map(lambda index: tf.fill([4], index))


def test_limits(xttsbench_benchmark):
    xttsbench_benchmark(
        own_target, accelerator="emulated:20", min_utilization=0.5, max_step_time_s=0.001, min_throughput=1, **SMALL
    )


def test_broken(xttsbench_benchmark):
    xttsbench_benchmark("src/mine/data.py:broken", **SMALL)


def test_diagnosed(xttsbench_benchmark):
    found = xttsbench_benchmark(
        "src/mine/data.py:waits",
        kwargs={"ms": 5},
        accelerator="emulated:2",
        diagnose=True,
        fail_on="info",
        budget_s=80,
        **SMALL,
    )
    assert found.report is None or found.report.kind == "diagnose"


def test_lambda(xttsbench_benchmark):
    xttsbench_benchmark(lambda: None)


def test_closure(xttsbench_benchmark):
    def inside():
        return None

    xttsbench_benchmark(inside)


@pytest.mark.parametrize(
    "options",
    [{"kwargs": {"path": object()}}, {"max_regression": "5"}, {"fail_on": "critical"}, {"blocks": 0}, {"budget_s": 1}],
    ids=["kwargs", "share", "fail_on", "blocks", "budget"],
)
def test_bad_option(xttsbench_benchmark, options):
    xttsbench_benchmark(own_target, **options)


def test_other():
    assert BATCH
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a source folder that only pytest's own setting puts on the import path."""
    root = tmp_path_factory.mktemp("project")
    (root / "src" / "mine").mkdir(parents=True)
    files = {
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\nfilterwarnings = ["error"]\n',
        "conftest.py": CONFTEST,
        "src/mine/__init__.py": "",
        "src/mine/light.py": "BATCH = 4\n",
        "src/mine/data.py": TARGETS,
        "test_mine.py": TESTS,
    }
    for name, text in files.items():
        (root / name).write_text(text)
    return root


def run(project: Path, *arguments: object, **environment: str) -> tuple[int, str]:
    """Run pytest in the project: exit code and all output."""
    known = metadata.entry_points(group="pytest11", name="xttsbench")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *([] if known else ["-p", PLUGIN]), *map(str, arguments)],
        cwd=project,
        env=inherited | {"PYTHONPATH": path, "COLUMNS": "100"} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def baseline(project: Path) -> tuple[str, dict[str, Any]]:
    """A first run, saved: what it printed, and its JSON."""
    code, shown = run(project, "-k", "test_speed", "--benchmark-json", "first.json", "--benchmark-autosave")
    assert code == 0, shown
    return shown, json.loads((project / "first.json").read_text(encoding="utf-8"))


def test_it_is_registered_where_pytest_looks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"xttsbench": PLUGIN}


def test_steps_are_the_rounds_and_the_record_is_beside_them(
    project: Path, baseline: tuple[str, dict[str, Any]]
) -> None:
    shown, saved = baseline
    assert "benchmark 'waits': 2 tests" in shown
    assert "NOT COMPARED: no saved run is named" in shown
    steady, slowed = saved["benchmarks"]
    found = steady["extra_info"]
    assert (steady["fullname"], slowed["fullname"]) == tuple(
        f"test_mine.py::test_speed[{n}]" for n in ("steady", "slowed")
    )
    assert steady["options"]["timer"] == "steps_in_fresh_processes"
    # In the report one that neighbours disturbed does not count; gates take two.
    assert found["processes"] in (1, 2)
    assert (steady["stats"]["rounds"] == found["steps"]) == (found["processes"] == 2)
    assert 0.025 < steady["stats"]["median"] < 0.1
    # The table's mean is over steps, the record's over processes.
    assert steady["stats"]["mean"] == pytest.approx(found["step_time_s"]["estimate"], rel=0.2)
    assert len(found["per_process"]["throughput_per_s"]) == 2
    assert 4 / found["throughput_per_s"]["estimate"] == pytest.approx(found["step_time_s"]["estimate"], rel=0.05)
    assert found["accelerator"] == {"kind": "emulated", "label": "emulated accelerator, 1 ms a step"}
    assert found["utilization_of"] == "emulated accelerator"
    assert found["verdict"]["bottleneck"] == "input"
    assert (found["findings"], "diagnose=True" in found["unmeasured"]["findings"]) == (None, True)
    assert {name for name, value in found.items() if value is None} == set(found["unmeasured"])
    run_files = {path.name for path in Path(found["run"]).iterdir()}
    assert {"report.json", "trials.jsonl", "plan.json", "environment.json"} <= run_files


@pytest.mark.measured
def test_a_target_twice_as_slow_fails_the_gate_and_an_equal_one_does_not(
    project: Path, baseline: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    code, shown = run(
        project, "-k", "test_speed", "--benchmark-compare", "--benchmark-json", tmp_path / "now.json", SLOWER="2"
    )
    assert code == 1, shown
    assert "1 failed, 1 passed" in shown
    assert "is a proven regression by more than the 30 % that are allowed" in shown
    assert "0001_" in shown  # pytest-benchmark's own comparison is in the table
    steady, slowed = json.loads((tmp_path / "now.json").read_text(encoding="utf-8"))["benchmarks"]
    (gate,) = slowed["extra_info"]["gates"]
    assert (gate["gate"], gate["decision"]) == ("max_regression", "failed")
    assert gate["interval"]["high"] < 0.7
    assert gate["interval"]["estimate"] == pytest.approx(0.51, abs=0.12)
    assert steady["extra_info"]["gates"][0]["decision"] in ("passed", "undecided")


def test_another_machine_is_not_compared_and_fails_where_that_is_asked(
    project: Path, baseline: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    other = json.loads(json.dumps(baseline[1]))
    for bench in other["benchmarks"]:
        bench["extra_info"]["fingerprint"] = "0" * 16
    (tmp_path / "other.json").write_text(json.dumps(other))
    options = (f"--xttsbench-baseline={tmp_path}/other.json", f"--xttsbench-out={tmp_path}/kept", "--xttsbench-strict")
    code, shown = run(project, "-k", "steady", *options, COLUMNS="400")
    assert (code, "1 failed" in shown) == (1, True), shown
    assert "NOT COMPARED: " in shown
    assert "other.json was measured on another machine or TensorFlow (0000000000000000, here " in shown
    assert "(--xttsbench-strict)" in shown
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name.endswith("-test_speed-steady")


def test_limits_targets_that_raise_and_functions_that_cannot_be_found(project: Path, tmp_path: Path) -> None:
    code, shown = run(
        project,
        "-k",
        "not speed and not diagnosed",
        "--benchmark-only",
        "-rf",
        "--benchmark-json",
        tmp_path / "now.json",
        COLUMNS="400",
    )
    assert code == 1, shown
    assert "9 failed, 1 skipped" in shown
    (limits,) = json.loads((tmp_path / "now.json").read_text(encoding="utf-8"))["benchmarks"]
    assert {gate["gate"]: gate["decision"] for gate in limits["extra_info"]["gates"]} == {
        "min_throughput": "passed",
        "max_step_time_s": "failed",
        "min_utilization": "passed",
    }
    for words in (
        "is proven to be beyond the limit of 0.001 s",
        "raised while it was called: ValueError: the files are gone",
        "<lambda>",
        "test_closure.<locals>.inside",
        "kwargs go to a fresh process as JSON",
        "max_regression: a share between 0 and 1, such as 0.05 or 5%, is expected; got '5'",
        "fail_on is about findings",
        "blocks must be above 0, got 0",
        "budget_s=1 is too short",
    ):
        assert words in shown
    assert shown.count("cannot be imported by a fresh process; pass a function of a module") >= 2
    assert "Traceback" not in shown


@pytest.mark.slow
def test_a_diagnosis_is_recorded_and_its_findings_fail_where_that_is_asked(project: Path, tmp_path: Path) -> None:
    options = ("--benchmark-json", tmp_path / "now.json", f"--xttsbench-out={tmp_path}/kept")
    code, shown = run(project, "-k", "diagnosed", *options, COLUMNS="400")
    assert code == 1, shown
    assert "fail_on='info': " in shown
    (bench,) = json.loads((tmp_path / "now.json").read_text(encoding="utf-8"))["benchmarks"]
    found = bench["extra_info"]
    assert (found["verdict"]["bottleneck"], found["verdict"]["diagnosed"]) == ("input", True)
    assert any(finding["limiting"] and finding["remedy"] for finding in found["findings"])
    assert "findings" not in found["unmeasured"]
    assert sorted(path.name.endswith("-diagnosis") for path in (tmp_path / "kept").iterdir()) == [False, True]


def test_disabled_runs_the_target_and_measures_nothing(project: Path, tmp_path: Path) -> None:
    code, shown = run(project, "-k", "limits or broken", "--benchmark-disable", f"--xttsbench-out={tmp_path}/kept")
    assert code == 1
    assert "1 failed, 1 passed" in shown
    assert "the files are gone" in shown
    (kept,) = (tmp_path / "kept").glob("*-test_limits")
    (trial,) = (kept / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(trial)["spec"]["steps"] == 3


def test_skipped_and_without_pytest_benchmark(project: Path) -> None:
    code, shown = run(project, "--benchmark-skip")
    assert (code, "1 passed, 12 skipped" in shown) == (0, True), shown
    code, shown = run(project, "-k", "lambda or other", "-p", "no:benchmark", "-W", "ignore")
    assert (code, "1 passed, 11 deselected, 1 error" in shown) == (1, True), shown
    assert "xttsbench_benchmark is built on pytest-benchmark" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--xttsbench-max-regression", "5"), "a share between 0 and 1"),
        (("--xttsbench-baseline", "missing.json"), "missing.json cannot be read"),
        (("--xttsbench-baseline", "pyproject.toml"), "is not a file that --benchmark-json or --benchmark-save wrote"),
    ],
)
def test_a_bad_option_of_the_command_line(project: Path, arguments: tuple[str, ...], words: str) -> None:
    code, shown = run(project, "-k", "other", *arguments)
    assert (code, words in shown) == (4, True), shown
    assert "Traceback" not in shown


def test_nothing_heavy_is_imported_for_the_plugin() -> None:
    code = (
        f"import sys, {PLUGIN}\n"
        "heavy = {'tensorflow', 'keras', 'pandas', 'matplotlib', 'numpy', 'scipy', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
