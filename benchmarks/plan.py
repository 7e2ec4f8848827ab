"""``xttsbench plan`` beside measurements: 1 to 4 workers, three latencies, two networks.

    python benchmarks/plan.py [--run PLAN] [--out FILE] [--seconds S] [--passes N]

Diagnoses a target, plans from that run (unless ``--run`` names such a plan), and then measures every cell of the plan
that can be made on one machine: workers of a quarter of a core each in a network namespace of their own, behind a
virtual Ethernet whose speed a token bucket limits (tc tbf), and behind a relay that delays what passes it by half of a
round trip each way. Needs root, iproute2 and quiet. Writes every cell, predicted with its range and measured, and a
plot beside the file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET, STEP_MS, CORES = f"{Path(__file__).resolve()}:make", 10.0, 0.25
WORKERS, LATENCIES_MS, GBIT_S = (1, 2, 3, 4), (0.0, 2.0, 20.0), (10.0, 1.0)
HERE, THERE, SPACE = "10.99.0.1", "10.99.0.2", "xttsplan"
WITHIN, KNEE, GOAL = 0.10, 0.95, 22


def make(rows: int = 96, columns: int = 2048) -> Any:
    """Batches of 0.75 MiB that take some milliseconds of one processor, and are of no use."""
    import tensorflow as tf

    def batch(number: Any) -> Any:
        return tf.sin(tf.random.stateless_normal([rows, columns], tf.stack([number, number])))

    return tf.data.Dataset.range(2**40).map(batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)


def serve() -> None:
    """Run the service; called within the namespace. A line on standard input asks for one more worker."""
    from xttsbench.service import loopback

    with loopback(workers=0) as cluster:
        dispatcher = cluster.target.rpartition(":")[2]
        print(dispatcher, flush=True)
        for number, _ in enumerate(sys.stdin):
            asked = {"dispatcher": f"localhost:{dispatcher}", "host": HERE, "cores": CORES}
            print(cluster._start("worker", f"{number}.log", asked)[1], flush=True)


async def relay() -> None:
    """Pass on to the namespace what comes to the ports of standard input; ``delay MS`` sets the round trip."""
    delay_s = 0.0

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def late() -> None:
            while (item := await waiting.get())[1]:
                await asyncio.sleep(max(item[0] - time.monotonic(), 0.0))
                writer.write(item[1])
                await writer.drain()
            writer.close()

        task = asyncio.create_task(late())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(2**18):
                waiting.put_nowait((time.monotonic() + delay_s / 2, data))
        waiting.put_nowait((0.0, b""))
        with contextlib.suppress(ConnectionError):
            await task

    def listener(port: int) -> Any:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection(THERE, port)
            await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

        return accept

    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode().split():
        if line[0] == "delay":
            delay_s = float(line[1]) / 1e3
        else:
            await asyncio.start_server(listener(int(line[0])), HERE, int(line[0]))
        print("ok", flush=True)


class Helper:
    """A part of this file in a process of its own, asked by lines."""

    def __init__(self, part: str, *before: str) -> None:
        command = [*before, sys.executable, __file__, "--part", part]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str = "") -> str:
        if line:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def shell(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, stderr=None if check else subprocess.DEVNULL)


@contextlib.contextmanager
def network() -> Any:
    """A namespace with a virtual Ethernet to here; what a caller is given limits its speed."""

    def limit(gbit_s: float) -> None:
        burst = gbit_s * 128  # KiB, which pass at once: a millisecond's worth, of a batch of 768
        tbf = f"tc qdisc replace dev vplan root tbf rate {gbit_s:g}gbit burst {burst:g}kb latency 50ms"
        shell("ip", "netns", "exec", SPACE, *tbf.split())

    try:
        shell("ip", "netns", "add", SPACE)
        shell(*f"ip link add hplan type veth peer name vplan netns {SPACE}".split())
        shell(*f"ip addr add {HERE}/24 dev hplan".split())
        shell("ip", "link", "set", "hplan", "up")
        for words in (f"addr add {THERE}/24 dev vplan", "link set vplan up", "link set lo up"):
            shell("ip", "netns", "exec", SPACE, "ip", *words.split())
        yield limit
    finally:
        shell("ip", "netns", "del", SPACE, check=False)
        shell("ip", "link", "del", "hplan", check=False)


def measured(seconds: float) -> list[dict[str, Any]]:
    """Batches a second of every cell."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    from xttsbench.probes.clock import EmulatedAccelerator

    service, found = tf.data.experimental.service, []
    with network() as limit:
        server, passing = Helper("serve", "ip", "netns", "exec", SPACE), Helper("relay")
        try:
            target = f"grpc://{THERE}:{server.ask()}"
            for workers in WORKERS:
                passing.ask(server.ask("more"))
                for gbit_s in GBIT_S:
                    limit(gbit_s)
                    for latency_ms in LATENCIES_MS:
                        passing.ask(f"delay {latency_ms}")
                        distributed = service.distribute(service.ShardingPolicy.OFF, target, compression=None)
                        batches, step = iter(make().apply(distributed)), EmulatedAccelerator((STEP_MS,))
                        rate = _rate(batches, step, seconds)
                        cell = {"workers": workers, "gbit_s": gbit_s, "latency_ms": latency_ms, "measured_per_s": rate}
                        print(cell, file=sys.stderr, flush=True)
                        found.append(cell)
                        del batches
        finally:
            for helper in (server, passing):
                helper.process.kill()
                helper.process.wait()
    return found


def averaged(passes: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Every cell with the mean of the passes, each of which has servers of its own, and what each of them gave."""
    means = []
    for same in zip(*passes, strict=True):
        rates = [one["measured_per_s"] for one in same]
        means.append({**same[0], "measured_per_s": sum(rates) / len(rates), "passes_per_s": rates})
    return means


def _rate(batches: Any, step: Any, seconds: float) -> float:
    until = time.perf_counter() + seconds / 3
    while time.perf_counter() < until:
        next(batches)
        step.compute()
    began, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        next(batches)
        step.compute()
        count += 1
    return count / spent


def planned(folder: Path) -> Path:
    """Diagnose the target and plan from that, in that folder; the plan's directory."""
    run, plan = folder / "run", folder / "plan"
    base = [sys.executable, "-m", "xttsbench"]
    emulated = ["--accelerator", f"emulated:{STEP_MS:g}", "--no-verify", "-q", "--budget", "90"]
    subprocess.run([*base, "diagnose", TARGET, *emulated, "--out", str(run)], check=True)
    late = [word for ms in LATENCIES_MS for word in ("--latency", f"{ms:g}ms")]
    asked = ["--cores", f"{CORES:g}", "--sharding", "off", *late, "--out", str(plan)]
    subprocess.run([*base, "plan", str(run), *asked], check=True)
    return plan


def judged(scale: dict[str, Any], cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Every measured cell beside its prediction, and the knees."""

    def same(one: dict[str, Any], cell: dict[str, Any]) -> bool:
        at = (one["gbit_s"], round(one["latency_s"] * 1e3, 6), one["accelerator"], one["replicas"])
        return at == (cell["gbit_s"], cell["latency_ms"], 1.0, 1)

    rows, knees = [], []
    for cell in cells:
        said = next(one for one in scale["cells"] if one["workers"] == cell["workers"] and same(one, cell))
        error = said["throughput_per_s"]["estimate"] / cell["measured_per_s"] - 1
        of_plan = {name: said[name] for name in ("throughput_per_s", "limited_by", "compressed")}
        rows.append({**cell, "predicted": of_plan, "error": error, "within": abs(error) <= WITHIN})
    for gbit_s in GBIT_S:
        for latency_ms in LATENCIES_MS:
            line = {r["workers"]: r for r in rows if (r["gbit_s"], r["latency_ms"]) == (gbit_s, latency_ms)}
            found = {
                name: next(n for n in WORKERS if rate(line[n]) >= KNEE * rate(line[WORKERS[-1]]))
                for name, rate in (
                    ("measured", lambda row: row["measured_per_s"]),
                    ("predicted", lambda row: row["predicted"]["throughput_per_s"]["estimate"]),
                )
            }
            said = next(one for one in scale["knees"] if same(one, line[1]))
            knees.append({"gbit_s": gbit_s, "latency_ms": latency_ms, "plan": said["workers"], **found})
    within = sum(row["within"] for row in rows)
    near = sum(abs(knee["measured"] - knee["predicted"]) <= 1 for knee in knees)
    summary = {"cells": len(rows), "within_10_percent": within, "goal": GOAL, "knees": len(knees), "near": near}
    return {"summary": summary, "needs": scale["needs"], "cells": rows, "knees": knees}


def plot(found: dict[str, Any], file: Path) -> None:
    """Measured points on predicted lines with their ranges."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, gbit_s in zip(figure.subplots(1, 2, sharey=True), GBIT_S, strict=True):
        for color, latency_ms in zip(("#0072b2", "#009e73", "#d55e00"), LATENCIES_MS, strict=True):
            rows = [r for r in found["cells"] if (r["gbit_s"], r["latency_ms"]) == (gbit_s, latency_ms)]
            at, said = [r["workers"] for r in rows], [r["predicted"]["throughput_per_s"] for r in rows]
            axes.fill_between(at, [s["low"] for s in said], [s["high"] for s in said], color=color, alpha=0.2)
            axes.plot(at, [s["estimate"] for s in said], color=color, label=f"{latency_ms:g} ms")
            axes.plot(at, [r["measured_per_s"] for r in rows], "o", color=color)
        axes.set(title=f"{gbit_s:g} Gbit/s", xlabel="workers of a quarter of a core", xticks=WORKERS, ylim=(0, None))
        axes.legend(title="round trip", frameon=False)
    figure.axes[0].set_ylabel("batches/s; lines predicted, points measured")
    figure.savefig(file, dpi=110)


def main() -> None:
    """Plan, measure, compare, write."""
    parser = argparse.ArgumentParser(prog="plan", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--run", type=Path, help="directory of a plan that this file has made")
    parser.add_argument("--only-plan", type=Path, help="make that plan in this folder, and measure nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "reference" / "scale" / "plan.json")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each cell")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--part", choices=("serve", "relay"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        serve() if given.part == "serve" else asyncio.run(relay())
        return
    if given.only_plan:
        planned(given.only_plan)
        return
    run = given.run or planned(Path("plan-benchmark"))
    scale = json.loads((run / "report.json").read_text())["scale"]
    found = {"command": "python benchmarks/plan.py", "cores": CORES, "step_ms": STEP_MS}
    found |= judged(scale, averaged([measured(given.seconds) for _ in range(given.passes)]))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    plot(found, given.out.with_suffix(".png"))
    print(json.dumps(found["summary"]))
    for row in found["cells"]:
        said, rate = row["predicted"]["throughput_per_s"], row["measured_per_s"]
        print(
            f"{row['workers']} workers {row['gbit_s']:4g} Gbit/s {row['latency_ms']:4g} ms: predicted "
            f"{said['estimate']:6.1f} ({said['low']:.1f} to {said['high']:.1f}), measured {rate:6.1f}, "
            f"{row['error']:+.0%} {row['predicted']['limited_by']}"
        )


if __name__ == "__main__":
    main()
    os._exit(0)  # TensorFlow's tuner takes seconds to leave
