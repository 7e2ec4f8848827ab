"""Seconds and memory that an index of many utterances takes: opened, an epoch planned and bucketed, resumed; JSON.

``python benchmarks/large_index.py [--clips 10000000] [--write reports/reference/scale/large_index.json]``: an index as
``xttsbench data shard`` writes it is made of random lengths, speakers, texts and ids (its shards are left out, for
planning reads none), and opened in a fresh process. There each stage is timed, with the processor's time and the peak
of the resident set (``VmHWM``), mapped files included. The index is in the page cache then. Goal: 10 million within
1 GB and 10 s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from written import finish

from xttsbench.shipped import shipped
from xttsbench.training.course import Position, planned_epoch, planned_from
from xttsbench.xtts.data.batches import COLUMNS
from xttsbench.xtts.data.shard_index import MANIFEST, Manifest, write_columns
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.recipe import load_recipe

GOAL_S, GOAL_MB = 10.0, 1000.0
SPEAKERS, CHARACTERS, SPEAKERS_OF = 2000, 60, 16


def make_index(directory: Path, clips: int) -> int:
    """Write the index of so many clips of 0.6 to 10 s; returns its size."""
    rng, features = np.random.default_rng(0), load_recipe(shipped("training", "tiny")).features
    samples = rng.integers(13_000, 229_000, clips)
    lengths = rng.integers(20, CHARACTERS, clips).astype(np.int32)
    total, frames = int(lengths.sum()), samples // features.hop_samples
    digits = (np.arange(clips)[:, None] // 10 ** np.arange(7, -1, -1) % 10 + ord("0")).astype(np.uint8)
    columns = write_columns(
        directory,
        {
            "samples": samples,
            "speakers": rng.integers(0, SPEAKERS, clips),
            "text_lengths": lengths,
            "held_out": rng.random(clips) < 1 / SPEAKERS_OF,
            "offsets": np.cumsum(frames) - frames,
            "crc32": rng.integers(0, 2**32, clips),
            "id_ends": 8 * np.arange(1, clips + 1),
            "text_ends": np.cumsum(lengths, dtype=np.int64),
            "ids": digits.ravel(),
            "texts": rng.integers(ord("a"), ord("z") + 1, total, np.uint8),
            "text_ids": np.append(rng.integers(1, 27, total, np.uint8), np.uint8(0)),
        },
    )
    manifest = Manifest(
        features=features,
        clips=clips,
        speaker_names=tuple(f"s{number}" for number in range(SPEAKERS)),
        seed=0,
        frames=(int(frames.sum()),),
        files=columns,
    )
    (directory / MANIFEST).write_text(manifest.model_dump_json())
    return sum(path.stat().st_size for path in directory.rglob("*.npy"))


def peak_mb() -> float:
    """The largest resident set of this process so far."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) * 1024 / 1e6


def measure(directory: Path) -> dict[str, object]:
    """Open, plan and resume; runs in a process of its own."""
    recipe, stages = load_recipe(shipped("training", "tiny")), []
    imported_mb = peak_mb()

    def stage(name: str, wall_s: float, processor_s: float) -> None:
        stages.append(
            {
                "stage": name,
                "wall_s": round(time.perf_counter() - wall_s, 3),
                "processor_s": round(time.process_time() - processor_s, 3),
                "peak_mb": round(peak_mb(), 1),
            }
        )

    now = time.perf_counter(), time.process_time()
    data = read_speech_data(directory, sample_rate_hz=recipe.features.sample_rate_hz)
    stage("open the training split", *now)
    now = time.perf_counter(), time.process_time()
    batches = planned_epoch(data, recipe, recipe.batches, seed=0, epoch=0)
    stage("plan and bucket an epoch", *now)
    now = time.perf_counter(), time.process_time()
    middle = len(batches) * 2 // 3
    count = len(batches)
    expected = [getattr(batches[middle], name).copy() for name in COLUMNS]  # a batch is a view of the whole plan
    ids = [data.id(clip) for clip in expected[0].tolist()]
    del batches
    stage("a batch and its ids", *now)
    now = time.perf_counter(), time.process_time()
    position, batch = next(planned_from(data, recipe, recipe.batches, 0, Position(step=7, epoch=0, batch=middle)))
    stage("resume in the middle of the epoch", *now)
    assert all(np.array_equal(getattr(batch, name), column) for name, column in zip(COLUMNS, expected, strict=True))
    assert (position.step, position.batch, len(ids)) == (8, middle + 1, len(batch.clips))
    first = {key: round(sum(one[key] for one in stages[:2]), 2) for key in ("wall_s", "processor_s")}
    resumed = {key: round(stages[0][key] + stages[-1][key], 2) for key in ("wall_s", "processor_s")}
    return {
        "stages": stages,
        "batches": count,
        "imported_mb": round(imported_mb, 1),
        "peak_mb": round(peak_mb(), 1),
        "to_the_first_batch": first,
        "to_the_first_batch_of_a_resumed_run": resumed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes")
    parser.add_argument("--write", type=Path, help="file for the result")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        size = make_index(Path(folder), options.clips)
        runs = []
        for _ in range(options.repeats):
            load = os.getloadavg()[0]
            command = [sys.executable, __file__, "--measure", folder]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            runs.append(json.loads(found) | {"load_before": load})
    result = {
        "command": f"python benchmarks/large_index.py --clips {options.clips}",
        "clips": options.clips,
        "index_bytes": size,
        "cores": len(os.sched_getaffinity(0)),
        "goal": {"peak_mb": GOAL_MB, "seconds": GOAL_S},
        "peak_within_the_goal": all(run["peak_mb"] <= GOAL_MB for run in runs),
        "seconds_within_the_goal": {
            key: all(run[run_of][key] <= GOAL_S for run in runs for run_of in run if run_of.startswith("to_the_first"))
            for key in ("wall_s", "processor_s")
        },
        "runs": runs,
    }
    finish(result, options.write)


if __name__ == "__main__":
    main()
