"""Faults of a pipeline, found by the command in targets that have them, and left alone where nothing waits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.measured

TARGETS = Path(__file__).parents[1] / "targets"


def diagnosed(target: str, out: Path, budget_s: int) -> tuple[str, dict[str, Any]]:
    """The bottleneck, and the findings by rule."""
    command = [
        sys.executable,
        "-m",
        "xttsbench",
        "diagnose",
        f"{TARGETS}/pipelines.py:{target}",
        "--json",
        "--no-verify",
    ]
    budget_s *= 2 if out.parent.name == "again" else 1  # a second try has more time: the machine may be a slow one
    done = subprocess.run(
        [*command, "--out", str(out), "--budget", str(budget_s)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return report["verdict"]["bottleneck"], {finding["rule"]: finding for finding in report["findings"]}


def line_of(text: str) -> int:
    """The line of the targets that holds a text."""
    lines = (TARGETS / "pipelines.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.slow
def test_sources_that_are_read_one_at_a_time(tmp_path: Path) -> None:
    bottleneck, found = diagnosed("reads_in_turn", tmp_path / "run", 40)
    assert bottleneck == "input"
    reading = found["sequential-read"]
    assert reading["limiting"]
    assert reading["location"]["line"] in (line_of("interleave(_shard, cycle_length=4)"), line_of("def _shard"))
    assert reading["predicted_speedup"]["estimate"] > 1.5  # four sources that only wait
    assert "num_parallel_calls=tf.data.AUTOTUNE" in reading["remedy"]


@pytest.mark.slow
def test_a_prefetch_of_nothing(tmp_path: Path) -> None:
    bottleneck, found = diagnosed("prefetches_nothing", tmp_path / "run", 40)
    assert bottleneck == "input"
    # 20 ms and 20 ms in turn: about twice as fast
    assert found["no-prefetch"]["limiting"]
    assert 1.2 < found["no-prefetch"]["predicted_speedup"]["estimate"] < 2.6


@pytest.mark.slow
def test_an_ugly_pipeline_that_nothing_waits_for(tmp_path: Path) -> None:
    bottleneck, found = diagnosed("ugly_and_quick", tmp_path / "run", 30)
    assert bottleneck == "compute"
    assert not [rule for rule, finding in found.items() if finding["limiting"]]
    assert found["python-function"]["remedy"].startswith("Leave it alone")
