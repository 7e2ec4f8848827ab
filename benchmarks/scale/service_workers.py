"""Throughput of an input on 1, 2 and 3 workers of the tf.data service on this machine, and how many a step needs.

    python benchmarks/scale/service_workers.py --out reports/reference/scale/service-workers.json

Each worker is a process held to a quarter of a core. The input computes in one op after the other, so that a worker has
no more than its quota whatever it is asked for. Rounds go through the numbers of workers in random order; intervals are
t intervals over the rounds. TensorFlow's own answer, the gauge ``optimal_number_of_workers`` of the dispatcher, which
runs in this process, is read as its counters of XLA are (docs/decisions/0006) while a step waits between batches for as
long as the input's goal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}

import tensorflow as tf
from scipy import stats

from xttsbench.service import servers
from xttsbench.service.quota import Quota
from xttsbench.step import modes

GAUGE = b"/tensorflow/data/service/optimal_number_of_workers"
CORES, BATCH = 0.25, 8


def burned(number: Any) -> Any:
    """A number after some 2 ms of processor time."""
    done, goes_on = [0, tf.cast(number, tf.float32)], lambda turn, _: turn < 250
    return tf.while_loop(goes_on, lambda turn, value: (turn + 1, value * 1.000001), done)[1]


def batches(address: str, *, tuned: bool = False) -> Any:
    """The input on the service; only with autotune does TensorFlow have what its gauge is made of."""
    options = tf.data.Options()
    options.autotune.enabled = tuned
    data = tf.data.Dataset.range(10**9).map(burned).batch(BATCH).with_options(options)
    service = tf.data.experimental.service
    return data.apply(service.distribute(service.ShardingPolicy.DYNAMIC, address, compression=None))


def started(address: str) -> tuple[subprocess.Popen[str], Quota]:
    """A worker that serves, held to its quota."""
    command = [sys.executable, "-m", "xttsbench", "service", "worker", "--host", "localhost", "--dispatcher", address]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker, Quota(worker.pid, CORES)


def rate(data: Any, seconds: float, step_s: float = 0.0) -> float:
    """Batches a second, after two seconds for what lies ready."""
    samples = iter(data)
    end = time.perf_counter() + 2
    while time.perf_counter() < end:
        next(samples)
        time.sleep(step_s)
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        next(samples)
        time.sleep(step_s)
        count += 1
    return count / (time.perf_counter() - began)


def gauge() -> int | None:
    """TensorFlow's number of workers; ``None`` where it cannot be read."""
    modes._COUNTERS = (GAUGE, GAUGE)
    read = modes.XlaMetrics()
    return read.read().compiles if read.available else None


def interval(values: list[float]) -> dict[str, float]:
    """Mean and its 95 % t interval."""
    mean, error = statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return {"estimate": mean, "low": mean - half, "high": mean + half}


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--step-ms", type=float, nargs="+", default=[40.0, 80.0])
    options = parser.parse_args()
    found: dict[int, list[float]] = {1: [], 2: [], 3: []}
    kinds = set()
    for number in range(options.rounds):
        for count in random.Random(number).sample(sorted(found), len(found)):
            dispatcher = servers.dispatcher()
            address = f"grpc://localhost:{dispatcher.bound_port()}"
            workers = [started(address) for _ in range(count)]
            found[count].append(rate(batches(address), options.seconds))
            kinds |= {quota.kind for _, quota in workers}
            print(f"round {number + 1}: {count} workers, {found[count][-1]:.2f} batches a second", flush=True)
            for worker, quota in workers:
                worker.kill()
                worker.wait()
                quota.close()
            dispatcher.stop()
    one = interval(found[1])
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "tensorflow": tf.__version__,
        "cores_of_a_worker": CORES,
        "quota": sorted(kinds),
        "load_average": os.getloadavg()[0],
        "batches_per_s": {str(count): interval(rates) | {"rounds": rates} for count, rates in found.items()},
        "speedup_of_two": interval([two / one for one, two in zip(found[1], found[2], strict=True)]),
        "speedup_of_three": interval([three / one for one, three in zip(found[1], found[3], strict=True)]),
        "needed": [],
    }
    for step_ms in options.step_ms:
        wanted = {
            name: 1e3 / step_ms / one[of] for name, of in (("estimate", "estimate"), ("low", "high"), ("high", "low"))
        }
        dispatcher = servers.dispatcher()
        address = f"grpc://localhost:{dispatcher.bound_port()}"
        workers = [started(address) for _ in range(2)]
        rate(batches(address, tuned=True), 30.0, step_ms / 1e3)
        told = gauge()
        for worker, quota in workers:
            worker.kill()
            worker.wait()
            quota.close()
        dispatcher.stop()
        needed = {name: math.ceil(value) for name, value in wanted.items()}
        result["needed"].append({"step_ms": step_ms, "workers": needed, "before_rounding": wanted, "gauge": told})
        print(result["needed"][-1], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
