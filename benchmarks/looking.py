"""What looking costs a step, watched and bare in turn within one process, against the goal; prints JSON.

``python benchmarks/looking.py [--quick]``: first through the very code of a trial (``xttsbench.worker.looking``), in
several rounds; then for steps that make 1, 10 and 50 calls of a tf.function, since the watch stands around each call.
Goal: at most 50 microseconds a step.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from xttsbench.step.watch import Watch
from xttsbench.worker.bench import Bench, Limit
from xttsbench.worker.channel import Channel
from xttsbench.worker.looking import measure_looking
from xttsbench.worker.recorder import Recorder
from xttsbench.worker.source import CachedBatches

GOAL_US = 50.0
CALLS = (1, 10, 50)
STEPS = 50


class Forgetful(Recorder):
    """Keeps rows as in a trial, and sends none."""

    def flush(self) -> None:
        self._pending.clear()


def step_of(calls: int) -> Callable[[Any], Any]:
    """A step that calls one small tf.function that many times."""
    function = tf.function(lambda batch: batch + 1)

    def step(batch: Any) -> Any:
        for _ in range(calls):
            batch = function(batch)
        return batch

    return step


def difference_us(calls: int, pairs: int, bench: Bench) -> float:
    """Median over pairs of the difference per step between watched and bare, in microseconds.

    The more calls, the fewer steps in a run, so that a run stays short and few of them are pre-empted.
    """
    step, source = step_of(calls), CachedBatches([tf.zeros([4, 4])] * 4)
    step(source.next())
    steps = max(STEPS // calls, 12)

    def watched_ns() -> int:
        with Watch(bench.watch.xla) as watch:
            own = Bench(bench.channel, watch, None, None, dict(bench.shapes))
            own.recorders["looking"] = Forgetful(bench.channel, "looking")
            began = time.perf_counter_ns()
            own.run("looking", source, step, Limit(steps, 60.0, steps, 0.0))
            return time.perf_counter_ns() - began

    def bare_ns() -> int:
        began = time.perf_counter_ns()
        for _ in range(steps):
            step(source.next())
        return time.perf_counter_ns() - began

    differences = []
    for pair in range(pairs):
        if pair % 2:
            watched, bare = watched_ns(), bare_ns()
        else:
            bare, watched = bare_ns(), watched_ns()
        differences.append((watched - bare) / steps / 1000)
    return statistics.median(differences)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds and 40 pairs instead of 9 and 200")
    quick = parser.parse_args().quick
    rounds, pairs = (3, 40) if quick else (9, 200)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        bench = Bench(Channel(ours), Watch(), None, None)
        in_trial_us = [measure_looking(bench).overhead_s * 1e6 for _ in range(rounds)]
        by_calls_us = {str(calls): difference_us(calls, pairs, bench) for calls in CALLS}
    value_us = statistics.median(in_trial_us)
    result = {
        "goal": {"us_per_step": GOAL_US},
        "value": {"us_per_step": round(value_us, 2)},
        "met": value_us <= GOAL_US,
        "rounds_us": [round(us, 2) for us in in_trial_us],
        "us_per_step_by_function_calls": {calls: round(us, 2) for calls, us in by_calls_us.items()},
        "met_by_function_calls": {calls: us <= GOAL_US for calls, us in by_calls_us.items()},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
