"""How often ``xttsbench prove`` is right, on planted pairs of pipelines whose truth is known.

``python benchmarks/prove --out DIR [--only TEXT] [--timed] [--budget 60]``: the command is run on each pair
(``pairs.py``: six kinds of pipelines, six kinds of edits, and some more) in a process of its own; some old versions are
an earlier revision of a file in a repository, the others files. What was found is kept in DIR, a line a pair, and is
not run again. A pair is right where exit code and outcome are, and the place of the first difference where it has one.
Without ``--timed`` only the data are compared, so that it takes no quiet machine; with it both versions take turns, and
the same data at a lower speed are wrong, too. Exit code 1 where a pair is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pairs import PAIRS, Pair
from sources import SCRIPTS, source


def versions(pair: Pair, folder: Path) -> tuple[str, str]:
    """Write both versions, and give what the command line names them."""
    attribute = "" if pair.kind in SCRIPTS else ":make"
    folder.mkdir(parents=True, exist_ok=True)
    if not pair.revision:
        (folder / "old.py").write_text(source(pair.kind, pair.old))
        (folder / "new.py").write_text(source(pair.kind, pair.new))
        return f"old.py{attribute}", f"new.py{attribute}"
    file = folder / "data.py"
    file.write_text(source(pair.kind, pair.old))
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "data.py"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "the old version"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    file.write_text(source(pair.kind, pair.new))
    return f"data.py{attribute}@main", f"data.py{attribute}"


def judge(pair: Pair, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the command on a pair, and say whether it is right."""
    command = [sys.executable, "-m", "xttsbench", "prove", *versions(pair, folder), "--json", *pair.options]
    command += [
        "--budget",
        str(options.budget),
        "--out",
        str(folder / "run"),
        *([] if options.timed else ["--no-timing"]),
    ]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["proof"] if done.stdout else None
    said: dict[str, Any] = {"pair": pair.name, "exit_code": done.returncode, "took_s": time.perf_counter() - began}
    if found is None:
        return said | {"right": False, "said": done.stderr.splitlines()[-1:]}
    place = found["place"]
    where = (place["element"] + 1, (place["row"] or 0) + 1) if place else None
    right = done.returncode == pair.exit_code and found["outcome"] == pair.outcome
    right = right and (pair.place is None or (where == pair.place and found["shown"] is not None))
    return said | {"right": right, "outcome": found["outcome"], "place": where, "said": found["semantics"]["sentence"]}


def main() -> None:
    """Judge the pairs that are not judged yet, and print all of them."""
    parser = argparse.ArgumentParser(prog="prove", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where what was found is kept")
    parser.add_argument("--only", default="", help="pairs whose names hold this")
    parser.add_argument("--timed", action="store_true", help="time both versions, too")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each command (60)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out.resolve() / "pairs.jsonl"
    lines = kept.read_text().splitlines() if kept.exists() else []
    found = {line["pair"]: line for line in map(json.loads, lines)}
    wanted = [pair for pair in PAIRS if options.only in pair.name]
    for pair in wanted:
        if pair.name not in found:
            number = PAIRS.index(pair)
            found[pair.name] = judge(pair, options.out.resolve() / f"{number:02d}", options)
            with kept.open("a") as stream:
                stream.write(json.dumps(found[pair.name]) + "\n")
        line = found[pair.name]
        print(f"{'right' if line['right'] else 'WRONG':6} {pair.name:40} {line.get('outcome')}: {line['said']}")
    right = sum(found[pair.name]["right"] for pair in wanted)
    print(f"{right} of {len(wanted)} right")
    sys.exit(right < len(wanted))


if __name__ == "__main__":
    main()
