"""What keeping the batches of a turn for their digests costs a step: turns with and without, on live pipelines.

``python benchmarks/timed_batches.py [--turns 20] [--step-ms 1] [--out FILE]``: for each size of a batch, one iterator
whose batches are kept (:mod:`xttsbench.worker.contents`) and one whose are not take turns of 0.2 s in one process,
through the loop of a trial (:meth:`xttsbench.worker.bench.Bench.run`), where a step computes until its time is over,
and through a loop of a script whose request for data and step are one ``tf.function``. Printed is the ratio of the time
of a step with and without (the lower quartile of a turn, which neighbours touch least), with its 95 % interval over the
turns, and the seconds that digests take for each second of turns, off the clock. The exit code is 1 where the ratio is
beyond 1.01 for sure.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from xttsbench.analysis.evidence import LEAST_SCALE, interval, paired
from xttsbench.records.code import ScriptAgain, ScriptData
from xttsbench.records.rows import RowMemory
from xttsbench.step.watch import Watch
from xttsbench.worker.batches import LiveBatches
from xttsbench.worker.bench import Bench, Limit
from xttsbench.worker.channel import SilentChannel
from xttsbench.worker.contents import ContentLook, ScriptContents
from xttsbench.worker.script.again.trials import AgainLoops
from xttsbench.worker.script.graph_clock import GraphClock

SIZES = {"4 kB": 1_024, "64 kB": 16_384, "1 MB": 262_144, "4 MB": 1_048_576}
TURN_S = 0.2
GOAL = 1.01
_WIDTH = 512  # of the matrix of a step in a graph, which takes some milliseconds
_MOST_STEPS = 4096


class Side:
    """One iterator, whose batches are kept or not."""

    def __init__(self, dataset: tf.data.Dataset, *, keeps: bool, step_s: float) -> None:
        self.look: ContentLook | None = ContentLook() if keeps else None
        self._step_s = step_s
        channel = SilentChannel()
        channel.rows = RowMemory(bytearray(RowMemory.size_bytes(_MOST_STEPS)))
        self._bench = Bench(channel, Watch(), None, None, contents=self.look)
        self._source = LiveBatches(dataset)

    def steps(self, window_s: float) -> list[float]:
        """Step for so long; returns the seconds of each step."""
        count = self._bench.run("as_is", self._source, self._step, Limit.exactly(_MOST_STEPS - 1, window_s))
        rows = self._bench.segments["as_is"]
        return [wall_ns / 1e9 for wall_ns in rows.values("wall_ns", rows.count - count, rows.count).values()]

    def digest(self) -> None:
        """The turn is over."""
        if self.look is not None:
            self.look.digest()

    def _step(self, batch: Any) -> None:
        until = time.perf_counter() + self._step_s
        while time.perf_counter() < until:
            pass


class InGraph(Side):
    """The same in a graph, as a script has it."""

    def __init__(self, dataset: tf.data.Dataset, *, keeps: bool, step_s: float) -> None:
        memory = RowMemory(bytearray(RowMemory.size_bytes(1)))
        again = ScriptAgain(data=ScriptData(kind=0), trains=False, redirected=False, directory="")
        self._contents = ScriptContents(AgainLoops(again, memory, None).counts_own) if keeps else None
        self.look = self._contents.look if self._contents else None
        clock = GraphClock(lambda _: None)
        clock.contents = self._contents
        iterator, weights = iter(dataset), tf.random.normal([_WIDTH, _WIDTH])

        @tf.function
        def step() -> Any:
            batch = clock.around_request(lambda: next(iterator))
            return tf.reduce_sum(weights @ weights) + batch[0]

        self._step_of_graph = step

    def steps(self, window_s: float) -> list[float]:
        """As there."""
        last, took = time.perf_counter(), list[float]()
        until = last + window_s
        while last < until:
            self._step_of_graph()
            before, last = last, time.perf_counter()
            took.append(last - before)
        return took

    def digest(self) -> None:
        """As there."""
        if self._contents is not None:
            self._contents.digest()


def cost(side: type[Side], numbers: int, turns: int, step_s: float) -> dict[str, Any]:
    """Of batches of so many floats, made ahead by a map and a prefetch."""
    dataset = tf.data.Dataset.range(10**9).map(lambda i: tf.fill([numbers], tf.cast(i, tf.float32))).prefetch(2)
    kept, plain = (side(dataset, keeps=keeps, step_s=step_s) for keeps in (True, False))
    ratios: list[float] = []
    for number in range(turns + 1):
        pace = {}
        for one in (kept, plain) if number % 2 else (plain, kept):
            one.steps(TURN_S / 10)
            pace[one] = statistics.quantiles(one.steps(TURN_S), n=4)[0]
            one.digest()
        if number:  # the first turn of each warms up
            ratios.append(math.log(pace[kept] / pace[plain]))
    assert kept.look is not None
    found, record = interval(paired(ratios), LEAST_SCALE), kept.look.record()
    return {
        "step_ms": round(1e3 * pace[plain], 3),
        "step_with_over_without": [round(x, 4) for x in (found.estimate, found.low, found.high)],
        "digest_s_per_s": round(record.cost_s / ((turns + 1) * TURN_S), 4),
        "digests": len(record.digests),
        "of": record.seen,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--step-ms", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {}
    for where, side in (("from Python", Side), ("in a graph", InGraph)):
        for name, numbers in SIZES.items():
            found[f"{name}, {where}"] = one = cost(side, numbers, options.turns, options.step_ms / 1e3)
            print(f"{name}, {where}: {json.dumps(one)}", flush=True)
    text = json.dumps({"turns": options.turns} | found, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    return int(any(one["step_with_over_without"][1] > GOAL for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
