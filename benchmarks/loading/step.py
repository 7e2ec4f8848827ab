"""A training step of the smallest recipe in each mode, a process for each: what compiling gains over eager.

``step.py MODE SECONDS`` is such a process: the step that the bundled target has, over one batch that is in memory,
compiled and warmed up first; it prints one line of JSON. The batch's values are random, since they do not change the
work; its shape is a full batch at an edge that clips of 5 s are padded to.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from arena import FailedError
from contestants import process_environment
from results import best, judged, ratio
from workload import features, recipe

MODES = ("eager", "graph", "xla")
GOAL = 5.0
FRAMES, CHARACTERS = 512, 96
_WARM_UP_STEPS, _LEAST_STEPS = 5, 5


def measure(rounds: int, seconds: float, seed: int) -> dict[str, Any]:
    """Return steps per second of each mode by round, in random order, and the figure with its goal."""
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    first_s: dict[str, list[float]] = {mode: [] for mode in MODES}
    rng = random.Random(seed)
    for number in range(rounds):
        print(f"step, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for mode in rng.sample(MODES, len(MODES)):
            command = [sys.executable, __file__, mode, str(seconds)]
            done = subprocess.run(command, env=process_environment(), capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr[-2000:], file=sys.stderr)
                raise FailedError(f"the step in mode {mode}: exit code {done.returncode}")
            found = json.loads(done.stdout.strip().rpartition("\n")[2])
            rates[mode].append(found["steps_per_s"])
            first_s[mode].append(found["first_step_s"])
    compiled = best(rates, ("graph", "xla"))
    score = judged(ratio(rates, compiled, "eager"), GOAL) | {"mode": compiled}
    return {
        "figures": {"compiled step / eager step": score},
        "batch": {"clips": recipe().batches.batch_size, "frames": FRAMES, "characters": CHARACTERS},
        "step_ms_median": {mode: round(1000 / statistics.median(found), 2) for mode, found in rates.items()},
        "steps_per_s": {mode: [round(rate, 2) for rate in found] for mode, found in rates.items()},
        "first_step_s_median": {mode: round(statistics.median(found), 2) for mode, found in first_s.items()},
    }


def batch() -> dict[str, Any]:
    """Return one element as the loaders make it."""
    import tensorflow as tf

    rows, reference_frames = recipe().batches.batch_size or 16, recipe().batches.reference_frames
    rng = np.random.default_rng(0)
    mel_lengths = rng.integers(FRAMES * 3 // 4, FRAMES + 1, rows).astype(np.int32)
    text_lengths = rng.integers(CHARACTERS * 2 // 3, CHARACTERS + 1, rows).astype(np.int32)
    mel = rng.normal(-5.7, 2.1, (rows, FRAMES, features().n_mels)).astype(np.float32)
    text = rng.integers(1, 20, (rows, CHARACTERS)).astype(np.int32)
    mel[np.arange(FRAMES) >= mel_lengths[:, None]] = np.log(np.float32(features().log_floor))
    text[np.arange(CHARACTERS) >= text_lengths[:, None]] = 0
    arrays = {
        "id": np.arange(rows, dtype=np.int32),
        "text": text,
        "text_length": text_lengths,
        "mel": mel,
        "mel_length": mel_lengths,
        "reference": rng.normal(-5.7, 2.1, (rows, reference_frames, features().n_mels)).astype(np.float32),
        "reference_start": np.full(rows, -1, np.int32),
    }
    return {name: tf.constant(array) for name, array in arrays.items()}


def main(mode: str, seconds: float) -> None:
    """Time the step of a mode and print the result."""
    from xttsbench.training.step import OneDeviceStep

    element = batch()
    step = OneDeviceStep(recipe(), mode=mode)
    began = time.perf_counter()
    float(step(element))
    first_step_s = time.perf_counter() - began
    for _ in range(_WARM_UP_STEPS):
        float(step(element))
    steps, began = 0, time.perf_counter()
    while True:
        float(step(element))  # waits for the step's end
        steps += 1
        took_s = time.perf_counter() - began
        if took_s >= seconds and steps >= _LEAST_STEPS:
            break
    print(json.dumps({"steps_per_s": steps / took_s, "steps": steps, "first_step_s": first_step_s}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
