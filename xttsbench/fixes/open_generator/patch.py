"""A generator that yields calls, and a data set that makes them in parallel, in the user's source.

The statements of the loop's body move, as they are written, into a function in front of the loop; the loop yields that
function with its arguments. The call of ``from_generator`` becomes one of a small function that is written beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Final

from xttsbench.fixes.open_generator.call import call_of, of_helper
from xttsbench.fixes.open_generator.loop import Loop
from xttsbench.fixes.open_generator.spec import OPEN_GENERATOR, openable
from xttsbench.fixes.open_generator.traced_loop import traced_loop
from xttsbench.records.pipeline import GeneratorParts, PipelineOp
from xttsbench.targets.source.calls import Calls, attempt
from xttsbench.targets.source.edits import Change, Found

_HELPER: Final = "parallel_generator"
_WORKERS: Final = "give the PyDataset workers={}, by super().__init__(...), so that Keras makes its batches in threads"
_WRITTEN: Final = '''\
def {name}(generator, output_signature, args=None, calls={autotune}):
    """Like from_generator, for a generator of calls ``(function, *arguments)``: makes several at a time, in order."""
    import itertools

    import numpy as np

    waiting, numbers, specs = {{}}, itertools.count(), {tf}nest.flatten(output_signature)

    def picked(*given):
        for call in generator(*given):
            number = next(numbers)
            waiting[number] = call
            yield number

    def flat(signature, value):
        if isinstance(signature, dict):
            return [part for key in sorted(signature) for part in flat(signature[key], value[key])]
        if isinstance(signature, tuple):
            return [part for one, inner in zip(signature, value, strict=True) for part in flat(one, inner)]
        return [np.asarray(value, signature.dtype.as_numpy_dtype)]

    def make(number):
        function, *arguments = waiting.pop(int(number))
        return flat(output_signature, function(*arguments))

    def mapped(number):
        parts = {tf}numpy_function(make, [number], [spec.dtype for spec in specs])
        parts = parts if isinstance(parts, (list, tuple)) else [parts]
        shaped = [{tf}ensure_shape(part, spec.shape) for part, spec in zip(parts, specs, strict=True)]
        return {tf}nest.pack_sequence_as(output_signature, shaped)

    items = {tf}data.Dataset.from_generator(picked, output_signature={tf}TensorSpec([], {tf}int64), args=args)
    return items.map(mapped, num_parallel_calls=calls, deterministic=True)


'''


def open_generator(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Every generator that can be opened, each with the call that makes a data set of it."""
    found, helped = list[Found](), set[tuple[str, str]]()
    for one in calls.pipeline.ops:
        function = openable(one, calls.pipeline)
        if function is not None and function.parts is not None:
            traced = traced_loop(calls, one, function, number, helped)
            if traced is not None and traced.why_not is None:
                found.append(traced)
                continue
            edit = functools.partial(_changes, calls, one, function.parts, number, helped)
            of_keras = (function.parts.file or "").endswith("py_dataset_adapter.py")
            found.append(attempt(edit, _WORKERS.format(number or 8) if of_keras else OPEN_GENERATOR.by_hand or ""))
    return found or [Found(why_not="the pipeline has no generator that can be opened")]


def _changes(
    calls: Calls, op: PipelineOp, parts: GeneratorParts, number: int | None, helped: set[tuple[str, str]]
) -> Sequence[Change]:
    module, link = call_of(calls, op)
    loop = Loop(calls.module(parts.file), parts)
    loop.check_uses(module)
    made = loop.change()
    steps = of_helper((module, link), _HELPER, _WRITTEN, number, helped)
    return [made, Change(module, link.line, (link.start, link.end), steps)]
