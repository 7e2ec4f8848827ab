"""What is started beside the session of trials: the command, and the readers of elements."""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yielded
from faulty import HERE, Case
from looks import run

from xttsbench.records.report import Report

READ_LIMIT_S = 120.0
AFTER_BUDGET_S = 120.0  # grace of the command after its budget, before it is ended


def optimize(case: Case, files: Path, out: Path, budget_s: float) -> dict[str, Any]:
    """Run ``xttsbench optimize`` on a case.

    Returns:
        ``seconds``, ``exit_code`` (``None`` where it took too long) and ``report``, ``None`` where there is none, with
        ``error`` then.
    """
    command = [sys.executable, "-m", "xttsbench", "optimize", case.target, "--json", "--budget", f"{budget_s:g}"]
    command += ["--accelerator", case.accelerator(), "--out", str(out)]
    for name, value in case.settings(files).items():
        command += ["--set", f"{name}={value}"]
    began = time.monotonic()
    code, _, said = run(command, budget_s + AFTER_BUDGET_S)
    found: dict[str, Any] = {"seconds": round(time.monotonic() - began, 1), "exit_code": code}
    try:
        return found | {"report": Report.model_validate_json((out / "report.json").read_bytes()).model_dump()}
    except (OSError, ValueError) as error:
        return found | {"report": None, "error": said.strip()[-500:] or f"no report: {error}"}


def same_data(case: Case, files: Path, folder: Path, fixes: str) -> dict[str, Any]:
    """Whether the fixed dataset yields the original's elements; ``same`` is ``None`` with a reason where unknown."""
    settings = case.settings(files) | dict(case.compare_with)
    read: dict[str, yielded.Batches] = {}
    for name, fix in (("original", None), ("ours", fixes), ("original again", None)):
        if name == "original again" and yielded.same(*list(read.values())[:2])["same"]:
            break
        out = folder / f"{name.replace(' ', '-')}.elements"
        command = [sys.executable, str(HERE / "yielded.py"), case.target, "--settings", json.dumps(settings)]
        command += ["--out", str(out)] + (["--fix", fix] if fix else [])
        code, _, said = run(command, READ_LIMIT_S)
        if code != 0 or not out.exists():
            why = said.strip().splitlines()[-1:] or [f"exit code {code}"]
            return {"same": None, "how": "unknown", "why": f"{name} could not be read: {why[0][-300:]}"}
        read[name] = pickle.loads(out.read_bytes())
        out.unlink()
    return judged(read)


def judged(read: Mapping[str, yielded.Batches]) -> dict[str, Any]:
    """The fixed elements beside the original's, and beside what the original differs from itself by, where read."""
    found = yielded.same(read["original"], read["ours"])
    again = read.get("original again")
    if again is not None and not yielded.same(read["original"], again)["same"]:
        return found | {"same": None, "how": "unknown", "why": "the original differs from itself"}
    return found
