"""What measuring costs a step, recorded and bare in turn within one process, against the goal; prints JSON.

``python benchmarks/overhead.py [--quick]``: through the very code of a trial, in several rounds: the loop of a callable
with steps of 1, 10 and 50 calls of a tf.function (:mod:`xttsbench.worker.overhead`), and scripts that ask for their
batch from Python and inside a graph, as Keras ``fit`` does (:mod:`xttsbench.worker.script.afterwards`). Goals: at most
20 microseconds a step of a callable, at most 1 % of a step of 5 ms of a script.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from xttsbench.records.trial import TrialSpec
from xttsbench.step.watch import Watch
from xttsbench.worker.bench import Bench
from xttsbench.worker.channel import SilentChannel
from xttsbench.worker.overhead import measure_overhead
from xttsbench.worker.script.afterwards import watching_overhead

GOALS_US = {"callable": 20.0, "script": 50.0}
CALLS = (1, 10, 50)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 9")
    rounds = 3 if parser.parse_args().quick else 9
    bench = Bench(SilentChannel(), Watch(), None, None)
    spec = TrialSpec(trial_id="overhead", rung="script", target="none.py")
    found_us = {
        **{
            f"callable, {calls} calls": _median_us(rounds, lambda n=calls: measure_overhead(bench, n))
            for calls in CALLS
        },
        "script, from Python": _median_us(rounds, lambda: watching_overhead(spec, in_graph=False)),
        "script, in a graph": _median_us(rounds, lambda: watching_overhead(spec, in_graph=True)),
    }
    met = {name: us <= GOALS_US[name.partition(",")[0]] for name, us in found_us.items()}
    result = {"goal": {"us_per_step": GOALS_US}, "value": {"us_per_step": found_us}, "met": all(met.values())}
    print(json.dumps(result | {"met_by_loop": met}, indent=2))


def _median_us(rounds, measure):
    return round(statistics.median(measure().overhead_s * 1e6 for _ in range(rounds)), 2)


if __name__ == "__main__":
    main()
