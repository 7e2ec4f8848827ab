"""Starts what looks at a case, each in a process of its own: the command, the plain loop, the round trip, XProf."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import Case

from xttsbench.records.report import Report

CHILD = Path(__file__).resolve().parent / "child.py"
PROJECT = CHILD.parents[2]
LIMIT_S = 120.0  # of a look; the command gets its budget on top


def diagnose(case: Case, folder: Path, budget_s: float) -> dict[str, Any]:
    """``{"report", "exit_code", "seconds"}`` of the command, with ``report`` ``None`` and ``error`` where it failed."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    command = [sys.executable, "-m", "xttsbench", "diagnose", case.target, "--json", "--no-verify"]
    command += ["--budget", f"{budget_s:g}"]
    command += ["--accelerator", case.accelerator(), "--out", str(out)]
    for name, value in case.settings(folder).items():
        command += ["--set", f"{name}={value}"]
    began = time.monotonic()
    code, printed, said = run(command, LIMIT_S + budget_s)
    seconds = time.monotonic() - began
    shutil.rmtree(out.parent, ignore_errors=True)
    found = {"exit_code": code, "seconds": seconds}
    try:
        return found | {"report": Report.model_validate_json(printed).model_dump()}
    except ValueError:
        return found | {"report": None, "error": said[-500:] or "no report"}


def look(case: Case, folder: Path, what: str, *options: str) -> dict[str, Any]:
    """What ``child.py`` answers; ``{"error": text}`` where it failed."""
    command = [sys.executable, str(CHILD), what, case.name, "--folder", str(folder), *options]
    code, printed, said = run(command, LIMIT_S)
    try:
        found = json.loads(printed.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": f"exit code {code}: {said.strip().splitlines()[-1] if said.strip() else 'no answer'}"}
    return dict(found)


def run(command: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
    """Exit code (``None`` when it took too long), standard output and error. What it started is ended with it."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": str(PROJECT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        start_new_session=True,
    ) as process:
        try:
            printed, said = process.communicate(timeout=limit_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                return None, "", f"took longer than {limit_s:g} s"
            raise
    return process.returncode, printed, said
