"""A stand-in for tf.data that notes the line of each call as Python has it, so that sources are run, not imagined."""

from __future__ import annotations

import builtins
import itertools
import sys
from types import SimpleNamespace
from typing import Any

from xttsbench.fixes.patch import propose
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.pipeline import CallSite, Pipeline, PipelineOp

FOLDER = "/home/user/"
FILE = f"{FOLDER}train.py"
AUTOTUNE = -1
_PARALLEL = {
    "map": ("MapDataset", "ParallelMapDatasetV2"),
    "batch": ("BatchDatasetV2", "ParallelBatchDataset"),
    "interleave": ("InterleaveDataset", "ParallelInterleaveDatasetV4"),
}
_PLAIN = {
    "filter": "FilterDataset",
    "prefetch": "PrefetchDataset",
    "cache": "CacheDatasetV2",
    "repeat": "RepeatDataset",
    "shuffle": "ShuffleDatasetV3",
    "take": "TakeDataset",
    "skip": "SkipDataset",
    "shard": "ShardDataset",
    "padded_batch": "PaddedBatchDatasetV2",
    "flat_map": "FlatMapDataset",
    "unbatch": "UnbatchDataset",
    "rebatch": "RebatchDatasetV2",
}


_numbers = itertools.count()


class FakeDataset:
    """A dataset that is only its ops."""

    def __init__(self, op: str, *inputs: FakeDataset, frame: Any, **fields: Any) -> None:
        before = list({one.name: one for given in inputs for one in given.ops}.values())
        calls = _calls(frame)
        here = Location(file=calls[0].file, line=calls[0].line, op=f"{op}/_{next(_numbers)}")
        names = tuple(given.ops[-1].name for given in inputs)
        made = PipelineOp(name=here.op or "", op=op, inputs=names, location=here, calls=calls, **fields)
        self.ops = [*before, made]
        self.arrays: Any = None
        self.threads: int | None = next((given.threads for given in inputs if given.threads), None)

    def with_options(self, options: Any) -> FakeDataset:
        changed = object.__new__(FakeDataset)
        changed.ops = self.ops
        changed.threads = getattr(options.threading, "private_threadpool_size", None) or self.threads
        return changed

    def cardinality(self) -> int:
        return 9

    def get_single_element(self) -> Any:
        return self.arrays

    def apply(self, function: Any) -> FakeDataset:
        made: FakeDataset = function(self)
        return made

    def __getattr__(self, name: str) -> Any:
        def method(*args: Any, **kwargs: Any) -> FakeDataset:
            frame, fields = sys._getframe(1), {}
            if name in _PARALLEL:
                position = {"map": 1, "batch": 2, "interleave": 3}[name]
                calls = args[position] if len(args) > position else kwargs.get("num_parallel_calls")
                given = kwargs.get("deterministic")
                fields = {"parallelism": calls, "deterministic": None if given is None else str(given).lower()}
                return FakeDataset(_PARALLEL[name][calls is not None], self, frame=frame, **fields)
            if name in ("prefetch", "shuffle"):
                fields = {"buffer_size": args[0] if args else kwargs["buffer_size"]}
            if name == "cache":
                fields = {"filename": args[0] if args else ""}
            return FakeDataset(_PLAIN[name], self, frame=frame, **fields)

        if name not in (*_PARALLEL, *_PLAIN):
            raise AttributeError(name)
        return method


def _calls(frame: Any) -> tuple[CallSite, ...]:
    """The user's calls around one, as :mod:`xttsbench.pipeline.places` notes them."""
    found: list[CallSite] = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(FOLDER):
            _, end, _, column = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
            found.append(CallSite(file=code.co_filename, line=frame.f_lineno, end_line=end, end_column=column))
        frame = frame.f_back
    return tuple(found)


def _range(_count: int) -> FakeDataset:
    return FakeDataset("RangeDataset", frame=sys._getframe(1))


def _list_files(_pattern: str, shuffle: bool | None = None, seed: int | None = None) -> FakeDataset:
    frame = sys._getframe(1)
    files = FakeDataset("TensorSliceDataset", frame=frame)
    return files if shuffle is False else FakeDataset("ShuffleDatasetV3", files, frame=frame, buffer_size=9)


def _slices(tensors: Any, name: str | None = None) -> FakeDataset:
    return FakeDataset("TensorSliceDataset", frame=sys._getframe(1), cardinality=2)


def _tensors(tensors: Any) -> FakeDataset:
    made = FakeDataset("TensorDataset", frame=sys._getframe(1))
    made.arrays = tensors
    return made


def _zip(given: Any) -> FakeDataset:
    return FakeDataset("ZipDataset", *given, frame=sys._getframe(1))


def built(text: str, name: str = "make", **modules: str) -> FakeDataset:
    """What the function ``make`` of a source returns, which may import other modules by their names."""
    global _numbers  # noqa: PLW0603 - nodes of each graph are numbered from 0
    _numbers = itertools.count()
    functions = SimpleNamespace(
        range=_range,
        zip=_zip,
        list_files=_list_files,
        from_tensor_slices=_slices,
        from_tensors=_tensors,
    )
    fake = SimpleNamespace(
        data=SimpleNamespace(
            AUTOTUNE=AUTOTUNE,
            experimental=SimpleNamespace(AUTOTUNE=AUTOTUNE),
            Dataset=functions,
            Options=lambda: SimpleNamespace(threading=SimpleNamespace()),
        ),
        function=lambda *args, **kwargs: args[0] if args else (lambda f: f),
        range=range,
        nest=SimpleNamespace(flatten=lambda given: list(given) if isinstance(given, tuple) else [given]),
    )

    around = SimpleNamespace(compat=SimpleNamespace(v2=fake))

    loaded: dict[str, SimpleNamespace] = {}

    def run(source: str, file: str) -> dict[str, Any]:
        scope: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": load}, "__name__": file}
        exec(compile(source, f"{FOLDER}{file}.py", "exec"), scope)
        return scope

    def load(wanted: str, *args: Any, **kwargs: Any) -> Any:
        if wanted in modules:
            if wanted not in loaded:
                loaded[wanted] = SimpleNamespace(**run(modules[wanted], wanted))
            return loaded[wanted]
        if not wanted.startswith("tensorflow"):
            return __import__(wanted, *args, **kwargs)
        return {"tensorflow.data": fake.data, "tensorflow.compat.v2": around}.get(wanted, fake)

    made: FakeDataset = run(text, "train")[name]()
    return made


def pipeline_of(text: str, **modules: str) -> Pipeline:
    """The record of that dataset, with the lines that Python has for its calls."""
    made = built(text, **modules)
    return Pipeline(ops=tuple(made.ops), threadpool_size=made.threads)


def patch_of(text: str, *fixes: str, **changes: Any) -> Patch:
    """The patch of a source; ``changes`` are to the pipeline's record."""
    pipeline = pipeline_of(text).model_copy(update=changes)
    return propose(FixSet.of(fixes), pipeline, lambda _: text, own=lambda file: file == FILE)


def kinds(text: str) -> list[str]:
    """The ops in short, e.g. ``["range", "map*", "batch"]``; a star is parallel."""
    short = {
        "ParallelMapDatasetV2": "map*",
        "ParallelBatchDataset": "batch*",
        "ParallelInterleaveDatasetV4": "interleave*",
    }
    return [short.get(op.op, op.op.partition("Dataset")[0].lower()) for op in built(text).ops]
