"""The rung ``precision``: the target built again under Keras's mixed precision, its step beside that as given.

Where the policy reaches no op of the step (no Keras layers, types written out by hand) there is nothing to measure, and
that is said. On a GPU float16 and TensorFloat-32 are measured, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import keras
import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.conditions import not_applicable
from xttsbench.records.trial import TrialSpec
from xttsbench.step.eager_ops import EagerOps, all_ops
from xttsbench.step.keras_step import keras_step
from xttsbench.targets.load import Loaded, load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.anatomy import call_step
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.beside import run_beside
from xttsbench.worker.ladder import first_batches
from xttsbench.worker.mode import of_one_shape

_NARROW: Final = {"mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}


def run_precision(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Measure ``step_only`` beside ``mixed_bfloat16``, and on a GPU beside ``mixed_float16`` and other TF32."""
    if step is None:
        raise TargetError(f"Target {spec.target!r} has no step, so it has no precision.")
    batches = of_one_shape(first_batches(loaded))
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    for name in _NARROW if on_gpu else ("mixed_bfloat16",):
        bench.channel.phase(f"building {name}")
        before = dtypes_of(bench, step, batches[0])
        with under_policy(name):
            # The policy has to hold while the step builds its layers, which may be in its first call.
            again = load_target(parse_target(spec.target), spec.kwargs)
            changed = keras_step(again.model) if again.model is not None else again.step
            if changed is None:
                raise TargetError(f"Target {spec.target!r} has no step when it is built again.")
            after = dtypes_of(bench, changed, batches[0])
            if _NARROW[name] not in after - before:
                bench.channel.note(not_applicable(name, "the step does not follow Keras's policy"))
                continue
            run_beside(spec, bench, (step, batches), (changed, batches), name)
    if on_gpu:
        on = tf.config.experimental.tensor_float_32_execution_enabled()
        name = "no-tf32" if on else "tf32"
        run_beside(spec, bench, (_tf32(step, on=on), batches), (_tf32(step, on=not on), batches), name)


@contextlib.contextmanager
def under_policy(name: str) -> Iterator[None]:
    """Within, Keras layers are made under this policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def dtypes_of(bench: Bench, step: Step, batch: Any) -> set[str]:
    """Names of the types that the ops of one step yield, launched from Python and in the graphs that it calls."""
    eager = EagerOps()
    step(batch)  # builds and traces
    with eager:
        eager.begin_step()
        call_step(bench, step, batch)
    found = {dtype for op in all_ops(eager.steps) for dtype in op.dtypes}
    for function in eager.functions.values():
        found |= _in_graph(getattr(function, "_cached_graph", None), set())
    return found


def _in_graph(graph: Any, seen: set[str]) -> set[str]:
    if graph is None:
        return set()
    found = {output.dtype.base_dtype.name for op in graph.get_operations() for output in op.outputs}
    for name, function in getattr(graph, "_functions", {}).items():
        if name not in seen:
            seen.add(name)
            found |= _in_graph(getattr(function, "_cached_graph", None), seen)
    return found


def _tf32(step: Step, *, on: bool) -> Callable[[Any], Any]:
    def run(batch: Any) -> Any:
        tf.config.experimental.enable_tensor_float_32_execution(on)
        return step(batch)

    return run
