"""Imaginary pipelines: lists of samples that are shuffled, noised and batched, and what fingerprints they would give.

Nothing here knows how runs are compared. A run is ``epochs -> batches -> samples``, a sample a tuple of values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from xttsbench.records.pipeline import Element, Elements, Epoch, Row

Sample = tuple[Any, ...]
Run = list[list[list[Sample]]]
SIGNS = np.random.default_rng(99).choice([-1.0, 1.0], size=(6, 4096))


def fingerprints(run: Run, *, ended: bool | Sequence[bool] = True, **fields: Any) -> Elements:
    """What the kind would record of a run."""
    ends = [ended] * len(run) if isinstance(ended, bool) else list(ended)
    width = next((len(sample) for epoch in run for batch in epoch for sample in batch), 0)
    given: dict[str, Any] = {
        "spec": "(TensorSpec(shape=(None, 8), dtype=tf.float32, name=None), TensorSpec(shape=(None,), dtype=tf.int64))",
        "components": tuple(f"[{number}]" for number in range(width)),
        **fields,
    }
    return Elements(
        epochs=tuple(
            Epoch(elements=tuple(map(_element, epoch)), ended=end) for epoch, end in zip(run, ends, strict=True)
        ),
        **given,
    )


def samples(count: int, *, seed: int = 0, width: int = 8) -> list[Sample]:
    """Samples with a vector of floats, a label and a text; all different."""
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(width).astype(np.float32), np.int64(number % 7), f"clip-{number}")
        for number in range(count)
    ]


def batched(rows: Sequence[Sample], size: int) -> list[list[Sample]]:
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def plain(rows: Sequence[Sample], *, epochs: int = 3, batch: int = 4) -> Run:
    return [batched(rows, batch) for _ in range(epochs)]


def shuffled(rows: Sequence[Sample], *, seed: int, epochs: int = 3, batch: int = 4, anew: bool = True) -> Run:
    """Each epoch in an order of its own; without ``anew`` all in that of the first."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(rows)) for _ in range(epochs)]
    return [batched([rows[number] for number in (order if anew else orders[0])], batch) for order in orders]


def noised(run: Run, *, seed: int, size: float = 0.5, anew: bool = True, draw: Callable[..., Any] | None = None) -> Run:
    """Noise on the first component of every sample; without ``anew`` each epoch repeats that of the first."""
    rng = np.random.default_rng(seed)
    pick = draw or rng.standard_normal
    found: Run = []
    for number, epoch in enumerate(run):
        if number and not anew:
            found.append(found[0])
            continue
        found.append(
            [[((s[0] + size * pick(s[0].shape)).astype(s[0].dtype), *s[1:]) for s in batch] for batch in epoch]
        )
    return found


def changed(run: Run, change: Callable[[Sample], Sample]) -> Run:
    """Every sample changed."""
    return [[[change(sample) for sample in batch] for batch in epoch] for epoch in run]


def cut(run: Run, elements: int) -> Run:
    """The first epoch alone, cut off after so many elements."""
    return [run[0][:elements]]


def _element(batch: list[Sample]) -> Element:
    rows = []
    for sample in batch:
        hashes, sketches = zip(*map(_fingerprint, sample), strict=True)
        rows.append(Row(hashes=hashes, sketches=sketches))
    shapes = tuple(f"{_dtype(value)}[{','.join(map(str, (len(batch), *np.shape(value))))}]" for value in batch[0])
    return Element(shapes=shapes, rows=tuple(rows))


def _dtype(value: Any) -> str:
    return "string" if isinstance(value, str) else np.asarray(value).dtype.name


def _fingerprint(value: Any) -> tuple[str, tuple[float, ...]]:
    if isinstance(value, str):
        return _of_bytes(None, (), value.encode())
    array = np.asarray(value)
    return _of_bytes(array.dtype, array.shape, array.tobytes())


@cache
def _of_bytes(dtype: np.dtype[Any] | None, shape: tuple[int, ...], data: bytes) -> tuple[str, tuple[float, ...]]:
    """Hash and sketch of a value; runs of a pipeline yield the same ones over and over. Texts have no dtype."""
    name = "string" if dtype is None else dtype.name
    digits = hashlib.blake2b(f"{name}{shape}".encode() + data, digest_size=8).hexdigest()
    if dtype is None or dtype.kind != "f":
        return digits, ()
    flat = np.frombuffer(data, dtype).astype(np.float64)
    mean = flat.sum() / flat.size
    numbers = [
        mean,
        math.sqrt(((flat - mean) ** 2).sum() / flat.size),
        0.0,
        *(SIGNS[:, : flat.size] @ flat / math.sqrt(flat.size)).tolist(),
    ]
    return digits, tuple(float(f"{number:.9g}") for number in numbers)
