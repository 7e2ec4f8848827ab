"""Targets that really have each bottleneck, and healthy ones, through the command line to its JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import BUDGET_S, TARGETS, Diagnose

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "diagnosis"))
import known  # type: ignore[import-not-found]

pytestmark = pytest.mark.measured

SLOW = pytest.mark.slow
"""Every run has the same verdict from another test: input from a starved accelerator, compile in ``test_cli.py``."""


def limiting(report: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in report["findings"] if finding["limiting"]}


def adds_up(report: dict[str, Any]) -> None:
    parts, step_s = dict(report["verdict"]["attribution_s"]), report["verdict"]["step_time_s"]["estimate"]
    residual = parts.pop("residual")
    assert all(value >= 0 for value in parts.values())
    assert sum(parts.values()) == pytest.approx(step_s, rel=0.03)
    assert abs(residual) <= 0.03 * step_s
    assert sum(parts.values()) + residual == pytest.approx(step_s, rel=1e-6)


@pytest.mark.parametrize(
    ("target", "bottleneck", "rules"),
    [
        pytest.param("starved_by_python", "input", {"python-function", "sequential-map"}, marks=SLOW),
        ("eager_step_that_reads_its_loss", "dispatch", {"eager-step"}),
        pytest.param("retraces", "compile", {"retracing"}, marks=SLOW),
        pytest.param("xla_for_every_length", "compile", {"xla-recompilation", "dynamic-shape"}, marks=SLOW),
        ("checkpoints", "host", {"host-stall", "oscillation"}),
        pytest.param("shares_the_cores", "contention", {"core-contention"}, marks=pytest.mark.alone),
        ("slow_device", "compute", set()),
        pytest.param("starved_by_ops", "input", {"sequential-map"}, marks=SLOW),
        pytest.param("eager_step", "dispatch", {"eager-step"}, marks=SLOW),
        pytest.param("retraced_closure", "compile", {"retracing"}, marks=SLOW),
        pytest.param("logs_every_step", "host", {"host-stall"}, marks=SLOW),
        pytest.param("busy_device", "compute", set(), marks=SLOW),
    ],
)
def test_the_bottleneck_is_found(
    diagnose: Diagnose, target: str, bottleneck: str, rules: set[str], tmp_path: Path
) -> None:
    # Long steps that share the cores, and a period of ten steps, need longer windows than the others.
    budget_s = 28 if bottleneck in ("contention", "host") or target == "starved_by_ops" else BUDGET_S
    code, report = diagnose(f"bottlenecks.py:{target}", tmp_path / "run", budget_s=budget_s)
    assert report["verdict"]["bottleneck"] == bottleneck, report["verdict"]["summary"]
    assert code == 0
    assert rules <= limiting(report)
    if bottleneck == "compute":
        assert not limiting(report)
    if target == "slow_device":
        the_python_function_is_named_with_file_and_line(report)
    if target == "eager_step_that_reads_its_loss":
        assert "host-sync" in {finding["rule"] for finding in report["findings"]}
    adds_up(report)


def the_python_function_is_named_with_file_and_line(report: dict[str, Any]) -> None:
    (finding,) = [finding for finding in report["findings"] if finding["rule"] == "python-function"]
    source = (TARGETS / "bottlenecks.py").read_text().splitlines()
    assert Path(finding["location"]["file"]) == TARGETS / "bottlenecks.py"
    assert source[finding["location"]["line"] - 1].startswith("def _slow_row")
    assert finding["evidence"]["gil"] == "blocks"
    assert finding["limiting"] is False


@pytest.mark.parametrize("target", ["compiled_and_prefetched", pytest.param("keras_model", marks=SLOW)])
def test_nothing_limits_a_healthy_target(diagnose: Diagnose, target: str, tmp_path: Path) -> None:
    code, report = diagnose(f"healthy.py:{target}", tmp_path / "run")
    assert (code, report["verdict"]["bottleneck"]) == (0, "compute"), report["verdict"]["summary"]
    assert not limiting(report)
    assert report["warnings"] == []
    adds_up(report)


@SLOW
@pytest.mark.parametrize("case", [case for case in known.CASES if case.healthy][:8], ids=lambda case: case.name)
def test_a_healthy_case_of_the_corpus_is_warned_of_nothing(diagnose: Diagnose, case: Any, tmp_path: Path) -> None:
    given = [text for name, value in case.settings(tmp_path).items() for text in ("--set", f"{name}={value}")]
    _, report = diagnose(case.target, tmp_path / "run", "--accelerator", case.accelerator(), *given)
    assert report["warnings"] == []


def test_a_starved_accelerator_is_seen_from_its_dataset_alone(diagnose: Diagnose, tmp_path: Path) -> None:
    recorded = tmp_path / "steps.json"
    recorded.write_text(json.dumps([8.0, 10.0, 12.0]))
    target = "bottlenecks.py:starved_by_python"
    code, report = diagnose(target, tmp_path / "run", "--accelerator", f"emulated:{recorded}")
    assert (code, report["verdict"]["bottleneck"]) == (0, "input")
    # 8 sleeps of 4 ms for every 10 ms of compute
    assert report["verdict"]["accelerator_utilization"]["estimate"] == pytest.approx(10 / 32, rel=0.25)
    assert report["accelerator"]["mean_step_ms"] == pytest.approx(10.0)


@pytest.mark.gpu
def test_copies_to_a_gpu_are_found(diagnose: Diagnose, tmp_path: Path) -> None:
    code, report = diagnose("bottlenecks.py:copies_to_the_device", tmp_path / "run", budget_s=30)
    assert (code, report["verdict"]["bottleneck"]) == (0, "transfer")
