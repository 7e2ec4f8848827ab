"""Samples lost and doubled by the tf.data service as servers and clients are killed, added and slowed; writes JSON.

``python benchmarks/service_kills.py [--kills 100] [--policies DYNAMIC,OFF,FILE,DATA] [--events killed,added,slowed]``:
for each sharding policy, epochs of 400 samples in 40 files on a dispatcher and two workers of this machine. A client
writes a hash of each sample that it gets. When it has got a random number of them, a server or a client is killed
(SIGKILL) and started anew: workers and dispatcher under the address that they had, the dispatcher with its journal.
Then the epoch is read to its end, and the hashes are counted. Beside the kills, a worker is added (where a policy
allows it) or held to a twentieth of a core from then on, ``--kills`` / 20 times in each policy. With FILE and DATA one
client reads from all workers (``target_workers="ANY"``); TensorFlow's documentation has each client read there from a
worker in its own process.

What TensorFlow's documentation promises stands beside what was seen: of ``ShardingPolicy``,
https://www.tensorflow.org/api_docs/python/tf/data/experimental/service/ShardingPolicy
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from xttsbench.service import Cluster, loopback

OUT = Path(__file__).parents[1] / "reports" / "reference" / "scale" / "kills.json"
FILES, RECORDS = 40, 10
SAMPLES = FILES * RECORDS
WORKERS = 2
HANGS_S, SLOW_CORES = 90.0, 0.05
ANY_PORT = ("localhost:%port%",) * WORKERS


def payload(sample: int) -> bytes:
    """Content of a sample."""
    return random.Random(sample).randbytes(64)


IDS = {hashlib.sha256(payload(sample)).hexdigest(): sample for sample in range(SAMPLES)}


def write_files(folder: Path) -> str:
    """Write the samples; returns the pattern of the files."""
    for file in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"{file:03}.tfrecord")) as writer:
            for sample in range(file * RECORDS, (file + 1) * RECORDS):
                writer.write(payload(sample))
    return str(folder / "*.tfrecord")


def slow(record: tf.Tensor) -> tf.Tensor:
    """Give the record back after a millisecond of work."""
    noise = tf.random.stateless_normal([150, 150], [tf.strings.length(record), 0])
    zero = tf.reduce_sum(tf.linalg.matmul(noise, noise)) * 0
    return tf.strings.join([record, tf.strings.substr(tf.strings.as_string(zero), 0, 0)])


@dataclass
class Client:
    """A process that reads an epoch and writes down what it got."""

    log: Path
    pid: int = 0

    def hashes(self) -> list[str]:
        """What it has written so far, without what it says of itself."""
        return [line for line in self._lines() if line in IDS]

    def ended(self) -> bool:
        """Whether it has read the epoch to its end."""
        return "end" in self._lines()

    def _lines(self) -> list[str]:
        return self.log.read_text("ascii").splitlines() if self.log.exists() else []

    def kill(self) -> None:
        """Kill it, if it still runs."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def start(log: Path, pattern: str, target: str, policy: str, job: str | None) -> Client:
    """Fork a client."""
    client = Client(log)
    client.pid = os.fork()
    if client.pid:
        return client
    try:
        signal.alarm(int(2 * HANGS_S))
        with log.open("a", encoding="ascii", buffering=1) as file:
            data = tf.data.Dataset.list_files(pattern, shuffle=False)
            data = data.interleave(tf.data.TFRecordDataset, cycle_length=1).map(slow)
            service = tf.data.experimental.service
            data = data.apply(
                service.distribute(
                    service.ShardingPolicy[policy],
                    target,
                    job_name=job,
                    max_outstanding_requests=4,
                    target_workers="ANY",
                )
            )
            for sample in data.as_numpy_iterator():
                print(hashlib.sha256(sample).hexdigest(), file=file)
            print("end", file=file)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


@dataclass
class Case:
    """One policy under one event, and what is promised of it."""

    policy: str
    event: str
    lost: bool  # whether samples may be lost
    doubled: bool  # whether samples may come more often than the policy yields them by itself
    share: int  # of 100 kills; of what is no kill, beside those
    seen: list[dict[str, int | bool]] = field(default_factory=list)

    def record(self) -> dict[str, object]:
        """The figures of all its kills."""
        numbers = {name: [int(one[name]) for one in self.seen] for name in ("lost", "doubled", "hung")}
        broken = sum(
            bool(one["hung"]) or bool(one["lost"] and not self.lost) or bool(one["doubled"] and not self.doubled)
            for one in self.seen
        )
        return {
            "policy": self.policy,
            "event": self.event,
            "times": len(self.seen),
            "promised": {"lost": "some" if self.lost else "none", "doubled": "some" if self.doubled else "none"},
            "lost": {"samples": sum(numbers["lost"]), "most": max(numbers["lost"], default=0)},
            "doubled": {"samples": sum(numbers["doubled"]), "most": max(numbers["doubled"], default=0)},
            "hung": sum(numbers["hung"]),
            "broken_promises": broken,
        }


WORKER, DISPATCHER = "a worker is killed and started again", "the dispatcher is killed and started again"
ADDED, SLOWED = "a worker is added", "a worker is slowed"
CLIENT, NAMED = "a client is killed and a new one started", "a client is killed and a new one joins its named job"
CASES = [
    # At most once: what a worker or client holds is lost with it. A dispatcher with a journal goes on.
    Case("DYNAMIC", WORKER, lost=True, doubled=False, share=15),
    Case("DYNAMIC", DISPATCHER, lost=True, doubled=False, share=15),
    Case("DYNAMIC", CLIENT, lost=False, doubled=False, share=5),
    Case("DYNAMIC", NAMED, lost=True, doubled=False, share=10),
    # Each worker yields everything, and begins again where it is started again.
    Case("OFF", WORKER, lost=False, doubled=True, share=10),
    Case("OFF", DISPATCHER, lost=False, doubled=False, share=10),
    Case("OFF", CLIENT, lost=False, doubled=False, share=5),
    # A worker that is started again begins its part again.
    Case("FILE", WORKER, lost=False, doubled=True, share=8),
    Case("FILE", DISPATCHER, lost=False, doubled=False, share=7),
    Case("DATA", WORKER, lost=False, doubled=True, share=8),
    Case("DATA", DISPATCHER, lost=False, doubled=False, share=7),
    # FILE and DATA have the workers that the dispatcher was started with.
    *(Case(policy, ADDED, lost=False, doubled=False, share=5) for policy in ("DYNAMIC", "OFF")),
    *(Case(policy, SLOWED, lost=False, doubled=False, share=5) for policy in ("DYNAMIC", "OFF", "FILE", "DATA")),
]


def wait(condition: Callable[[], bool], timeout_s: float = HANGS_S) -> bool:
    """Whether it holds within that time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def one_kill(case: Case, cluster: Cluster, pattern: str, folder: Path, draw: random.Random) -> dict[str, int | bool]:
    """Read an epoch with one kill in it; what was lost and doubled."""
    token = f"{case.policy}-{draw.getrandbits(48):x}"
    job = token if case.event == NAMED else None
    victim = start(folder / f"{token}-0", pattern, cluster.target, case.policy, job)
    clients = [victim]
    after = draw.randrange(1, int(0.6 * SAMPLES * (WORKERS if case.policy == "OFF" else 1)))
    hung = not wait(lambda: len(victim.hashes()) >= after or victim.ended())
    if case.event == WORKER:
        worker = draw.randrange(WORKERS)
        cluster.kill_worker(worker)
        cluster.restart_worker(worker)
    elif case.event == DISPATCHER:
        cluster.stop_dispatcher()
        time.sleep(draw.uniform(0, 0.5))
        cluster.restart_dispatcher()
    elif case.event == ADDED:
        cluster.add_worker()
    elif case.event == SLOWED:
        slowed = draw.randrange(WORKERS)
        cluster.limit_worker(slowed, SLOW_CORES)
    else:
        victim.kill()
        if case.event == CLIENT:
            clients = []  # a new job: what the killed client got does not count
        clients.append(start(folder / f"{token}-1", pattern, cluster.target, case.policy, job))
    hung |= not wait(clients[-1].ended)
    visits = Counter(IDS[one] for client in clients for one in client.hashes())
    for client in clients:
        client.kill()
    if case.event == SLOWED:
        cluster.limit_worker(slowed, 1.0)
    once = len(cluster.workers) if case.policy == "OFF" else 1
    return {
        "after": after,
        "lost": SAMPLES - len(visits),
        "doubled": sum(number > once for number in visits.values()),
        "hung": hung,
    }


def main() -> None:
    """Kill, count, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--policies", default="DYNAMIC,OFF,FILE,DATA")
    parser.add_argument("--events", default="killed,added,slowed")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seed", type=int, default=33)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        pattern = write_files(folder)
        for case in CASES:
            asked = any(word in case.event for word in given.events.split(","))
            if case.policy not in given.policies.split(",") or not asked:
                continue
            addresses = ANY_PORT if case.policy in ("FILE", "DATA") else ()
            with loopback(WORKERS, worker_addresses=addresses) as cluster:
                for _ in range(max(1, round(case.share * given.kills / 100))):
                    case.seen.append(one_kill(case, cluster, pattern, folder, draw))
                    print(case.policy, case.event, case.seen[-1], flush=True)
                    if case.seen[-1]["hung"]:
                        break
            store(given.out)


def store(out: Path) -> None:
    """Write what there is so far; what the file has of other cases stays."""
    cases = [case.record() for case in CASES if case.seen]
    now = {(case["policy"], case["event"]) for case in cases}
    if out.exists():
        old = json.loads(out.read_text("utf-8"))["cases"]
        cases += [case for case in old if (case["policy"], case["event"]) not in now]
    found = {
        "command": "python benchmarks/service_kills.py",
        "tensorflow": tf.__version__,
        "cores": os.cpu_count(),
        "workers": WORKERS,
        "samples": SAMPLES,
        "kills": sum(int(str(case["times"])) for case in cases if "killed" in str(case["event"])),
        "added_or_slowed": sum(int(str(case["times"])) for case in cases if "killed" not in str(case["event"])),
        "broken_promises": sum(int(str(case["broken_promises"])) for case in cases),
        "cases": cases,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
