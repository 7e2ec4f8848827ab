"""What the tf.data service costs a batch beside the same pipeline in this process, and what workers give; writes JSON.

``python benchmarks/service_cost.py [--quick] [--parts costs,numbers_per_s,waiting] [--out FILE]``: a client and one
worker on this machine, so the network is loopback, and both share its cores. Batches of 4 KB to 16 MB, of random
bytes and of text that compresses; with the compression that ``distribute`` has by default and without; in turns with
the same batches in the process. Beside them: elements that wait 10 ms each, on one and on two workers; and 2,000
elements of one number each, which DYNAMIC sharding hands out one by one, against OFF and batches of 100.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

from xttsbench.service import Cluster, loopback

OUT = Path(__file__).parents[1] / "reports" / "reference" / "scale" / "service_cost.json"
SIZES = {"4 KB": 1 << 12, "64 KB": 1 << 16, "1 MB": 1 << 20, "16 MB": 1 << 24}
READY = 24  # batches at most that a client holds, which were fetched while others had their turn
WAIT_US, WAITS = 10_000, 200
NUMBERS, GROUP = 2_000, 100
service = tf.data.experimental.service
OFF, DYNAMIC = service.ShardingPolicy.OFF, service.ShardingPolicy.DYNAMIC


def processor_s(pids: list[int]) -> float:
    """Processor time of processes."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def read(batches: Iterator[Any], number: int, pids: list[int]) -> dict[str, float]:
    """Wall and processor time for each of so many batches, in milliseconds, after those that lie ready."""
    pids = [os.getpid(), *pids]
    for _ in islice(batches, READY):
        pass
    wall_s, used_s = time.perf_counter(), processor_s(pids)
    for _ in islice(batches, number):
        pass
    wall_s, used_s = time.perf_counter() - wall_s, processor_s(pids) - used_s
    return {"ms": 1e3 * wall_s / number, "processor_ms": 1e3 * used_s / number}


def costs(cluster: Cluster, rounds: int) -> list[dict[str, Any]]:
    """The cost of a batch, by size, content and compression."""
    found = []
    for name, size in SIZES.items():
        number = max(8, min(400, (64 << 20) // size))
        for content in ("random", "text"):
            draw = np.random.default_rng(0).integers(0, 256 if content == "random" else 8, size, dtype=np.uint8)
            data = tf.data.Dataset.from_tensors(draw).repeat()
            ways = {"in this process": data.prefetch(2)}
            for way, compression in (("service, compressed", "AUTO"), ("service, not compressed", None)):
                ways[way] = data.apply(service.distribute(OFF, cluster.target, compression=compression))
            readers = {way: iter(pipeline) for way, pipeline in ways.items()}
            for reader in readers.values():
                next(reader)
            times: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, reader in readers.items():
                    times[way].append(read(reader, number, cluster.pids))
            del readers
            found.append({"batch": name, "content": content, "ways": {way: medians(of) for way, of in times.items()}})
            print(json.dumps(found[-1]), flush=True)
    return found


def medians(times: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the rounds."""
    return {key: round(statistics.median(one[key] for one in times), 4) for key in times[0]}


def epoch(data: tf.data.Dataset, each: int = 1) -> tuple[float, float]:
    """Numbers a second from the first element of an epoch to its last, and seconds from the last to the end."""
    came = [time.perf_counter() for _ in data]
    return each * (len(came) - 1) / (came[-1] - came[0]), time.perf_counter() - came[-1]


def numbers_per_s(cluster: Cluster, rounds: int) -> dict[str, dict[str, float]]:
    """Numbers a second, one by one and in batches, and how late an epoch ends."""
    numbers = tf.data.Dataset.range(NUMBERS)
    served = {name: service.distribute(policy, cluster.target) for name, policy in (("DYNAMIC", DYNAMIC), ("OFF", OFF))}
    ways = {
        "in this process": (numbers, 1),
        "DYNAMIC, one by one": (numbers.apply(served["DYNAMIC"]), 1),
        "OFF, one by one": (numbers.apply(served["OFF"]), 1),
        "OFF, batches of 100": (numbers.batch(GROUP).apply(served["OFF"]), GROUP),
    }
    return {name: epochs([epoch(*way) for _ in range(rounds)]) for name, way in ways.items()}


def epochs(found: list[tuple[float, float]]) -> dict[str, float]:
    """Medians over epochs."""
    per_s, end_s = (statistics.median(column) for column in zip(*found, strict=True))
    return {"per_s": round(per_s, 1), "end_s": round(end_s, 3)}


def waiting(cluster: Cluster, rounds: int) -> dict[str, Any]:
    """Elements a second that wait, on one worker and on two; the ratio is of what lies between first and last."""
    waits = tf.data.Dataset.range(WAITS).apply(sleep(WAIT_US))
    found: dict[str, Any] = {"wait_ms": WAIT_US / 1000, "in this process": epochs([epoch(waits)])}
    for name in ("one worker", "two workers"):
        if name == "two workers":
            cluster.add_worker()
        served = waits.apply(service.distribute(DYNAMIC, cluster.target))
        found[name] = epochs([epoch(served) for _ in range(rounds)])
    return found | {"ratio": round(found["two workers"]["per_s"] / found["one worker"]["per_s"], 3)}


PARTS = {"costs": costs, "numbers_per_s": numbers_per_s, "waiting": waiting}


def main() -> None:
    """Measure and write; what the file has of other parts stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 9")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    found = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
    rounds = 3 if given.quick else 9
    found |= {"command": "python benchmarks/service_cost.py", "tensorflow": tf.__version__, "cores": os.cpu_count()}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with loopback(1) as cluster:
        for part in given.parts.split(","):
            found[part] = PARTS[part](cluster, rounds)
            print(part, json.dumps(found[part]), flush=True)
            given.out.write_text(json.dumps(found | {"rounds": rounds}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
