"""Faults beside the bottleneck, of a pipeline and of the machine: each has a target, on which its rule fires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import TARGETS, Diagnose

pytestmark = pytest.mark.measured


def findings(diagnose: Diagnose, target: str, out: Path, budget_s: int = 30) -> tuple[str, dict[str, Any]]:
    """The bottleneck, and the findings by rule."""
    code, report = diagnose(target, out, budget_s=budget_s)
    assert code == 0
    return report["verdict"]["bottleneck"], {finding["rule"]: finding for finding in report["findings"]}


def line_of(text: str) -> int:
    """The line of the targets that holds a text."""
    lines = (TARGETS / "pipelines.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.slow
def test_a_pool_that_is_smaller_than_the_calls_that_wait(diagnose: Diagnose, tmp_path: Path) -> None:
    bottleneck, found = findings(diagnose, "faults.py:waits_in_turn", tmp_path / "run", 28)
    assert bottleneck == "input"
    assert found["thread-pool"]["limiting"] is True
    # 32 sleeps at a time in place of 2; the ceiling is lower, since each batch still takes one sleep
    assert found["thread-pool"]["predicted_speedup"]["low"] > 2
    assert found["python-function"]["evidence"]["gil"] == "blocks"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["faults.py:takes_turns", "pipelines.py:prefetches_nothing"])
def test_an_input_and_a_step_that_take_turns(diagnose: Diagnose, target: str, tmp_path: Path) -> None:
    bottleneck, found = findings(diagnose, target, tmp_path / "run", 36)
    assert bottleneck == "input"
    assert found["no-prefetch"]["limiting"]
    # 20 ms and 20 ms in turn: at most twice as fast
    assert 1.2 < found["no-prefetch"]["predicted_speedup"]["estimate"] < 2.6


def test_padding_prefetches_and_lengths(diagnose: Diagnose, tmp_path: Path) -> None:
    bottleneck, found = findings(diagnose, "faults.py:long_and_short", tmp_path / "run", 30)
    # 15 rows of 8 beside one of 64 to 288
    assert found["padding-waste"]["evidence"]["padding_share"] == pytest.approx(0.88, abs=0.06)
    assert found["redundant-prefetch"]["evidence"]["prefetches"] == 4
    assert found["length-variance"]["evidence"]["variance_share"] > 0.5
    assert not found["padding-waste"]["limiting"]
    assert not found["redundant-prefetch"]["limiting"]
    assert "oscillation" not in found  # lengths in turn are no instability
    assert bottleneck == "compute"


@pytest.mark.slow
def test_stragglers_of_the_input(diagnose: Diagnose, tmp_path: Path) -> None:
    _, found = findings(diagnose, "faults.py:stumbles", tmp_path / "run", 20)
    assert found["stragglers"]["evidence"]["own_wait_share"] > 0.5
    assert found["stragglers"]["evidence"]["excess_share"] > 0.2


@pytest.mark.slow
def test_a_chain_of_elementwise_ops_is_worth_trying_with_xla(diagnose: Diagnose, tmp_path: Path) -> None:
    _, found = findings(diagnose, "faults.py:fuses", tmp_path / "run", 45)
    assert found["xla-untried"]["evidence"]["step_speedup"] > 1.2


@pytest.mark.slow
def test_sources_that_are_read_one_at_a_time(diagnose: Diagnose, tmp_path: Path) -> None:
    bottleneck, found = findings(diagnose, "pipelines.py:reads_in_turn", tmp_path / "run", 40)
    assert bottleneck == "input"
    reading = found["sequential-read"]
    assert reading["limiting"]
    assert reading["location"]["line"] in (line_of("interleave(_shard, cycle_length=4)"), line_of("def _shard"))
    assert reading["predicted_speedup"]["estimate"] > 1.5  # four sources that only wait
    assert "num_parallel_calls=tf.data.AUTOTUNE" in reading["remedy"]


@pytest.mark.slow
def test_an_ugly_pipeline_that_nothing_waits_for(diagnose: Diagnose, tmp_path: Path) -> None:
    bottleneck, found = findings(diagnose, "pipelines.py:ugly_and_quick", tmp_path / "run", 30)
    assert bottleneck == "compute"
    assert not [rule for rule, finding in found.items() if finding["limiting"]]
    assert found["python-function"]["remedy"].startswith("Leave it alone")


@pytest.mark.slow
def test_memory_that_each_step_adds_to(diagnose: Diagnose, tmp_path: Path) -> None:
    _, found = findings(diagnose, "machine.py:leaks", tmp_path / "run")
    leak = found["memory-leak"]
    # A megabyte of float32 a step; resident pages may be added a step earlier or later.
    assert 0.5e6 < leak["evidence"]["bytes_per_step"] < 2.5e6
    assert not leak["limiting"]


@pytest.mark.slow
def test_a_cache_that_fills_is_no_leak(diagnose: Diagnose, tmp_path: Path) -> None:
    _, found = findings(diagnose, "machine.py:fills_a_cache", tmp_path / "run")
    assert "memory-leak" not in found


@pytest.mark.slow
def test_steps_that_become_slower(diagnose: Diagnose, tmp_path: Path) -> None:
    _, found = findings(diagnose, "machine.py:slows_down", tmp_path / "run")
    assert found["drift"]["evidence"]["change"] > 0.05
    assert found["drift"]["evidence"]["side"] != "input"


@pytest.mark.slow
def test_files_that_are_not_in_the_page_cache(diagnose: Diagnose, tmp_path: Path) -> None:
    _, found = findings(diagnose, "machine.py:reads_cold", tmp_path / "run")
    cold = found.get("cold-storage")
    if cold is None:
        pytest.skip("the temporary folder is not on storage, or its reads are not counted")
    assert cold["evidence"]["storage_share"] > 0.5
    # How fast the disk is, and so whether the step waits for it, is the machine's.
    assert cold["evidence"]["storage_bytes_per_step"] == pytest.approx(2 * 4 * (1 << 20), rel=0.5)


@pytest.mark.slow
def test_files_from_the_page_cache_and_a_header_of_one_length(diagnose: Diagnose, tmp_path: Path) -> None:
    _, found = findings(diagnose, "machine.py:cuts_headers", tmp_path / "run")
    assert "fixed-npy-header" in found
    assert "cold-storage" not in found or not found["cold-storage"]["limiting"]
