"""One look at a case in a process of its own; the answer is the last line of standard output, as JSON.

``python child.py time|trip|profile NAME --folder DIR [--tuned] [--seconds S] [--how markers]``. *time* runs the loop as
a plain program would, with nothing of the toolkit but its emulated accelerator; *trip* sends the dataset through its
graph and back and compares the elements, with itself and with the tuned version; *profile* is in :mod:`profiled`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cases import CORPUS, Case
from known import CASES

WARM_UP_S, MIN_WARM_UP = 2.0, 5


def load(case: Case, folder: Path, *, tuned: bool = False, comparable: bool = False) -> Any:
    """The dataset and the step of a case, as the toolkit loads it."""
    from xttsbench.targets.load import load_target
    from xttsbench.targets.spec import parse_target

    settings = case.settings(folder, tuned=tuned) | (dict(case.compare_with) if comparable else {})
    return load_target(parse_target(case.target), settings)


def emulated(milliseconds: float) -> Callable[[], Any]:
    """The wait of the toolkit's emulated accelerator."""
    from xttsbench.probes.clock import EmulatedAccelerator

    return EmulatedAccelerator([milliseconds]).compute


def step_of(case: Case, loaded: Any, accelerator_of: Callable[[float], Callable[[], Any]] = emulated) -> Any:
    """What is done with a batch: the case's own step, or its model's, and the wait for an accelerator."""
    wait = accelerator_of(case.accelerator_ms) if case.accelerator_ms else None

    def step(batch: Any) -> None:
        if loaded.model is not None:
            loaded.model.train_on_batch(*batch)
        elif loaded.step is not None:
            loaded.step(batch)
        if wait is not None:
            wait()

    return step


def for_ever(dataset: Any) -> Iterator[Any]:
    """Batches, epoch after epoch."""
    while True:
        yield from dataset


def timed(case: Case, folder: Path, *, tuned: bool, seconds: float) -> dict[str, Any]:
    """Steps a second of the plain loop, after a warm-up."""
    loaded = load(case, folder, tuned=tuned)
    step, batches = step_of(case, loaded), for_ever(loaded.dataset)
    began, count = time.perf_counter(), 0
    while count < MIN_WARM_UP or time.perf_counter() - began < min(WARM_UP_S, seconds):
        step(next(batches))
        count += 1
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step(next(batches))
        count += 1
    took = time.perf_counter() - began
    return {"steps_per_s": count / took, "steps": count}


def trip(case: Case, folder: Path, count: int) -> dict[str, Any]:
    """Whether graph and back, and the tuned version, yield the same elements; ``None`` where it cannot be told."""
    from tests.tf.equality import same_elements
    from xttsbench.fixes.graph.edit import from_graph
    from xttsbench.pipeline.read import read_graph

    original = load(case, folder, comparable=True).dataset
    back = from_graph(read_graph(original), original.element_spec, source=original)
    found: dict[str, Any] = {"round_trip": same_elements(original, back, count=count)}
    if not case.healthy:
        tuned = load(case, folder, tuned=True, comparable=True).dataset
        if case.any_order:
            found["tuned_is_the_same"] = rows_of(original) == rows_of(tuned)
        else:
            found["tuned_is_the_same"] = same_elements(original, tuned, count=count)
    return found


def rows_of(dataset: Any) -> Counter[bytes]:
    """How often each row comes in one pass, without the zeros that it is padded with."""
    import numpy as np

    return Counter(np.trim_zeros(row.numpy(), "b").tobytes() for batch in dataset for row in batch)


def main() -> None:
    """Look, print, and end without Python's shutdown, which a live Python function in tf.data can hang."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("look", choices=("time", "trip", "profile"))
    parser.add_argument("name")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--count", type=int, default=12, help="batches that are compared")
    parser.add_argument("--how", choices=("markers", "outside", "none", "fit"), default="markers")
    options = parser.parse_args()
    case = next(known for known in CASES if known.name == options.name)
    sys.path.insert(0, str(CORPUS))
    if options.look == "time":
        found = timed(case, options.folder, tuned=options.tuned, seconds=options.seconds)
    elif options.look == "trip":
        found = trip(case, options.folder, options.count)
    else:
        from profiled import profiled, waiting

        loaded = load(case, options.folder)
        found = profiled(loaded, step_of(case, loaded, waiting), options.how)
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
