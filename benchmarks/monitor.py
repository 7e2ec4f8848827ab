"""What ``xttsbench monitor`` takes of a processor and of memory, against the goal; prints JSON.

``python benchmarks/monitor.py [--seconds 60]``: ten readings a second into a log, as lines and on a terminal of 120 by
40, without a GPU and with the two of the tests' stub driver. Counted are the processor seconds of the process from its
fifth second on, as the kernel has them, and its resident memory then, in the middle and at the end. Goal: at most 1 %
of one processor. ``--seconds 3600 --only lines`` shows an hour.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GOAL = 0.01
START_S = 5.0
HERE = Path(__file__).resolve().parent
STUB = HERE.parent / "tests" / "unit" / "probes" / "nvml_stub.c"
CASES = ("lines", "screen", "lines with two GPUs", "screen with two GPUs")


@contextmanager
def started(case: str, seconds: float, log: Path, driver: Path) -> Iterator[int]:
    """Start the monitor; gives its process id, and waits for its end."""
    stub = {"NVML_STUB_EPOCH_US": "1", "NVML_STUB_PERIOD_MS": "1600", "LD_LIBRARY_PATH": str(driver)}
    environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | (stub if "GPU" in case else {})
    command = ["-m", "xttsbench", "monitor", "--interval", "0.1", "--duration", str(seconds + 10), "--log", str(log)]
    if "screen" not in case:
        process = subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.DEVNULL)
        yield process.pid
        process.wait()
        return
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(sys.executable, [sys.executable, *command], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    reader = subprocess.Popen(["cat"], stdin=terminal, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(terminal)
    yield pid
    os.waitpid(pid, 0)
    reader.wait()


def used(pid: int) -> tuple[float, int]:
    """Processor seconds so far, and resident bytes."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def measured(case: str, seconds: float, folder: Path) -> dict[str, object]:
    """One case."""
    log = folder / f"{case}.csv"
    with started(case, seconds, log, folder) as pid:
        time.sleep(START_S)
        (before_s, first_bytes), began_s = used(pid), time.monotonic()
        time.sleep(seconds / 2)
        _, middle_bytes = used(pid)
        time.sleep(max(began_s + seconds - time.monotonic(), 0))
        (after_s, last_bytes), took_s = used(pid), time.monotonic() - began_s
    return {
        "cpu_share": round((after_s - before_s) / took_s, 4),
        "rss_bytes": [first_bytes, middle_bytes, last_bytes],
        "readings_per_s": round((log.read_bytes().count(b"\n") - 1) / (seconds + 10), 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=CASES, nargs="+", default=CASES)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", STUB], check=True)
        found = {case: measured(case, asked.seconds, folder) for case in asked.only}
    met = all(isinstance(share := one["cpu_share"], float) and share <= GOAL for one in found.values())
    print(json.dumps({"goal": {"cpu_share": GOAL}, "met": met, "seconds": asked.seconds, "cases": found}, indent=2))


if __name__ == "__main__":
    main()
