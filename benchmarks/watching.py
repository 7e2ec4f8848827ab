"""What watching a script costs a step, watched and bare in turn within one process, against the goal; prints JSON.

``python benchmarks/watching.py [--quick]``: through the very code of a trial (``xttsbench.worker.script.looking``), in
several rounds, for steps that ask for their batch from Python and for those that ask inside a graph, as Keras ``fit``
does. Goal: at most 1 % of a step of 5 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from xttsbench.records.trial import TrialSpec
from xttsbench.worker.script.looking import measure_looking

STEP_S = 0.005
GOAL_SHARE = 0.01


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 9")
    rounds = 3 if parser.parse_args().quick else 9
    spec = TrialSpec(trial_id="watching", rung="script", target="none.py")
    ways = {"from_python": False, "in_graph": True}
    found_us = {
        name: [measure_looking(spec, in_graph=in_graph).overhead_s * 1e6 for _ in range(rounds)]
        for name, in_graph in ways.items()
    }
    shares = {name: statistics.median(values) / 1e6 / STEP_S for name, values in found_us.items()}
    result = {
        "goal": {"share_of_step": GOAL_SHARE, "step_s": STEP_S},
        "value": {"share_of_step": {name: round(share, 4) for name, share in shares.items()}},
        "met": all(share <= GOAL_SHARE for share in shares.values()),
        "us_per_step": {name: round(statistics.median(values), 1) for name, values in found_us.items()},
        "rounds_us": {name: [round(value, 1) for value in values] for name, values in found_us.items()},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
