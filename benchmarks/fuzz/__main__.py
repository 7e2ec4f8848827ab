"""Does any content of a file bring a reader down? Prints JSON: executions, minutes and what was found, for each kind.

``python benchmarks/fuzz [--minutes 10] [--only KIND ...] [--at-a-time 2] [--out FILE]``: coverage-guided fuzzing of
the kinds of :mod:`inputs` with Atheris. It has no place beside TensorFlow and is not installed with the project; from
the root of the repository::

    python3.11 -m venv build/fuzz/venv && build/fuzz/venv/bin/pip install atheris . && \
        build/fuzz/venv/bin/python benchmarks/fuzz

Goals: no exception but ours, no input that takes more than five seconds, none that takes a process beyond a gigabyte.
What is found lies under ``build/fuzz/KIND/``; what found a new way through the code is kept, as few and as small as can
be, in ``tests/corpus/KIND``, which ``tests/unit/test_corpus.py`` reads again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).resolve().parents[2]
CORPUS: Final = PROJECT / "tests" / "corpus"
KINDS: Final = ("npy", "index", "metadata", "wav", "yaml", "journal", "report")
LIMIT_S: Final = 5
MEMORY_MB: Final = 1000
LONGEST_BYTES: Final = 32768
KEPT_BYTES: Final = 3000  # a file of the corpus at most: larger seeds are there for fuzzing alone
KEPT_FILES: Final = 40


def fuzzed(kind: str, minutes: float, folder: Path) -> dict[str, Any]:
    """Fuzz a kind for so long; what is found ends the process, which begins again in what is left of the time."""
    work, found = folder / kind / "corpus", folder / kind / "found"
    for one in (work, found):
        one.mkdir(parents=True, exist_ok=True)
    began, executions, coverage, cases = time.monotonic(), 0, 0, []
    while (left_s := 60 * minutes - (time.monotonic() - began)) > 1:
        options = (f"-max_total_time={left_s:.0f}", f"-timeout={LIMIT_S}", f"-rss_limit_mb={MEMORY_MB}")
        more = (f"-max_len={LONGEST_BYTES}", "-use_value_profile=1", f"-artifact_prefix={found}/")
        code, said = _child(folder / kind / f"log-{len(cases)}.txt", kind, *options, *more, str(work), *_seeds(kind))
        numbers = re.findall(rb"^#(\d+)\t\w+ +cov: (\d+)", said, re.MULTILINE)
        executions += int(numbers[-1][0]) if numbers else 0
        coverage = max([coverage, *(int(cov) for _, cov in numbers)])
        if code == 0:
            break
        cases.append(_what(said))
        if not numbers:
            break
    minutes = (time.monotonic() - began) / 60
    return {"kind": kind, "executions": executions, "minutes": minutes, "coverage": coverage, "found": cases}


def _child(log: Path, kind: str, *options: str) -> tuple[int, bytes]:
    """Run it with a log, since decoders write a lot; its exit code, and what it said."""
    command = [sys.executable, str(Path(__file__).with_name("child.py")), kind, *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])}
    with log.open("wb") as file:
        done = subprocess.run(command, stdout=file, stderr=file, env=environment, check=False)
    return done.returncode, log.read_bytes()


def _seeds(kind: str) -> tuple[str, ...]:
    return (str(CORPUS / kind),) if (CORPUS / kind).is_dir() else ()


def _what(said: bytes) -> str:
    lines = said.decode(errors="replace").splitlines()
    wanted = [
        line for line in lines if "ERROR: libFuzzer" in line or re.match(r"[\w.]*(Error|Exception|Warning)\b", line)
    ]
    return " | ".join(wanted[:3])[:300] or (lines[-1][:300] if lines else "it ended without a word")


def kept(kind: str, folder: Path) -> int:
    """Add to the corpus, as few and as small files as cover what all of them do; how many there are then."""
    minimal = folder / kind / "minimal"
    shutil.rmtree(minimal, ignore_errors=True)
    minimal.mkdir()
    _child(
        folder / kind / "log-merge.txt", kind, "-merge=1", str(minimal), *_seeds(kind), str(folder / kind / "corpus")
    )
    small = sorted((path.stat().st_size, path) for path in minimal.iterdir())
    (CORPUS / kind).mkdir(parents=True, exist_ok=True)
    for size, path in small[:KEPT_FILES]:
        if size <= KEPT_BYTES:
            shutil.copy(path, CORPUS / kind / path.name[:16])
    return len(list((CORPUS / kind).iterdir()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, keep the corpus, print what came of it; 1 where anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each kind")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--at-a-time", type=int, default=2)
    parser.add_argument("--out", type=Path, help="where to add the results, a line each")
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=True, help="add to tests/corpus")
    asked = parser.parse_args(arguments)
    folder, code = PROJECT / "build" / "fuzz", 0

    def one(kind: str) -> dict[str, Any]:
        row = fuzzed(kind, asked.minutes, folder)
        return row | ({"kept": kept(kind, folder)} if asked.keep else {})

    with ThreadPoolExecutor(asked.at_a_time) as pool:
        for row in pool.map(one, asked.only):
            code |= bool(row["found"])
            print(json.dumps(row), flush=True)
            if asked.out is not None:
                with asked.out.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(row) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
