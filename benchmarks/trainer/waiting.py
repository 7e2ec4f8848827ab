"""What the command itself says of its waiting for data, behind an accelerator that computes as fast as a GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sides import FailedError

from xttsbench.records.report import Report


def share(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of the wall time that was waiting for batches, with its interval, out of a run's report.

    Raises:
        FailedError: the report has none.
    """
    found = report["verdict"]["input_wait_fraction"]
    if found is None:
        raise FailedError("the report of the run says nothing of its waiting: it has too few steps")
    return {name: round(found[name], 4) for name in ("estimate", "low", "high") if found.get(name) is not None}


def waited(loader: str, data: Path, step_ms: float, steps: int, directory: Path) -> dict[str, float]:
    """Run ``xttsbench train`` and return the share of its time that it waited.

    Args:
        loader: which makes the batches.
        data: directory of the clips.
        step_ms: what the emulated accelerator takes for a batch.
        steps: how many.
        directory: of the run; it is made.

    Raises:
        FailedError: the command failed.
    """
    options = ["--data", str(data), "--steps", str(steps), "--set", f"loader={loader}", "--out", str(directory)]
    options += ["--accelerator", f"emulated:{step_ms:g}", "--checkpoint-every", str(steps), "--no-listening"]
    command = [sys.executable, "-P", "-m", "xttsbench", "train", "tiny", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(
            f"xttsbench train with {loader} ended with exit code {done.returncode}: {done.stderr[-2000:]}"
        )
    return share(Report.model_validate_json((directory / "report.json").read_bytes()).model_dump())
