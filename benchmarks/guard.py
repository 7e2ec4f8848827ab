"""How often the guard of ``xttsbench optimize`` is right, on generated pipelines whose truth is known.

``python benchmarks/guard.py --out DIR [--pipelines 400] [--seed 0] [--from 0] [--count 400] [--seconds 90]``: every fix
of every pipeline (``tests/tf/guard``) is judged as the command judges it, many pipelines in a fork of one warm process;
one in ten is built and iterated by a script, whose trials are those of a script. What was found is kept in DIR, a line
a pipeline, and is not run again: a part that ran out of its seconds goes on with the same command. The summary is of
all that is in DIR. Printed are a table by what was planted and what the fix does to the data, each accepted fix that
changes them, each refused one that does not, and the exact one-sided 95 % upper limit of the share of changing fixes
that are accepted (Clopper and Pearson, 1934; about 3 / n where none is), by fixes and, since those of one pipeline are
alike, by pipelines. The exit code is 1 where one was accepted, or more than 5 % of the harmless ones were not.

A fix that only runs ahead leaves the data of a function alone that counts in a variable of its own, which nobody else
can assign: such a refusal counts as one of a harmless fix, though no guard can see that nobody does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tf" / "guard"))

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from judged import FIXES, POOL, helper_of_scripts, judged, judged_in_script
from pipelines import Plan, plans
from scipy import special

VERDICTS = {True: "accepted", False: "refused", None: "unknown"}
PIPELINE_S = 75  # after which a pipeline is given up; that is told
TOGETHER = 20  # pipelines of one fork: its first one takes a second more
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


def judge(number: int, plan: Plan, every: Every, helper: Any) -> dict[str, Any]:
    """What is found of one pipeline."""
    script = helper is not None and every.script(number)
    with tempfile.TemporaryDirectory() as folder:
        # Pools cost a second each: what runs a generator ahead is tried on all of these, but on few others.
        generator = plan.source.startswith("generator") or plan.generates
        pool = POOL if every.pool(number) else POOL[1:] if generator and every.ahead(number) else ()
        found = judged_in_script(plan, Path(folder), helper) if script else judged(plan, Path(folder), pool=pool)
        fixes = [
            {"fix": one.fix, "truth": one.truth, "verdict": VERDICTS[one.said.equivalent], "said": one.said.sentence}
            for one in found
        ]
    return {"script": script, "fixes": fixes}


class Every(NamedTuple):
    """Which of the pipelines are judged how."""

    scripts: int
    pools: int

    def script(self, number: int) -> bool:
        """In a script."""
        return number % self.scripts == self.scripts // 2

    def pool(self, number: int) -> bool:
        """With a pool of processes too."""
        return not number % self.pools

    def ahead(self, number: int) -> bool:
        """With a generator in a process of its own, too."""
        return not number % 2


def judge_some(file: Path, waiting: Sequence[tuple[int, Plan]], every: Every, until: float) -> int:
    """Judge pipelines in a fork and append what was found, a line each; returns its process."""
    child = os.fork()
    if child:
        return child
    waiting = waiting[:TOGETHER]
    # A helper of its own: one that several forks share would tell each of trials that another one asked for.
    with helper_of_scripts() if any(every.script(number) for number, _ in waiting) else nullcontext() as helper:
        if helper is not None:
            helper.wait_ready()
        for number, plan in waiting:
            if time.perf_counter() > until:
                break
            signal.alarm(PIPELINE_S)
            began = time.process_time()
            line = {"pipeline": number, "plan": str(plan), "kind": plan.kind}
            try:
                found = judge(number, plan, every, helper)
            except BaseException as error:  # the fork must not go on as its parent
                traceback.print_exc()
                found = {"failed": repr(error)[:500]}
            append(file, line | found | {"cpu_s": round(time.process_time() - began, 2)})
            signal.alarm(0)
    os._exit(0)


def judge_side_by_side(file: Path, waiting: Sequence[tuple[int, Plan]], every: Every, until: float, jobs: int) -> None:
    """The same in several forks, since a pipeline mostly waits for what is held up; scripts are all in one of them."""
    scripts = [one for one in waiting if every.script(one[0])]
    others = [one for one in waiting if not every.script(one[0])]
    parts = [part for part in (scripts, *(others[job::jobs] for job in range(jobs))) if part]
    children = [(judge_some(file, part, every, until), part) for part in parts[:jobs]]
    for child, part in children:
        status = os.waitpid(child, 0)[1]
        left = not_done(file.parent, part)
        if status and left:
            (number, plan), *_ = left
            append(file, {"pipeline": number, "plan": str(plan), "kind": plan.kind, "failed": f"status {status}"})


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
    variable = sum(
        one["truth"] == "harmless" and one["verdict"] != "accepted" and " of a variable" in one["said"]
        for line in lines
        for one in line.get("fixes", ())
    )
    tried = Counter(one["fix"].partition("@")[0] for line in lines for one in line.get("fixes", ()))
    with_changing = sum(any(truth == "changes" for truth, _ in one) for one in known)
    wrong_in = sum(("changes", "accepted") in one for one in known)
    return {
        "pipelines": len(lines),
        "in_scripts": sum(bool(line.get("script")) for line in lines),
        "not_judged": sum("failed" in line for line in lines),
        "fixes": sum(every.values()),
        "of_them": {name: tried[name] for name in (*FIXES, *POOL, "cache")},
        "changing": changing,
        "changing_accepted": wrong,
        "changing_accepted_upper_95": round(upper_limit(wrong, changing), 5),
        "pipelines_with_changing": with_changing,
        "pipelines_accepted_upper_95": round(upper_limit(wrong_in, with_changing), 5),
        "harmless": harmless,
        "harmless_not_accepted": harmless - right,
        "of_those_that_read_a_variable": variable,
        "harmless_not_accepted_share": round((harmless - right) / harmless, 4) if harmless else None,
    }


def main() -> int:
    """Judge what is missing and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that keeps what was found")
    parser.add_argument("--pipelines", type=int, default=400, help="how many are generated")
    parser.add_argument("--seed", type=int, default=0, help="of the generated pipelines")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them that is judged")
    parser.add_argument("--count", type=int, help="how many of them are judged; by default all that follow")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no further one is begun")
    parser.add_argument("--jobs", type=int, default=3, help="how many pipelines are judged side by side")
    parser.add_argument("--pool-every", type=int, default=6, help="on which of them a pool of processes is tried")
    parser.add_argument("--script-every", type=int, default=10, help="which of them are judged in a script")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.perf_counter() + options.seconds
    every = Every(options.script_every, options.pool_every)
    file = options.out / f"from-{options.first}.jsonl"
    own = range(options.pipelines)[options.first :][: options.count]
    plans_ = [(number, plan) for number, plan in enumerate(generated(options.pipelines, options.seed)) if number in own]
    waiting = not_done(options.out, plans_)
    while waiting and time.perf_counter() < until:
        judge_side_by_side(file, waiting, every, until, options.jobs)
        waiting = not_done(options.out, waiting)
    found = summary(kept(options.out))
    print(json.dumps(found | {"left_of_part": len(waiting)}, indent=1))
    needless = found["harmless_not_accepted"] > NEEDLESS * found["harmless"]
    return int(found["changing_accepted"] > 0 or needless)


def not_done(folder: Path, plans_: Sequence[tuple[int, Plan]]) -> list[tuple[int, Plan]]:
    """Those that the folder has nothing of."""
    done = {line["pipeline"] for line in kept(folder)}
    return [(number, plan) for number, plan in plans_ if number not in done]


def kept(folder: Path) -> list[dict[str, Any]]:
    """What is in the folder."""
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
