"""How much memory the parent holds while trials run, seen from outside, against the goal; prints JSON.

``python benchmarks/parent_memory.py [--quick] [TARGET]``: a real diagnosis is started, and the peak of the resident set
of its process is read (``VmHWM``) as long as a trial, a child of its helper process, is there. Goal: at most 150 MB.
After the last trial the report is drawn with Matplotlib; that peak is given apart and has no goal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

GOAL_MB = 150.0
DEFAULT = Path(__file__).resolve().parent.parent / "tests" / "targets" / "bottlenecks.py"
"""Its short eager steps give the most rows, and rows are what the parent holds."""


def peak_bytes(pid: int) -> int | None:
    """The largest resident set of the process so far; ``None`` once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return int(line.split()[1]) * 1024 if line else None


def trial_runs(parent: psutil.Process) -> bool:
    """Whether the helper, the only child, has a child of its own."""
    try:
        return any(helper.children() for helper in parent.children())
    except psutil.NoSuchProcess:
        return False


def main() -> None:
    """Run, watch and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", default=f"{DEFAULT}:eager_step", help="what to diagnose")
    parser.add_argument("--quick", action="store_true", help="a budget of 20 s instead of 40 s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "xttsbench", "diagnose", options.target, "--no-verify"]
        command += ["--budget", "20" if options.quick else "40", "--out", f"{folder}/run"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        watched = psutil.Process(process.pid)
        during = last = samples = 0
        while process.poll() is None:
            with_trial, found = trial_runs(watched), peak_bytes(process.pid)
            if found:
                last = found
                if with_trial:
                    during, samples = found, samples + 1
            time.sleep(0.05)
        journal = Path(folder, "run", "trials.jsonl")
        journal_bytes = journal.stat().st_size if journal.exists() else 0
    if not samples:
        sys.exit(f"no trial was seen; the command ended with exit code {process.returncode}")
    value_mb = during / 1e6
    result = {
        "goal": {"peak_mb_while_trials_run": GOAL_MB},
        "value": {"peak_mb_while_trials_run": round(value_mb, 1)},
        "met": value_mb <= GOAL_MB,
        "peak_mb_with_the_report": round(last / 1e6, 1),
        "looks_while_a_trial_ran": samples,
        "journal_mb": round(journal_bytes / 1e6, 1),
        "exit_code": process.returncode,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
