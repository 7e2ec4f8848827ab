"""An op of a pipeline in the words of who wrote it: the call, its settings, its place, and what its function does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final

from xttsbench.records.pipeline import PipelineOp, PythonFunction
from xttsbench.reporting import units
from xttsbench.reporting.text import plain

AUTOTUNE: Final = -1
NO_LINE: Final = "line not known"
_STEM: Final = re.compile(r"^(?:Experimental|Legacy|Parallel)*(\w+?)(?:Dataset)?(?:V\d+)?$")
_CALLS: Final[Mapping[str, str]] = {
    "TensorSlice": "from_tensor_slices",
    "Tensor": "from_tensors",
    "Generator": "from_generator",
    "TFRecord": "TFRecordDataset",
    "TextLine": "TextLineDataset",
    "FixedLengthRecord": "FixedLengthRecordDataset",
    "CSV": "CsvDataset",
    "DirectedInterleave": "choose_from_datasets",
    "MapAndBatch": "map and batch",
    "ShuffleAndRepeat": "shuffle and repeat",
    "DataService": "distribute",
    "DenseToRaggedBatch": "ragged_batch",
    "DenseToSparseBatch": "sparse_batch",
}
"""Stem of an op's type -> the call that makes it, where that is not the stem in lower case."""
_CLASSES: Final[Mapping[str, str]] = {
    "holds": "holds the GIL",
    "blocks": "waits",
    "releases": "releases the GIL",
    "unknown": "not classified",
}


def call(op: PipelineOp) -> str:
    """The call with its settings: ``batch(16)``, ``prefetch(AUTOTUNE -> 3)``, ``interleave(cycle 4, calls 2)``."""
    settings = [
        "" if op.batch_size is None else str(op.batch_size),
        chosen(op.buffer_size, op.chosen_buffer_size),
        plain(op.filename) if _stem(op) in ("Cache", "Snapshot") and op.filename else "",
        "" if op.cycle_length is None else f"cycle {chosen(op.cycle_length, None)}",
        "" if op.parallelism is None else f"calls {chosen(op.parallelism, op.chosen_parallelism)}",
    ]
    given = ", ".join(one for one in settings if one)
    return f"{name(op)}({given})" if given else name(op)


def name(op: PipelineOp) -> str:
    """The call alone. A ``flat_map`` over a generator is what ``from_generator`` makes."""
    stem = _stem(op)
    if stem == "FlatMap" and any(_stem(one) == "Generator" for one in op.inner):
        return "from_generator"
    return _CALLS.get(stem) or plain(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower())


def chosen(written: int | None, used: int | None) -> str:
    """A setting as written, with what AUTOTUNE made of it; empty where the op has no such setting."""
    if written is None:
        return ""
    text = "AUTOTUNE" if written == AUTOTUNE else f"{written:,}"
    return text if used is None or used == written else f"{text} -> {used:,}"


def place(op: PipelineOp) -> str:
    """``folder/file.py:12``; without the file, that the line is not known."""
    if op.location.file is None:
        return NO_LINE
    path = "/".join(PurePath(op.location.file.replace("\\", "/")).parts[-2:])
    return f"{plain(path)}:{op.location.line or '?'}"


def split(op: PipelineOp) -> str:
    """How much of an op's time is processor time, and how much it waits; empty where it was not measured."""
    if not op.cost_s or op.cpu_s is None:
        return ""
    share = min(1.0, op.cpu_s / op.cost_s)
    if share >= 0.9:
        return "computes"
    return "waits" if share <= 0.1 else f"{units.percent(share)} processor, rest waits"


def notes(op: PipelineOp, functions: Mapping[str, PythonFunction]) -> Iterator[str]:
    """What else is worth knowing of an op: its Python, its state, its elements."""
    for token in op.python_functions:
        if token in functions:
            function = functions[token]
            yield f"Python {plain(function.name)}() {_CLASSES[function.gil]}"
        else:
            yield f"Python {plain(token)}"
    if op.cached:
        yield "done once, then cached"
    if op.captures:
        yield "captures " + ", ".join(plain(one) for one in op.captures)
    if op.random:
        yield "random"
    if op.side_effects and not op.python_functions:
        yield "side effects"
    elif op.stateful and not (op.captures or op.random or op.python_functions):
        yield "stateful"
    if op.deterministic == "false":
        yield "any order"
    if op.byte_offset is not None:
        yield f"cuts its file at byte {op.byte_offset:,}"
    if op.elements_per_batch is not None:
        size = "" if op.element_bytes is None else f" of {units.size(op.element_bytes)}"
        yield f"{units.number(_whole(op.elements_per_batch))} per batch{size}"


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _stem(op: PipelineOp) -> str:
    found = _STEM.match(op.op)
    return found.group(1) if found is not None else op.op
