"""How often the guard of ``xttsbench optimize`` is right, on generated pipelines whose truth is known.

``python benchmarks/guard.py [--pipelines 200] [--seed 0] [--pool-every 6]``: every fix of every pipeline
(``tests/tf/guard``) is judged as the command judges it, in this process. Printed are a table by what was planted and
what the fix does to the data, each accepted fix that changes them, and each refused one that does not. The exit code is
1 where a fix was accepted that changes the data. Some five seconds a pipeline.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tf" / "guard"))

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from judged import judged
from pipelines import Plan, plans

VERDICTS = {True: "accepted", False: "refused", None: "unknown"}


def main() -> int:
    """Judge them all and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=200, help="how many are generated")
    parser.add_argument("--seed", type=int, default=0, help="of the generated pipelines")
    parser.add_argument("--pool-every", type=int, default=6, help="on which of them a pool of processes is tried")
    options = parser.parse_args()
    counts: Counter[tuple[str, str, str, str]] = Counter()
    tried = Counter[str]()
    began = time.perf_counter()

    @seeded(options.seed)
    @settings(
        max_examples=options.pipelines,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(plans())
    def each(plan: Plan) -> None:
        tried["pipelines"] += 1
        with tempfile.TemporaryDirectory() as folder:
            for found in judged(plan, Path(folder), pool=tried["pipelines"] % options.pool_every == 0):
                verdict = VERDICTS[found.said.equivalent]
                counts[plan.kind, found.fix.partition("@")[0], found.truth, verdict] += 1
                if (found.truth == "changes" and verdict == "accepted") or (
                    found.truth == "harmless" and verdict != "accepted"
                ):
                    print(f"{found.truth} but {verdict}: {found.fix} of {plan}: {found.said.sentence}", flush=True)

    each()
    print(f"{'planted':<10}{'fix':<32}{'truth':<10}{'accepted':>9}{'refused':>9}{'unknown':>9}")
    for kind, fix, truth in sorted({key[:3] for key in counts}):
        row = "".join(f"{counts[kind, fix, truth, verdict]:>9}" for verdict in VERDICTS.values())
        print(f"{kind:<10}{fix:<32}{truth:<10}{row}")
    wrong = sum(count for (*_, truth, verdict), count in counts.items() if (truth, verdict) == ("changes", "accepted"))
    harmless = sum(count for key, count in counts.items() if key[2] == "harmless")
    needless = sum(count for key, count in counts.items() if key[2] == "harmless" and key[3] != "accepted")
    changing = sum(count for key, count in counts.items() if key[2] == "changes")
    print(
        f"{tried['pipelines']} pipelines, {sum(counts.values())} fixes in {time.perf_counter() - began:.0f} s: "
        f"{wrong} of {changing} that change the data accepted, {needless} of {harmless} harmless ones not accepted"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
