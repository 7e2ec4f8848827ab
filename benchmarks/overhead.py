"""What measuring costs a step, recorded and bare in turn within one process, against the goal; prints JSON.

``python benchmarks/overhead.py [--quick]``: through the very code of a trial, in several rounds: the loop of a callable
with steps of 1, 10 and 50 calls of a tf.function (:mod:`xttsbench.worker.bench`), and scripts that ask for their
batch from Python and inside a graph, as Keras ``fit`` does (:mod:`xttsbench.worker.script.afterwards`). Goals: at most
20 microseconds a step of a callable, at most 1 % of a step of 5 ms of a script.

Where a step takes milliseconds the difference of two times drowns in their noise (``noise_us_per_step``: bare steps
beside bare steps). What the loop does between two steps is seen directly, as ``pause_ns`` of its rows
(``pause_us_per_step``); it lacks only the clocks read and the calls counted within a step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.step.watch import Watch
from xttsbench.worker.batches import CachedBatches
from xttsbench.worker.bench import Bench, Limit, measure_overhead, overhead_of
from xttsbench.worker.channel import SilentChannel
from xttsbench.worker.script.afterwards import watching_overhead

GOALS_US = {"callable": 20.0, "script": 50.0}
CALLS = (1, 10, 50)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 9")
    rounds = 3 if parser.parse_args().quick else 9
    bench = Bench(SilentChannel(), Watch(), None, None)
    spec = TrialSpec(trial_id="overhead", kind="script", target="none.py")
    found_us = {
        **{
            f"callable, {calls} calls": _median_us(rounds, lambda n=calls: measure_overhead(bench, n))
            for calls in CALLS
        },
        "script, from Python": _median_us(rounds, lambda: watching_overhead(spec, in_graph=False)),
        "script, in a graph": _median_us(rounds, lambda: watching_overhead(spec, in_graph=True)),
    }
    met = {name: us <= GOALS_US[name.partition(",")[0]] for name, us in found_us.items()}
    value = {
        "us_per_step": found_us,
        "pause_us_per_step": {f"callable, {calls} calls": _pause_us(calls) for calls in CALLS},
        "noise_us_per_step": {f"callable, {calls} calls": _noise_us(rounds, calls) for calls in CALLS},
    }
    result = {"goal": {"us_per_step": GOALS_US}, "value": value, "met": all(met.values())}
    print(json.dumps(result | {"met_by_loop": met}, indent=2))


def _step(calls):
    function = tf.function(lambda batch: batch + 1)

    def step(batch):
        for _ in range(calls):
            batch = function(batch)
        return batch

    return step


def _pause_us(calls, steps=500):
    """Median of what the bench's loop does between two steps."""
    rows = RowMemory(bytearray(RowMemory.size_bytes(steps))).segment("pause")
    with Watch() as watch:
        bench = Bench(SilentChannel(), watch, None, None)
        bench.loop("pause", rows, CachedBatches([tf.zeros([4, 4])] * 4), _step(calls), Limit.exactly(steps))
    return round(statistics.median(rows.get(row, "pause_ns") for row in range(steps // 5, steps)) / 1e3, 2)


def _noise_us(rounds, calls):
    """Lowest and highest of the rounds in which bare steps are compared with bare steps, as recorded ones are."""
    step, batch = _step(calls), tf.zeros([4, 4])

    def bare(steps):
        for _ in range(steps):
            step(batch)

    def again(steps):
        bare(steps)

    found = [overhead_of(again, bare, "bare", steps=max(50 // calls, 10), settle=10).overhead_s for _ in range(rounds)]
    return [round(min(found) * 1e6, 2), round(max(found) * 1e6, 2)]


def _median_us(rounds, measure):
    return round(statistics.median(measure().overhead_s * 1e6 for _ in range(rounds)), 2)


if __name__ == "__main__":
    main()
