"""Measurements once a script is over, in its own process: its pipeline's graph, its input alone, its step alone.

A script runs once, so what the ladder learns from fresh processes is learnt from what the script left: the dataset that
fed its steps, and the function that took its batches. Their state is the script's: variables are put back as the script
left them, since it may save them in a handler of its own; a dataset is begun anew, as an epoch begins it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from xttsbench.pipeline.places import files_of
from xttsbench.records.trial import MeasurementOverhead, TrialSpec, not_applicable
from xttsbench.step.modes import Mode, in_mode, keras_step
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import CachedBatches, LiveBatches
from xttsbench.worker.bench import Bench, Limit, Step, Steps, overhead_of
from xttsbench.worker.channel import ScriptReport, SilentChannel
from xttsbench.worker.failure import ExhaustedError, StepRaisedError, said
from xttsbench.worker.ladder import first_batches, run_pipeline, tell_handoff
from xttsbench.worker.profile.step import read_step_ops
from xttsbench.worker.script.loop import original
from xttsbench.worker.script.patches import Patches, patch_tensorflow
from xttsbench.worker.script.watched import Watched
from xttsbench.worker.step_variants import fetches_noted

_PIPELINE_S: Final = 5.0
_INPUT_S: Final = 2.0
_STEP_S: Final = 2.0
_OPS_S: Final = 1.0
_SETTLES: Final = 10  # Steps after which what is done once is done
_VARIABLES_BYTES: Final = 2 * 2**30  # Variables larger than this in all are not copied, and so the step is not run


class ScriptHandles(NamedTuple):
    """Dataset and step of a script, kept for afterwards.

    Attributes:
        dataset: the dataset that gave most of the batches; ``None`` where none is known or it died.
        step: the function of the script that takes a whole batch, as ``step(batch)``; ``None`` where there is none.
        why_no_step: why not; ``None`` where an emulated accelerator stands for it.
        mode: how the step runs as the script has it.
    """

    dataset: Any = None
    step: Step | None = None
    why_no_step: str | None = None
    mode: str = "graph"


def measure_script(report: ScriptReport, watched: Watched, patches: Patches) -> None:
    """Measure, in what is left of the script, what its own run could not show, and what it cost to watch it."""
    handles = _handles_of(watched)
    report.tell(why_no_step=handles.why_no_step)
    watched.eager.open = None
    watched.recorder.watch.__exit__()
    patches.undo()
    if watched.recorder.profiled is not None:
        report.channel.phase("profile")
        report.channel.part("profile", watched.recorder.profiled.summary())
    report.channel.phase("overhead")
    report.channel.part("overhead", watching_overhead(report.spec, in_graph=watched.fit.loop is not None))
    report.channel.phase("afterwards")
    with watched.recorder.watch:
        _measure(report.spec, handles, watched.recorder.results.bench)


def _measure(spec: TrialSpec, handles: ScriptHandles, bench: Bench) -> None:
    """Runs the measurements in turn; a failure is noted, and the steps measured before stand."""
    from xttsbench.targets.source.scan import scan_loaded  # LibCST, which the script's own steps do without

    script = os.path.abspath(spec.target)
    readable = isinstance(handles.dataset, tf.data.Dataset)
    makers = files_of(handles.dataset) if readable else ()
    facts = scan_loaded(os.path.dirname(script), script, imported_before=False, makers=makers)
    bench.channel.part("source", [*facts])
    if not readable:
        bench.channel.note("the script's input was not read: no tf.data.Dataset fed its steps, or it was gone")
        return
    loaded = Loaded("script", handles.dataset, handles.step)
    with _noted(bench, "its pipeline was not read"):
        run_pipeline(spec.model_copy(update={"window_s": _PIPELINE_S}), loaded, None, bench)
    with _noted(bench, "its input alone was not measured"):
        _measure_input(spec, loaded, bench)
    if spec.emulated_ms:
        with _noted(bench, "what handing over a batch takes was not measured"):
            tell_handoff(spec, first_batches(loaded)[0], bench)
    if handles.step is None:
        if handles.why_no_step is not None:
            bench.channel.note(f"the script's step alone was not measured: {handles.why_no_step}")
        return
    with _noted(bench, "its step alone was not measured"), _variables_kept():
        _measure_step(spec, loaded, handles.step, "graph" if handles.mode == "eager" else "xla", bench)


def _measure_input(spec: TrialSpec, loaded: Loaded, bench: Bench) -> None:
    """The dataset without a step and without an accelerator; the first batch, with the pipeline's start, is warm-up."""
    bench.accelerator = None
    bench.channel.phase("input_only")
    source = LiveBatches(loaded.dataset)
    bench.run("input_only", source, None, Limit(spec.steps, _INPUT_S, spec.min_steps), warmup=1)


def _measure_step(spec: TrialSpec, loaded: Loaded, step: Step, mode: Mode, bench: Bench) -> None:
    """The step on batches in memory: as the script has it, and compiled where the script runs it op by op."""
    batches = first_batches(loaded)
    tell_handoff(spec, batches[0], bench)
    bench.channel.phase("step_only")
    limit = Limit(spec.steps, _STEP_S, 2, fair_s=1.0)
    bench.run("step_only", CachedBatches(batches, range(len(batches))), step, limit, warmup=1)
    with _noted(bench, "the ops of its step were not read"):
        bench.channel.phase("ops of the step")
        bench.channel.part("step_ops", read_step_ops(bench, step, batches, _OPS_S))
    with _noted(bench, f"its step was not measured in mode {mode}", mode), fetches_noted(bench):
        bench.channel.phase(f"compiling {mode}")
        changed = in_mode(step, mode)
        # Not `warm_up`: that is the script's own.
        bench.run(f"warm_up_{mode}", CachedBatches(batches), changed, Limit.exactly(len(batches), _STEP_S))
        bench.channel.phase(mode)
        bench.run(mode, CachedBatches(batches), changed, Limit(spec.steps, _STEP_S / 2, 1, fair_s=0.5))


@contextlib.contextmanager
def _noted(bench: Bench, what: str, mode: Mode | None = None) -> Iterator[None]:
    """Within, what the user's code raises is a note, of the ``mode`` of the step if one: the script itself was fine."""
    try:
        yield
    except ExhaustedError:
        bench.channel.note(f"the script is over, and {what}: its dataset yields nothing a second time")
    except OSError:
        raise  # the parent is gone
    except Exception as error:
        cause = error.__cause__ if isinstance(error, StepRaisedError) and error.__cause__ is not None else error
        raised = said(cause)
        failed = mode and not_applicable(mode, f"run that way the step alone raised {raised}")
        bench.channel.note(failed or f"the script is over, and {what}: {raised}")


@contextlib.contextmanager
def _variables_kept() -> Iterator[None]:
    """Put all variables back as they were.

    Raises:
        MemoryError: there is too much to copy.
    """
    # The variables of each replica, not what stands for all of them.
    variables = [found for found in gc.get_objects() if type(found) is resource_variable_ops.ResourceVariable]
    size = sum((variable.shape.num_elements() or 0) * variable.dtype.size for variable in variables)
    if size > _VARIABLES_BYTES:
        raise MemoryError(f"its variables take {size / 2**30:.1f} GiB, and a copy of them as much again")
    kept = [(variable, tf.identity(variable)) for variable in variables]
    try:
        yield
    finally:
        for variable, value in kept:
            variable.assign(value)


def _handles_of(watched: Watched) -> ScriptHandles:
    """The dataset and the step of the main loop."""
    main = watched.recorder.results.loops.main
    if main is None:
        return ScriptHandles(why_no_step="no loop was seen")
    dataset = original(main.dataset)
    if watched.recorder.replaced is not None and main.trains:
        return ScriptHandles(dataset)
    if main is watched.fit.loop:
        return _of_fit(watched.fit.model, main.dataset, dataset)
    if main in watched.graph:
        return ScriptHandles(dataset, None, "the loop is inside a tf.function, so no function takes a single batch")
    if dataset is not main.dataset:
        return ScriptHandles(dataset, None, "the batches are distributed over replicas")
    if watched.eager.step is None:
        return ScriptHandles(dataset, None, "no function of the script takes the whole batch as it comes")
    return ScriptHandles(dataset, watched.eager.step, None, watched.eager.step_mode)


def _of_fit(model: Any, distributed: Any, dataset: Any) -> ScriptHandles:
    if distributed is not dataset or tf.distribute.has_strategy():
        return ScriptHandles(dataset, None, "the batches are distributed over replicas")
    mode = "eager" if model.run_eagerly else "xla" if model.jit_compile else "graph"
    return ScriptHandles(dataset, keras_step(model), None, mode)


def watching_overhead(spec: TrialSpec, *, in_graph: bool) -> MeasurementOverhead:
    """Mean cost of watching a step.

    Args:
        spec: the trial's.
        in_graph: whether the script's requests for data are inside a graph (``fit``), with their stamps.
    """
    iterator = iter(tf.data.Dataset.from_tensors(tf.zeros([4, 4])).repeat())
    long = spec.model_copy(update={"steps": 10**9, "window_s": 1e6, "emulated_ms": ()})
    watched = Watched(ScriptReport(long, SilentChannel()), lambda _: None)
    watched.recorder.results  # noqa: B018 - made here, as it is paid once
    watched.recorder.windows.leave_out()

    @contextlib.contextmanager
    def watching() -> Iterator[None]:
        patches = Patches()
        watched.eager.open = None  # else the bare steps since then would be one long step
        patch_tensorflow(watched, patches)
        try:
            with watched.recorder.watch:
                watched.fitting, watched.active = in_graph, True
                yield
        finally:
            watched.active = False
            patches.undo()

    def steps() -> Steps:
        # Traced anew for each side: the stamps are in the trace.
        if in_graph:
            request = tf.function(lambda: next(iterator) + 1)
            return lambda count: [request() for _ in range(count)]
        step = tf.function(lambda batch: batch + 1)
        return lambda count: [step(next(iterator)) for _ in range(count)]

    measured, bare = steps(), steps()
    with watching():
        measured(_SETTLES)
    bare(_SETTLES)
    how = "a request inside a graph" if in_graph else "a request from Python and a small compiled step"
    clock = time.process_time_ns if in_graph else time.thread_time_ns
    return overhead_of(measured, bare, how, clock=clock, around=watching, settle=_SETTLES)
