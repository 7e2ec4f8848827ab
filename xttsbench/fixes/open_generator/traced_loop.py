"""A generator that yields items, and a data set that makes an element of each by ops, in the user's source.

Where the body of the loop was traced (the fix ``native``), the loop keeps what picks the items and yields these. The
traced function is written in front of the call of ``from_generator``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from xttsbench.fixes.native.written import defined
from xttsbench.fixes.open_generator.call import call_of, of_helper
from xttsbench.fixes.open_generator.loop import Loop
from xttsbench.records.pipeline import GeneratorParts, NativeFunction, PipelineOp, PythonFunction
from xttsbench.targets.source.calls import Calls, attempt
from xttsbench.targets.source.edits import Change, Found, NoEditError, spelled

_HELPER: Final = "parallel_elements"
_BY_HAND: Final = "apply the saved plan, which makes the ops each time"
_WRITTEN: Final = '''\
def {name}(generator, output_signature, items, element, args=None, calls={autotune}):
    """Like from_generator, for a generator of items: makes an element of each, several at a time, in order."""
    specs = {tf}nest.flatten(output_signature)

    def mapped(*item):
        parts = element(*item)
        parts = parts if isinstance(parts, list) else [parts]
        shaped = [{tf}ensure_shape(part, spec.shape) for part, spec in zip(parts, specs, strict=True)]
        return {tf}nest.pack_sequence_as(output_signature, shaped)

    source = {tf}data.Dataset.from_generator(generator, output_signature=items, args=args)
    return source.map(mapped, num_parallel_calls=calls, deterministic=True)


'''


def traced_loop(
    calls: Calls, op: PipelineOp, function: PythonFunction, number: int | None, helped: set[tuple[str, str]]
) -> Found | None:
    """The edit of one generator, or why there is none; ``None`` where its body is not to become ops.

    Args:
        calls: of the pipeline.
        op: that the generator feeds.
        function: the generator.
        number: of calls at a time; ``None`` is AUTOTUNE.
        helped: files and functions that are written in them already.
    """
    native = function.native
    if "native" not in calls.together or native is None or native.call_time_s is None or function.parts is None:
        return None
    return attempt(
        functools.partial(_changes, calls, op, function.name, function.parts, native, number, helped), _BY_HAND
    )


def _changes(
    calls: Calls,
    op: PipelineOp,
    name: str,
    parts: GeneratorParts,
    native: NativeFunction,
    number: int | None,
    helped: set[tuple[str, str]],
) -> Sequence[Change]:
    if native.text is None:
        raise NoEditError(f"the loop of {name}() has no text that can be read: {native.why_no_text}")
    module, link = call_of(calls, op)
    loop = Loop(calls.module(parts.file), parts)
    loop.check_uses(module)
    tf = spelled(module, link.node, "data").removesuffix("data")
    specs = [f"{tf}TensorSpec({[None] * one.rank}, {tf}{one.dtype})" for one in native.items]
    items = specs[0] if len(specs) == 1 else f"({', '.join(specs)})"
    made = loop.of_items([one.value for one in native.items])
    written, element = defined(module, link.node, native)
    steps = of_helper((module, link), _HELPER, _WRITTEN, number, helped, f"items={items}", f"element={element}")
    return [made, Change(module, link.line, (link.start, link.end), (*steps, written))]
