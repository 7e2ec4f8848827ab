"""The step as given beside a changed one, in turns, on cached batches: its modes, half batches, precision.

The modes are op by op, as one graph, and through XLA. A step that takes as long for half a batch launches kernels, or
ops, that are too small to fill the device. For another precision the target is built again under Keras's policy; where
that reaches no op of the step (no Keras layers, types written out by hand) there is nothing to measure, and that is
said. On a GPU float16 and TensorFloat-32 are measured, too.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import stdev
from typing import Any, Final

import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.trial import HALF_BATCH, TrialSpec, not_applicable
from xttsbench.step.modes import Mode, fetches_answered, functions_run, in_mode
from xttsbench.step.op_trace import EagerOps
from xttsbench.targets.load import Loaded, load_target
from xttsbench.targets.spec import parse_target
from xttsbench.worker.batches import CachedBatches
from xttsbench.worker.bench import Bench, Limit, Step, step_of
from xttsbench.worker.failure import StepRaisedError, said
from xttsbench.worker.ladder import first_batches
from xttsbench.worker.profile.step import call_step

GIVEN: Final = "step_only"
"""Segment of the step as given."""
_ROUNDS: Final = 4
_MOST_ROUNDS: Final = 12
_WINDOWS: Final = 2.0  # Windows of the trial that four turns of both sides may take
_LONGEST: Final = 6.0  # The same of all turns
_SETTLED: Final = 0.04  # Standard error of the mean log ratio from which on more rounds are not worth their time
_DECISIVE: Final = 0.02  # The same beside one graph: what that saves is told to be launch overhead from 10 % on
_WARM_UP_S: Final = 60.0


def run_beside(
    spec: TrialSpec,
    bench: Bench,
    given: tuple[Step, list[Any]],
    changed: Mapping[str, tuple[Step, list[Any]]],
    settled: float = _SETTLED,
) -> None:
    """Measure the step as given as the segment ``step_only``, and each changed one by its name.

    Each is stepped once on every batch before. A round has a turn of each, on the same batches and as many, in an order
    that is turned round from one to the next. Four rounds are enough on a quiet machine; where they differ by much
    there are up to twelve, until the mean of their ratios is ``settled``. How much is looked at, never which side is
    ahead.

    Raises:
        StepRaisedError: one of them raised; the rows before it have been sent.
    """
    sides = {GIVEN: given, **changed}
    with bench.without_accelerator():  # it waits the same for both
        slowest_s = max(_warm_pace_s(bench, segment, *side) for segment, side in sides.items())
        turn_s = _WINDOWS * spec.window_s / (len(sides) * _ROUNDS)
        limit = Limit.exactly(min(max(int(turn_s / slowest_s), 1), math.ceil(spec.steps / _ROUNDS)))
        began, first = time.perf_counter(), len(bench.marks)
        log_ratios: dict[str, list[float]] = {name: [] for name in changed}
        for number in range(first, first + _MOST_ROUNDS):
            took_s = {}
            with bench.round(number):
                for segment in reversed(sides) if number % 2 else sides:
                    step, batches = sides[segment]
                    bench.channel.phase(segment)
                    turn_began = time.perf_counter()
                    bench.run(segment, CachedBatches(batches, range(len(batches))), step, limit, round=number)
                    took_s[segment] = time.perf_counter() - turn_began
            for name, ratios in log_ratios.items():
                ratios.append(math.log(took_s[GIVEN] / took_s[name]))
            windows = (time.perf_counter() - began) / spec.window_s
            if all(enough(ratios, windows, settled) for ratios in log_ratios.values()):
                break


def enough(log_ratios: list[float], windows: float, settled: float = _SETTLED) -> bool:
    """Whether rounds with these log ratios, which took so many windows of the trial, are enough."""
    count = len(log_ratios)
    if count < _ROUNDS and windows <= _WINDOWS:
        return False
    # One round of a step of many seconds has to do.
    return count == 1 or windows > _LONGEST or stdev(log_ratios) / math.sqrt(count) <= settled


def _warm_pace_s(bench: Bench, segment: str, step: Step, batches: list[Any]) -> float:
    """Seconds of a step once all batches have been through it, with its traces and compilations."""
    bench.channel.phase(f"warm_up {segment}")
    bench.warm_up(step, batches, _WARM_UP_S)
    began = time.perf_counter()
    done = bench.run("warm_up", CachedBatches(batches), step, Limit.exactly(1))
    return (time.perf_counter() - began) / max(done, 1)


_KEEP = 4  # Batches to run the modes on, of one shape: each shape is compiled, and XLA takes many seconds for one


def run_mode(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Run the step alone as given and in the mode of its kind, and in another one where that is asked for, in turns."""
    if step is None:
        raise TargetError(f"Target {spec.target!r} has no step, so it has no modes.")
    asked: list[Mode] = [kind for kind in (spec.kind, spec.also) if kind in ("eager", "graph", "xla")]
    batches = _of_one_shape(first_batches(loaded))
    # Where one side has all functions run eagerly, the others switch that off again, each for itself.
    own = partial(functions_run, eagerly=False) if "eager" in asked else lambda step: step
    changed = {mode: in_mode(step, mode) if mode == "eager" else own(in_mode(step, mode)) for mode in asked}
    settled = _DECISIVE if asked == ["graph"] else _SETTLED
    with fetches_noted(bench) if asked != ["eager"] else contextlib.nullcontext():
        run_beside(spec, bench, (own(step), batches), {mode: (one, batches) for mode, one in changed.items()}, settled)


def _of_one_shape(batches: list[Any]) -> list[Any]:
    """Return batches of the shape that most of them have."""
    by_shape: dict[str, list[Any]] = {}
    for batch in batches:
        shape = str([tuple(tensor.shape) for tensor in tf.nest.flatten(batch, expand_composites=True)])
        by_shape.setdefault(shape, []).append(batch)
    return max(by_shape.values(), key=len)[:_KEEP]


@contextlib.contextmanager
def fetches_noted(bench: Bench) -> Iterator[None]:
    """Within, values that a traced step fetches are answered; how many there were is noted."""
    with fetches_answered() as fetches:
        yield
    if fetches.count:
        bench.channel.note(f"host reads removed: {fetches.count} while tracing")


def run_half_batch(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Measure ``step_only`` on whole batches and ``half-batch`` on halves of the same; a refusal is noted."""
    if step is None:
        raise TargetError(f"Target {spec.target!r} has no step, so its time cannot be compared by batch size.")
    batches = _of_one_shape(first_batches(loaded))
    halves = [halved(batch) for batch in batches]
    if any(half is None for half in halves):
        bench.channel.note(not_applicable(HALF_BATCH, "the batches have no first dimension of two or more"))
        return
    try:
        step(halves[0])
    except Exception as error:  # whatever the user's step raises, it says that it wants whole batches
        bench.channel.note(not_applicable(HALF_BATCH, f"the step refuses half a batch: {said(error)}"))
        return
    try:
        run_beside(spec, bench, (step, batches), {HALF_BATCH: (step, halves)})
    except StepRaisedError as error:
        bench.channel.note(not_applicable(HALF_BATCH, f"the target raised in {error}"))


def halved(batch: Any) -> Any:
    """The first half of a batch: every tensor that has the first dimension of most, cut to half of it.

    Scalars, and tensors of another first dimension, stay as they are. ``None`` where there is nothing to cut.
    """
    sizes = Counter(size for leaf in tf.nest.flatten(batch) if (size := _rows(leaf)) is not None)
    if not sizes:
        return None
    size = sizes.most_common(1)[0][0]
    if size < 2:
        return None
    return tf.nest.map_structure(lambda leaf: leaf[: size // 2] if _rows(leaf) == size else leaf, batch)


def _rows(leaf: Any) -> int | None:
    if isinstance(leaf, tf.RaggedTensor):
        return int(leaf.nrows())
    shape = getattr(leaf, "shape", None)
    if isinstance(leaf, tf.sparse.SparseTensor) or shape is None or not len(shape):
        return None
    return int(shape[0])


_NARROW: Final = {"mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}


def run_precision(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Measure ``step_only`` beside ``mixed_bfloat16``, and on a GPU beside ``mixed_float16`` and other TF32."""
    if step is None:
        raise TargetError(f"Target {spec.target!r} has no step, so it has no precision.")
    batches = _of_one_shape(first_batches(loaded))
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    for name in _NARROW if on_gpu else ("mixed_bfloat16",):
        bench.channel.phase(f"building {name}")
        before = _dtypes_of(bench, step, batches[0])
        with under_policy(name):
            # The policy has to hold while the step builds its layers, which may be in its first call.
            again = load_target(parse_target(spec.target), spec.kwargs)
            changed = step_of(again)
            if changed is None:
                raise TargetError(f"Target {spec.target!r} has no step when it is built again.")
            after = _dtypes_of(bench, changed, batches[0])
            if _NARROW[name] not in after - before:
                bench.channel.note(not_applicable(name, "the step does not follow Keras's policy"))
                continue
            run_beside(spec, bench, (step, batches), {name: (changed, batches)})
    if on_gpu:
        on = tf.config.experimental.tensor_float_32_execution_enabled()
        name = "no-tf32" if on else "tf32"
        run_beside(spec, bench, (_tf32(step, on=on), batches), {name: (_tf32(step, on=not on), batches)})


@contextlib.contextmanager
def under_policy(name: str) -> Iterator[None]:
    """Within, Keras layers are made under this policy."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)


def _dtypes_of(bench: Bench, step: Step, batch: Any) -> set[str]:
    """Names of the types that the ops of one step yield, launched from Python and in the graphs that it calls."""
    eager = EagerOps()
    step(batch)  # builds and traces
    with eager:
        eager.begin_step()
        call_step(bench, step, batch)
    found = {dtype for step in eager.steps for op in step for dtype in op.dtypes}
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
