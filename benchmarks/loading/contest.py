"""A contestant's own process: makes its batches, and writes them down or times them.

``SCRIPT MANIFEST VARIANT check DIRECTORY`` writes every batch of one pass as ``DIRECTORY/<batch>.npz``, for the parent
to compare. ``SCRIPT MANIFEST VARIANT time WARM_UP_S SECONDS`` goes over the batches again and again, as in training,
and prints one line of JSON. ``VARIANT`` is JSON: the contestant's own settings. Needs NumPy alone, for it runs in the
peers' environments too.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import manifest as manifests
import numpy as np
from manifest import Manifest

Batches = Callable[[Manifest, dict[str, Any]], Iterator[dict[str, Any]]]
"""The batches of the manifest, in its order, again and again."""


def main(batches: Batches, to_numpy: Callable[[Any], Any] = np.asarray) -> None:
    """Do what the command line asks.

    Args:
        batches: makes the iterator; the second argument is the variant.
        to_numpy: turns an array of the contestant's kind into NumPy's; used in the check alone.
    """
    manifest, variant = manifests.load(sys.argv[1]), json.loads(sys.argv[2])
    iterator = batches(manifest, variant)
    if sys.argv[3] == "check":
        for number in range(len(manifest)):
            arrays = {name: to_numpy(array) for name, array in next(iterator).items()}
            np.savez(Path(sys.argv[4]) / f"{number}.npz", **arrays)
    else:
        print(json.dumps(timed(iterator, manifest, float(sys.argv[4]), float(sys.argv[5]))), flush=True)
    # Ended while the interpreter is whole: a thread of tf.data that asks for it later, for a function in Python, is
    # ended by it, and the iterator's end then waits for that thread for ever.
    del iterator
    gc.collect()


def timed(iterator: Iterator[Any], manifest: Manifest, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """Warm up, and measure."""
    passes(iterator, len(manifest), warm_up_s)
    count, took_s = passes(iterator, len(manifest), seconds)
    return {
        "passes": count,
        "samples_per_s": count * manifest.samples / took_s,
        "seconds": took_s,
        "peak_rss_mb": peak_rss_mb(),
    }


def passes(iterator: Iterator[Any], batches: int, at_least_s: float) -> tuple[int, float]:
    """Take whole passes over the batches until the time is over; return how many, and the seconds that they took.

    A batch is dropped when the next one is there, as a training loop does.
    """
    count, began = 0, time.perf_counter()
    while True:
        for _ in range(batches):
            batch = next(iterator)
            del batch
        count += 1
        took_s = time.perf_counter() - began
        if took_s >= at_least_s:
            return count, took_s


def peak_rss_mb() -> float:
    """Return the largest resident set of this process so far, without its workers.

    ``ru_maxrss`` would begin with the parent's.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6
