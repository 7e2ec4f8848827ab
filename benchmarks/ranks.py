"""Planted faults of one rank among several local processes: whether `xttsbench report` names them; prints JSON.

``python benchmarks/ranks.py [CASE ...] [--ranks 2]``: each case of ``tests/targets/ranks.py`` and ``ranks_fit.py`` is
watched on every rank (``TF_CONFIG`` on ports of this machine, MultiWorkerMirroredStrategy, an emulated accelerator);
the runs are reported together at their end, or while they hang. A case is right where the first finding is the planted
fault, on the planted rank, with the planted line; a healthy one where there is no finding. Goal: 12 of 12 planted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGETS = ROOT / "tests" / "targets"
STEPS = 100
LIMIT_S = 300


@dataclass(frozen=True)
class Case:
    """A planted fault: its kind, whether the last rank has it, and text of the line that has to be named."""

    fault: str
    line: str = ""
    cause: str = ""
    last: bool = True
    script: str = "ranks.py"


READ = "time.sleep(0.01)"
CASES = {
    "slow-read": Case("straggler", READ, "input"),
    "slow-generator": Case("straggler", READ, "input"),
    "slow-step": Case("straggler", "time.sleep(seconds)", "compute"),
    "slow-callback": Case("straggler", "time.sleep(0.03)", "host"),
    "slow-checkpoint": Case("straggler", "time.sleep(0.6)", "host"),
    "fit-slow-callback": Case("straggler", "time.sleep(0.03)", "host", script="ranks_fit.py"),
    "uneven-shard": Case("starved", "for batch in data"),
    "same-data": Case("duplicated", "for batch in data"),
    "ended-early": Case("hang", "for batch in data"),
    "shared-file": Case("hang", "fcntl.flock(file, fcntl.LOCK_EX)", last=False),
    "waits-elsewhere": Case("hang", "os.read(os.pipe()"),
    "dies": Case("died"),
    "healthy": Case(""),
    "fit-healthy": Case("", script="ranks_fit.py"),
}


def main() -> None:
    """Run the cases and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--ranks", type=int, default=2)
    asked = parser.parse_args()
    found = {}
    for name in asked.cases:
        found[name] = run(name, asked.ranks)
        sys.stderr.write(f"{name}: {'right' if found[name]['right'] else 'WRONG'}: {found[name]['sentence']}\n")
    planted = [one for name, one in found.items() if CASES[name].fault]
    healthy = [one for name, one in found.items() if not CASES[name].fault]
    print(
        json.dumps(
            {
                "ranks": asked.ranks,
                "steps": STEPS,
                "planted_right": sum(one["right"] for one in planted),
                "planted": len(planted),
                "healthy_right": sum(one["right"] for one in healthy),
                "healthy": len(healthy),
                "cases": found,
            },
            indent=1,
        )
    )


def tasks(ranks: int) -> list[str]:
    """``TF_CONFIG`` of each rank, on ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(ranks)]
    workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return [
        json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": at}}) for at in range(ranks)
    ]


def run(name: str, ranks: int) -> dict[str, object]:
    """Watch one case on all ranks, and judge what the report says."""
    case, folder = CASES[name], Path(tempfile.mkdtemp(prefix="ranks-"))
    watched = [sys.executable, "-m", "xttsbench", "watch", "--out", str(folder / "job")]
    command = [*watched, str(TARGETS / case.script), "--", name, str(STEPS)]
    own = {"TF_CPP_MIN_LOG_LEVEL": "3", "RANKS_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    began, logs = time.monotonic(), []
    processes = []
    for at, task in enumerate(tasks(ranks)):
        logs.append(folder / f"{at}.log")
        environment = os.environ | own | {"TF_CONFIG": task}
        with logs[-1].open("w") as log:
            processes.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=folder)
            )
    report: dict[str, object] = {}
    try:
        while time.monotonic() - began < LIMIT_S:
            over = all(one.poll() is not None for one in processes)
            report = reported(folder / "job") or report
            hangs = case.fault in ("hang", "died") and bool(report.get("findings"))
            if over or hangs:
                break
            time.sleep(5)
    finally:
        for one in processes:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
    judged = judge(case, report, ranks) | {"seconds": round(time.monotonic() - began, 1)}
    if judged["right"]:
        shutil.rmtree(folder)
    else:
        judged["folder"] = str(folder)
    return judged


def reported(job: Path) -> dict[str, object]:
    """The verdict on the job as far as it is; empty where there is none yet."""
    command = [sys.executable, "-m", "xttsbench", "report", "--json", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith("{") else {}


def judge(case: Case, report: dict[str, object], ranks: int) -> dict[str, object]:
    """The finding beside what was planted."""
    findings: list[dict] = report.get("findings") or []  # type: ignore[type-arg, assignment]
    sentence = re.sub(r"/\S*/", "", str(report.get("sentence", "no report")))
    first = findings[0] if findings else None
    said = {"planted": case.fault, "sentence": sentence, "found": [one["fault"] for one in findings]}
    if not case.fault:
        return said | {"right": bool(report) and not findings}
    if first is None:
        return said | {"right": False}
    place = first.get("line")
    text = ""
    if isinstance(place, dict) and "file" in place:
        text = Path(place["file"]).read_text(encoding="utf-8").splitlines()[place["line"] - 1].strip()
    rank = ranks - 1 if case.last else 0
    right = (first["fault"], first["rank"]) == (case.fault, rank) and case.line in text
    return said | {"rank": first["rank"], "line": text, "right": right and case.cause in ("", first["cause"])}


if __name__ == "__main__":
    main()
