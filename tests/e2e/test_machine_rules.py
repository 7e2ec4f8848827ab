"""Faults of memory, time and settings: the rule that names each fires on a target that really has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.measured

TARGETS = Path(__file__).parents[1] / "targets" / "machine.py"


def findings(target: str, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Findings by rule."""
    command = [sys.executable, "-m", "xttsbench", "diagnose", f"{TARGETS}:{target}", "--json", "--no-verify"]
    done = subprocess.run(
        [*command, "--budget", "30", "--out", str(out)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(finding["rule"], []).append(finding)
    return found


@pytest.mark.slow
def test_memory_that_each_step_adds_to(tmp_path: Path) -> None:
    (found,) = findings("leaks", tmp_path / "run")["memory-leak"]
    # A megabyte of float32 a step; resident pages may be added a step earlier or later.
    assert 0.5e6 < found["evidence"]["bytes_per_step"] < 2.5e6
    assert not found["limiting"]


@pytest.mark.slow
def test_a_cache_that_fills_is_no_leak(tmp_path: Path) -> None:
    assert "memory-leak" not in findings("fills_a_cache", tmp_path / "run")


@pytest.mark.slow
def test_steps_that_become_slower(tmp_path: Path) -> None:
    (found,) = findings("slows_down", tmp_path / "run")["drift"]
    assert found["evidence"]["change"] > 0.05
    assert found["evidence"]["side"] != "input"


@pytest.mark.slow
def test_files_that_are_not_in_the_page_cache(tmp_path: Path) -> None:
    found = findings("reads_cold", tmp_path / "run").get("cold-storage")
    if found is None:
        pytest.skip("the temporary folder is not on storage, or its reads are not counted")
    (cold,) = found
    assert cold["evidence"]["storage_share"] > 0.5
    # How fast the disk is, and so whether the step waits for it, is the machine's.
    assert cold["evidence"]["storage_bytes_per_step"] == pytest.approx(2 * 4 * (1 << 20), rel=0.5)


@pytest.mark.slow
def test_files_from_the_page_cache_and_a_header_of_one_length(tmp_path: Path) -> None:
    found = findings("cuts_headers", tmp_path / "run")
    assert "fixed-npy-header" in found
    assert not any(one["limiting"] for one in found.get("cold-storage", []))
