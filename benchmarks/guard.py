"""How often the guard of ``xttsbench optimize`` is right, on generated pipelines whose truth is known.

``python benchmarks/guard.py --out DIR [--pipelines 400] [--seed 0] [--part I/N] [--seconds 90]``: every fix of every
pipeline (``tests/tf/guard``) is judged as the command judges it, each pipeline in a fork of one warm process; one in
ten is built and iterated by a script, whose trials are those of a script. What was found is kept in DIR, a line a
pipeline, and is not run again: a part that ran out of its seconds goes on with the same command. The summary is of all
that is in DIR. Printed are a table by what was planted and what the fix does to the data, each accepted fix that
changes them, each refused one that does not, and the exact one-sided 95 % upper limit of the share of changing fixes
that are accepted (Clopper and Pearson, 1934), by fixes and, since those of one pipeline are alike, by pipelines. The
exit code is 1 where one was accepted, or more than 5 % of the harmless ones were not. Some four seconds a pipeline.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tf" / "guard"))

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from judged import judged, judged_in_script
from pipelines import Plan, plans
from scipy import special

VERDICTS = {True: "accepted", False: "refused", None: "unknown"}
PIPELINE_S = 60
"""After which a pipeline is given up; that is told."""
NEEDLESS = 0.05


def generated(count: int, seed: int) -> list[Plan]:
    """The pipelines; the same for the same seed."""
    found: list[Plan] = []

    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(plans())
    def each(plan: Plan) -> None:
        found.append(plan)

    each()
    return found[:count]


def judge_into(file: Path, number: int, plan: Plan, *, pool: bool, script: bool) -> None:
    """Judge one pipeline in a fork and append what was found as a line."""
    line = {"pipeline": number, "plan": str(plan), "kind": plan.kind, "script": script}
    child = os.fork()
    if not child:
        signal.alarm(PIPELINE_S)
        try:
            with tempfile.TemporaryDirectory() as folder:
                every = judged_in_script(plan, Path(folder)) if script else judged(plan, Path(folder), pool=pool)
                found = [
                    {
                        "fix": one.fix,
                        "truth": one.truth,
                        "verdict": VERDICTS[one.said.equivalent],
                        "said": one.said.sentence,
                    }
                    for one in every
                ]
            append(file, {**line, "fixes": found})
        except BaseException as error:  # the fork must not go on as its parent
            append(file, {**line, "failed": repr(error)[:500]})
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        append(file, {**line, "failed": f"wait status {status}"})


def append(file: Path, line: dict[str, Any]) -> None:
    """Write one line at once."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def upper_limit(wrong: int, tried: int) -> float:
    """The largest share that as few wrong ones or fewer are seen of with a chance of 5 %."""
    return 1.0 if wrong >= tried else float(special.betaincinv(wrong + 1, tried - wrong, 0.95))


def summary(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Print the table and what was wrong; returns the figures."""
    lines = sorted(lines, key=lambda line: line["pipeline"])
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for line in lines:
        if "failed" in line:
            print(f"not judged: {line['plan']}: {line['failed']}")
        for one in line.get("fixes", ()):
            truth, verdict = one["truth"], one["verdict"]
            counts[line["kind"], one["fix"].partition("@")[0], truth, verdict] += 1
            if (truth, verdict) == ("changes", "accepted") or (truth == "harmless" and verdict != "accepted"):
                print(f"{truth} but {verdict}: {one['fix']} of {line['plan']}: {one['said']}")
    print(f"{'planted':<10}{'fix':<32}{'truth':<10}{'accepted':>9}{'refused':>9}{'unknown':>9}")
    for kind, fix, truth in sorted({key[:3] for key in counts}):
        row = "".join(f"{counts[kind, fix, truth, verdict]:>9}" for verdict in VERDICTS.values())
        print(f"{kind:<10}{fix:<32}{truth:<10}{row}")
    known = [[(one["truth"], one["verdict"]) for one in line.get("fixes", ())] for line in lines]
    every = Counter(pair for one in known for pair in one)
    changing = sum(count for (truth, _), count in every.items() if truth == "changes")
    harmless = sum(count for (truth, _), count in every.items() if truth == "harmless")
    wrong, right = every["changes", "accepted"], every["harmless", "accepted"]
    with_changing = sum(any(truth == "changes" for truth, _ in one) for one in known)
    wrong_in = sum(("changes", "accepted") in one for one in known)
    return {
        "pipelines": len(lines),
        "in_scripts": sum(bool(line.get("script")) for line in lines),
        "not_judged": sum("failed" in line for line in lines),
        "fixes": sum(every.values()),
        "changing": changing,
        "changing_accepted": wrong,
        "changing_accepted_upper_95": round(upper_limit(wrong, changing), 5),
        "pipelines_with_changing": with_changing,
        "pipelines_accepted_upper_95": round(upper_limit(wrong_in, with_changing), 5),
        "harmless": harmless,
        "harmless_not_accepted": harmless - right,
        "harmless_not_accepted_share": round((harmless - right) / harmless, 4) if harmless else None,
    }


def main() -> int:
    """Judge what is missing and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps what was found")
    parser.add_argument("--pipelines", type=int, default=400, help="how many are generated")
    parser.add_argument("--seed", type=int, default=0, help="of the generated pipelines")
    parser.add_argument("--part", default="1/1", help="I/N: every N-th pipeline from the I-th on")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no further one is begun")
    parser.add_argument("--pool-every", type=int, default=6, help="on which of them a pool of processes is tried")
    parser.add_argument("--script-every", type=int, default=10, help="which of them are judged in a script")
    options = parser.parse_args()
    part, parts = (int(word) for word in options.part.split("/"))
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    done = {line["pipeline"] for line in kept(options.out)}
    plans_ = list(enumerate(generated(options.pipelines, options.seed)))[part - 1 :: parts]
    waiting = [(number, plan) for number, plan in plans_ if number not in done]
    while waiting and time.perf_counter() - began < options.seconds:
        number, plan = waiting.pop(0)
        file = options.out / f"part-{part}-of-{parts}.jsonl"
        script = number % options.script_every == options.script_every // 2
        judge_into(file, number, plan, pool=not number % options.pool_every, script=script)
    found = summary(kept(options.out))
    print(json.dumps(found | {"left_of_part": len(waiting)}, indent=1))
    needless = found["harmless_not_accepted"] > NEEDLESS * found["harmless"]
    return int(found["changing_accepted"] > 0 or needless)


def kept(folder: Path) -> list[dict[str, Any]]:
    """What is in the folder."""
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
