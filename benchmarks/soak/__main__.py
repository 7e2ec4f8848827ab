"""What grows when diagnose, watch, sweep and train run over and over: memory, descriptors, threads, files, children.

``python benchmarks/soak [--minutes 60] [--log FILE] [KIND ...]``: each kind in turn, until the time is over. The first
six are commands, whose parent is looked at while it runs; ``named`` and ``live`` are pieces through the Python API in
one process that lasts. After each piece: what processes were left, and what lies in the temporary folder, /dev/shm, the
user's cache and runtime folders, and the working directory, all of them the soak's own. ``--log`` has a line of JSON
for each piece. A table at the end; exit code 1 where something grows (``growth``) or a command fails.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from growth import table
from traces import TOKEN, files, held, left_behind

HERE = Path(__file__).resolve().parent
XTTSBENCH = [sys.executable, "-m", "xttsbench"]
COMMANDS = {
    "diagnose": ["diagnose", "tiny.py:small", "--no-verify", "--budget", "10"],
    "script": ["diagnose", "tiny.py", "--no-verify", "--budget", "30"],
    "watch": ["watch", "tiny.py"],
    "sweep": ["sweep", "--grid", f"{HERE}/grid.yaml"],
    "train": ["train", f"{HERE}/recipe.yaml", "--data", "speech", "--steps", "4"],
    "resume": ["train", f"{HERE}/recipe.yaml", "--data", "speech"],
}
LASTING = {"named": 2, "live": 2}
"""And how often in a round: where all is one process, growth shows the better the longer it lasts."""
FOLDERS = {"TMPDIR": "tmp", "XTTSBENCH_CACHE": "cache", "XTTSBENCH_RUNTIME": "runtime", "XDG_RUNTIME_DIR": "xdg"}
PRIVATE = "XTTSBENCH_SOAK_PRIVATE"
MOST_FAILURES = 5
MOST_S = 300.0
"""After which a piece is ended, and the soak has failed."""


class Soak:
    """A folder with everything in it, and what was seen of each kind."""

    def __init__(self, folder: Path, log: Path | None) -> None:
        self.folder, self.log, self.token = folder, log, secrets.token_hex(8)
        self.series: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.failed: list[str] = []
        self.work = folder / "work"
        self.work.mkdir()
        places = {name: folder / name for name in FOLDERS.values()}
        for place in places.values():
            place.mkdir(mode=0o700)
        self.places = {**places, "work": self.work, "home": folder / "home", "shm": Path("/dev/shm")}
        self.places["home"].mkdir()
        given = {name: str(places[place]) for name, place in FOLDERS.items()}
        self.environment = {**os.environ, **given, "HOME": str(self.places["home"]), TOKEN: self.token}
        self.environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        self.environment.pop("XDG_CACHE_HOME", None)
        self.lasting: dict[str, subprocess.Popen[str]] = {}
        self.known: dict[str, set[str]] = {}
        self.resumed_steps = 4
        shutil.copy(HERE / "tiny.py", self.work)
        subprocess.run(
            [*XTTSBENCH, "data", "make", "--utterances", "24", "--min-s", "0.5", "--max-s", "1", "--out", "speech"],
            cwd=self.work, env=self.environment, check=True, capture_output=True,
        )  # fmt: skip

    def piece(self, kind: str, number: int) -> None:
        """Run one piece, and add what was seen."""
        began = time.monotonic()
        seen = self._asked(kind, number) if kind in LASTING else self._command(kind, number)
        seconds = time.monotonic() - began
        left = left_behind(self.token, {process.pid for process in self.lasting.values()})
        seen["children"] = len(left)
        lying = files(self.places)
        fresh = {name: sorted(set(names) - self.known.get(name, set())) for name, names in lying.items()}
        self.known = {name: set(names) for name, names in lying.items()}
        for name, value in seen.items():
            self.series[kind][name].append(value)
        line = {"kind": kind, "number": number, "seconds": round(seconds, 1), **seen, "left": left}
        line["new_files"] = {name: names[:10] for name, names in fresh.items() if names}
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(json.dumps(line) + "\n")
        shown = ", ".join(f"{name} {value:g}" for name, value in seen.items())
        print(f"{number:4d} {kind:9s} {seconds:5.1f} s  {shown}", flush=True)

    def round(self, kinds: list[str], number: int) -> None:
        """Run a piece of each kind; what lies in the folders is counted at the end of it."""
        for kind in kinds:
            for _ in range(LASTING.get(kind, 1)):
                self.piece(kind, number)
        for name, names in self.known.items():
            self.series["files"][name].append(len(names))

    def _command(self, kind: str, number: int) -> dict[str, float]:
        out = self.folder / f"{kind}-out"
        command = [*XTTSBENCH, *COMMANDS[kind], "--out", str(out)]
        if kind == "resume":  # the same run to the end, and on
            self.resumed_steps += 2
            command += ["--steps", str(self.resumed_steps)]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command, cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            seen: dict[str, float] = {}
            until = time.monotonic() + MOST_S
            while process.poll() is None:
                for name, value in held(process.pid).items():
                    seen[name] = max(value, seen.get(name, 0))
                time.sleep(0.05)
                if time.monotonic() > until:
                    process.kill()
            seen.pop("rss_mb", None)
            if process.returncode not in (0, 3):
                said.seek(0)
                end = said.read()[-2000:].decode(errors="replace")
                self.failed.append(f"{kind} {number} ended with exit code {process.returncode}: {end}")
        if kind != "resume":
            shutil.rmtree(out, ignore_errors=True)
        return seen

    def _asked(self, kind: str, number: int) -> dict[str, float]:
        process = self.lasting.get(kind)
        if process is None:
            errors = (self.folder / f"{kind}.log").open("w")
            process = self.lasting[kind] = subprocess.Popen(
                [sys.executable, str(HERE / "lasting.py"), kind],
                cwd=self.work, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            )  # fmt: skip
            errors.close()
        process.stdin.write(f"{self.folder / kind}-out\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if answer:
            return {name: value for name, value in json.loads(answer).items() if name != "peak_mb"}
        end = (self.folder / f"{kind}.log").read_text(errors="replace")[-2000:]
        self.failed.append(f"{kind} {number} ended with exit code {process.wait()}: {end}")
        del self.lasting[kind]
        return {}

    def close(self) -> None:
        """Let the lasting processes end, and see whether they leave something."""
        for process in self.lasting.values():
            process.stdin.close()
            process.wait()
        self.lasting.clear()
        if left := left_behind(self.token, ()):
            self.failed.append(f"left at the end: {left}")


def apart() -> bool:
    """Begin again with a /dev/shm of our own where the system allows it; whether this process is that one."""
    if os.environ.get(PRIVATE):
        return True
    mounted = 'mount -t tmpfs none /dev/shm && exec "$@"'
    unshare = ["unshare", "--mount", "sh", "-c", mounted, "sh"]
    try:
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
            return False
    except OSError:
        return False
    os.environ[PRIVATE] = "1"
    os.execvp(unshare[0], [*unshare, sys.executable, str(HERE), *sys.argv[1:]])


def main() -> int:
    """Run until the time is over, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join((*COMMANDS, *LASTING)))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--log", type=Path, help="a line of JSON for each piece is added to it")
    options = parser.parse_args()
    kinds = options.kinds or [*COMMANDS, *LASTING]
    if unknown := set(kinds) - {*COMMANDS, *LASTING}:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    if not apart():
        print("a /dev/shm of our own is not allowed here: what others leave there is counted too", flush=True)
    log = None if options.log is None else options.log.absolute()
    until = time.monotonic() + 60 * options.minutes
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        soak = Soak(folder, log)
        number = 0
        while time.monotonic() < until and len(soak.failed) < MOST_FAILURES:
            soak.round(kinds, number)
            number += 1
        soak.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text, grows = table(soak.series)
    print(f"\n{text}")
    for line in soak.failed:
        print(f"FAILED {line}")
    print("something grows" if grows else "nothing grows")
    return 1 if grows or soak.failed else 0


if __name__ == "__main__":
    sys.exit(main())
