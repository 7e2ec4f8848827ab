"""Clips a second from shards behind S3's interface, by requests in flight and latency; prints JSON.

``python benchmarks/remote_data.py [--seconds 6] [--write reports/reference/scale/remote_data.json]`` needs moto and
s3fs (``pip install 'moto[server,s3]' s3fs``). Clips that the project makes are put in shards into a bucket of moto's
server; a relay, a process of its own, adds 0, 20 and 100 ms to each answer. The loader ``packed`` makes batches of 4
as fast as it can, with 1 to 64 requests in flight, in a fresh process each; the first second is left out. All of it,
the server included, shares this machine's cores, so that what many requests reach is the server's pace and no bucket's;
the row without a latency reads the same shards from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Any

from written import finish

from xttsbench.shipped import shipped
from xttsbench.training.course import planned_epoch
from xttsbench.xtts.data.feature_cache import open_cache
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.planned import planned
from xttsbench.xtts.data.precompute import make_cache
from xttsbench.xtts.data.shards import attach, make_shards
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.loaders.packed import packed
from xttsbench.xtts.recipe import load_recipe

LATENCIES_MS = (0, 20, 100)
IN_FLIGHT = (1, 4, 16, 64)
WARM_UP_S = 1.0
BATCH = 4


def measure(directory: Path, seconds: float) -> dict[str, Any]:
    """Make batches for so long; runs in a process of its own."""
    recipe = load_recipe(shipped("training", "tiny"))
    data = read_speech_data(directory, sample_rate_hz=recipe.features.sample_rate_hz, split="all")
    settings = recipe.batches.model_copy(update={"batch_size": BATCH})
    batches = [batch for epoch in range(20) for batch in planned_epoch(data, recipe, settings, 0, epoch)]
    table = planned(data, batches, recipe.features)
    make = packed(table, data, open_cache(data, recipe.features), recipe.features)
    begun = time.perf_counter()
    made = frames = 0
    started_s, processor_s = begun, 0.0
    for number in cycle(range(len(batches))):
        make(number)
        now = time.perf_counter()
        if now - begun < WARM_UP_S:
            started_s, processor_s = now, time.process_time()
            continue
        made, frames = made + 1, frames + int(table.lengths[batches[number].clips].sum())
        if now - begun >= seconds + WARM_UP_S:
            break
    wall_s = time.perf_counter() - started_s
    return {
        "batches": made,
        "seconds": round(wall_s, 3),
        "clips_per_s": round(BATCH * made / wall_s, 2),
        "speech_mb_per_s": round(4 * table.n_mels * frames / wall_s / 1e6, 2),
        "processor_share": round((time.process_time() - processor_s) / wall_s, 3),
    }


def measured(directory: Path, seconds: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", str(directory), "--seconds", str(seconds)]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    )
    return found | {"load_before": round(os.getloadavg()[0], 2)}


def started(*command: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip() if "tests.relay" in command else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each cell")
    parser.add_argument("--write", type=Path, help="file for the result")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.seconds)), flush=True)
        os._exit(0)  # requests of the next batches are in flight, and nobody wants their answers
    import fsspec

    os.environ |= {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server, _ = started("-m", "moto.server", "-p", str(port))
    processes, cells = [server], []
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            recipe = load_recipe(shipped("training", "tiny"))
            make_data(folder / "speech", 256, 0, 1.0, 10.0)
            data = read_speech_data(folder / "speech", sample_rate_hz=22050, split="all")
            cache = make_cache(data, recipe.features, folder / "cache").cache
            made = make_shards(data, cache, folder / "shards", shard_bytes=2**23)
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
            bucket = fsspec.filesystem("s3")
            bucket.mkdir("speech")
            bucket.put(f"{folder}/shards/", "speech/set/", recursive=True)
            cells.append({"latency_ms": None, "in_flight": None, **measured(folder / "shards", options.seconds)})
            for latency_ms in LATENCIES_MS:
                relay, url = started("-m", "tests.relay", str(port), str(latency_ms))
                processes.append(relay)
                os.environ["AWS_ENDPOINT_URL"] = url
                for in_flight in IN_FLIGHT:
                    index = folder / f"{latency_ms}-{in_flight}"
                    attach("s3://speech/set", index, in_flight=in_flight)
                    cells.append({"latency_ms": latency_ms, "in_flight": in_flight, **measured(index, options.seconds)})
                    print(cells[-1], file=sys.stderr)
    finally:
        for process in processes:
            process.kill()
    result = {
        "command": f"python benchmarks/remote_data.py --seconds {options.seconds:g}",
        "cores": len(os.sched_getaffinity(0)),
        "server": "moto behind a relay of Python, on the same cores",
        "clips": made.manifest.clips,
        "shards": len(made.manifest.frames),
        "batch": BATCH,
        "cells": cells,
    }
    finish(result, options.write)


if __name__ == "__main__":
    main()
