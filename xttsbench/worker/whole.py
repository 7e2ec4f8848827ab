"""Traits of a pipeline that an edit is judged by beside its data, and the values at the place where two differ."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.fingerprinter import Fingerprinter
from xttsbench.pipeline.read import inspect
from xttsbench.records.fix import Fix, FixSet
from xttsbench.records.pipeline import Place, Shown, every_op

_LONGEST: Final = 60  # Characters of a value
_TRAITS: Final = {
    "ParallelMap": "parallel-map",
    "MapAndBatch": "parallel-map",
    "ParallelInterleave": "parallel-interleave",
    "Prefetch": "prefetch",
    "Cache": "cache",
}
"""Beginning of an op's name -> the fix whose hazards are those of one."""
_AT_OPS: Final = ("cache", "parallel-map")  # Those whose hazards are read of one op


def traits(dataset: tf.data.Dataset, graph: Any) -> tuple[str, ...]:
    """Fixes that the pipeline as it is written has made already, one for each op that is what the fix makes."""
    pairs = [
        (op, fix)
        for op in every_op(inspect(dataset, graph).ops)
        for start, fix in _TRAITS.items()
        if op.op.startswith(start)
    ]
    return tuple(f"{fix}@{op.name}" if fix in _AT_OPS else fix for op, fix in pairs)


def more_traits(has: Sequence[str], had: Sequence[str]) -> FixSet:
    """Fixes that an edit has made: those of which the new version has more."""
    now, before = (Counter(fix.kind for fix in FixSet.of(names)) for names in (has, had))
    return FixSet.of(one for one in has if now[Fix.parse(one).kind] > before[Fix.parse(one).kind])


def values_at(place: Place, dataset_of: Callable[[int], tf.data.Dataset], prints: Fingerprinter) -> Mapping[str, Any]:
    """Values of each component at a place, of a dataset for each epoch; none where it is not reached."""
    for epoch in range(place.epoch):
        deque(dataset_of(epoch), maxlen=0)
    element = next(islice(dataset_of(place.epoch), place.element, None), None)
    return {} if element is None else prints.values(element, place.row)


def shown(values: Mapping[str, Any], file: Path, component: str | None) -> Shown | None:
    """Compare with the values of the old version, or keep them in the file where there are none yet.

    Without a component the first that differs is shown.
    """
    plain = {path: _plain(one) for path, one in values.items() if component in (None, path)}
    if not file.exists():
        with file.open("xb") as stream:
            np.savez(stream, **{f"v{number}": one for number, one in enumerate(plain.values())})
        return None
    with np.load(file, allow_pickle=False) as before:
        for (path, new), old in zip(plain.items(), before.values(), strict=False):
            if old.shape != new.shape or old.dtype.kind != new.dtype.kind:
                return Shown(component=path, old=_form(old), new=_form(new))
            unlike = np.asarray(old != new)
            if new.dtype.kind in "fc":
                unlike &= ~(np.isnan(old) & np.isnan(new))
            if unlike.any():
                at = np.unravel_index(int(np.argmax(unlike)), unlike.shape)
                told = {"old": _text(old[at]), "new": _text(new[at]), "unlike": int(unlike.sum()), "of": new.size}
                return Shown(component=path, where=f"[{', '.join(map(str, at))}]" if at else "", **told)
    return None


def _plain(values: Any) -> Any:
    """The values in a type that NumPy itself knows: texts of one length, half precision wider."""
    if values.dtype.kind == "O":
        return np.array([str(one)[:1000] for one in values.ravel()])
    return values.astype(np.float32) if values.dtype.kind == "V" else values


def _form(values: Any) -> str:
    return f"{values.dtype}{list(values.shape)}"


def _text(value: Any) -> str:
    return (f"{value:.9g}" if value.dtype.kind in "fc" else str(value))[:_LONGEST]
