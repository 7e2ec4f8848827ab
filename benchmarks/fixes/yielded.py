"""Whether a fixed dataset yields what the original does, looked at without the toolkit's own judgement.

``python yielded.py TARGET --settings JSON --out FILE [--fix NAME]`` writes the first elements of a dataset; the
original and the fixed one are read in processes of their own, since they would share shuffle seeds and caches.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

COUNT, SECONDS = 64, 15.0
"""Elements that are read at most, and for how long."""
_RELATIVE, _ABSOLUTE = 1e-5, 1e-6
"""How far floats may differ that were added up in another order."""
_OF_STEP = "step:"

Batches = Sequence[Sequence[Any]]


def same(original: Batches, fixed: Batches) -> dict[str, Any]:
    """How two datasets' first elements compare, each element a sequence of arrays.

    Returns:
        ``same``, ``how`` (``identical``, ``rounding`` or ``different``) and ``elements``, the number compared.
    """
    count = min(len(original), len(fixed))
    how = _alike(original[:count], fixed[:count]) if count else "different"
    return {"same": how != "different", "how": how, "elements": count}


def _alike(original: Batches, fixed: Batches) -> str:
    if [len(element) for element in original] != [len(element) for element in fixed]:
        return "different"
    pairs = [pair for ours, theirs in zip(original, fixed, strict=True) for pair in zip(ours, theirs, strict=True)]
    if any(a.dtype != b.dtype or a.shape != b.shape for a, b in pairs):
        return "different"
    if all(_bits(a) == _bits(b) for a, b in pairs):
        return "identical"
    return "rounding" if all(_close(a, b) for a, b in pairs) else "different"


def _close(a: Any, b: Any) -> bool:
    if a.dtype.kind not in "fc":
        return _bits(a) == _bits(b)
    return bool(np.allclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))


def _bits(values: Any) -> bytes:
    return pickle.dumps(values.tolist()) if values.dtype == object else values.tobytes()


def read(target: str, settings: dict[str, Any], fix: str | None) -> list[list[Any]]:
    """The first elements of a target's dataset with the dataset's part of a fix."""
    import tensorflow as tf

    from xttsbench.fixes.graph import apply
    from xttsbench.targets.load import load_target
    from xttsbench.targets.spec import parse_target

    tf.keras.utils.set_random_seed(0)
    dataset = load_target(parse_target(target), settings).dataset
    parts = [part for part in (fix or "").split(" + ") if part and not part.startswith(_OF_STEP)]
    if parts:
        dataset = apply(dataset, " + ".join(parts))
    began, found = time.monotonic(), []
    for element in dataset:
        found.append([tensor.numpy() for tensor in tf.nest.flatten(element, expand_composites=True)])
        if len(found) >= COUNT or time.monotonic() - began > SECONDS:
            break
    return found


def main() -> None:
    """Read, write, and end without Python's shutdown, which a live Python function in tf.data can hang."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--fix")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = read(options.target, options.settings, options.fix)
    options.out.write_bytes(pickle.dumps(found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
