"""One trial from its specification to its end, in a process of its own or, of a live target, in the caller's.

The target is loaded, the trial run, and whatever happens turned into words.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.platform import build_info

from xttsbench.fixes.graph import apply
from xttsbench.fixes.step import STEP_NO_XLA
from xttsbench.owners import loaded_files
from xttsbench.pipeline import places
from xttsbench.pipeline.source import locate
from xttsbench.probes.clock import EmulatedAccelerator
from xttsbench.records.fix import FixSet
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import Devices, TrialSpec
from xttsbench.step.modes import keras_package, synchroniser, without_xla
from xttsbench.step.watch import Watch
from xttsbench.targets.checkout import enter
from xttsbench.targets.load import Loaded, classify, load_target
from xttsbench.targets.spec import parse_target, substituted
from xttsbench.worker.batches import fill_caches
from xttsbench.worker.bench import Bench, Step, frame_keys, step_of
from xttsbench.worker.channel import Channel, DirectChannel, shared_rows
from xttsbench.worker.failure import failure
from xttsbench.worker.fingerprint import read_elements
from xttsbench.worker.ladder import fixed, measure_as_is, run_arm, run_ladder, run_pipeline
from xttsbench.worker.parity import run_parity
from xttsbench.worker.service_costs import run_service
from xttsbench.worker.service_workers import run_on_workers
from xttsbench.worker.step_variants import run_half_batch, run_mode, run_precision

Run = Callable[[TrialSpec, Loaded, Step | None, Bench], None]

KINDS: Final[dict[str, Run]] = {
    "ladder": run_ladder,
    "pipeline": run_pipeline,
    "eager": run_mode,
    "graph": run_mode,
    "xla": run_mode,
    "precision": run_precision,
    "batch": run_half_batch,
    "arm": run_arm,
    "parity": run_parity,
    "service": run_service,
    "workers": run_on_workers,
}


def main(connection: socket.socket, rows: int) -> int:
    """Run the trial that the parent describes, its rows in the memory of that descriptor; returns the exit code."""
    channel = Channel(connection, shared_rows(rows))
    try:
        spec = channel.receive(TrialSpec)
        try:
            _run(spec, channel)
        except (Exception, SystemExit) as error:
            channel.send(failure(error))
        channel.part("files", loaded_files())
        channel.send({"done": True})
    except OSError:
        return 1  # the parent is gone; there is nobody to tell
    return 0


def _run(spec: TrialSpec, channel: Channel) -> None:
    channel.phase("setup")
    if spec.checkout is not None:
        enter(spec.checkout)
    tf.keras.utils.set_random_seed(spec.seed)
    places.install()  # for good: the process is this trial's
    always = contextlib.ExitStack()  # never closed: a step may make its functions when it is called first
    if STEP_NO_XLA.name in FixSet.parse(spec.fix):
        always.enter_context(without_xla())
    began = time.perf_counter()
    target = parse_target(spec.target)
    variables: list[Any] = []
    with contextlib.ExitStack() as around:
        around.enter_context(substituted(spec.patched))
        if spec.kind == "graph":
            around.enter_context(without_xla())
        if spec.kind == "elements":
            around.enter_context(tf.variable_creator_scope(_collecting(variables)))
        loaded = load_target(target, spec.kwargs)
        original = loaded.dataset
        loaded, step = fixed(loaded, step_of(loaded), spec)
    channel.part("setup_s", time.perf_counter() - began)
    if spec.kind == "ladder" and spec.block == 0:
        if loaded.step is not None:
            channel.part("step_place", locate(loaded.step))
        from xttsbench.targets.source.scan import module_file, scan_loaded  # LibCST, which other trials do without

        makers = places.files_of(original)
        facts = scan_loaded(target.folder, module_file(target), entry=target.attribute, makers=makers)
        channel.part("source", [*facts])

    def elements(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
        channel.part("elements", read_elements(spec, loaded, step, bench, original, variables))

    run_kind(spec, loaded, step, channel, elements if spec.kind == "elements" else None)


def _collecting(variables: list[Any]) -> Callable[..., Any]:

    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        variables.append(next_creator(**kwargs))
        return variables[-1]

    return create


def run_kind(spec: TrialSpec, loaded: Loaded, step: Step | None, channel: Channel, kind: Run | None = None) -> None:
    """Run a trial of its kind, or what is given in its place, on a target that is there, watched.

    An emulated accelerator stands for the step of a Keras model; any other step it follows.
    """
    if spec.emulated_ms and loaded.model is not None:
        step = None
    channel.part("target_kind", loaded.kind)
    channel.part("devices", devices_seen())
    with Watch() as watch:
        bench = Bench(
            channel,
            watch,
            EmulatedAccelerator(spec.emulated_ms) if spec.emulated_ms else None,
            synchroniser(),
            keys=frame_keys(loaded, spec.target),
        )
        try:
            (kind or KINDS[spec.kind])(spec, loaded, step, bench)
        finally:
            channel.send({"traces": [trace.model_dump(mode="json") for trace in watch.traces]})
            if bench.compilations.xla.reason:
                channel.note(bench.compilations.xla.reason)


def devices_seen() -> Devices:
    """Devices and versions that TensorFlow has in this process."""
    return Devices(
        gpus=tuple(device.name for device in tf.config.list_physical_devices("GPU")),
        cpus=len(tf.config.list_physical_devices("CPU")),
        built_with_cuda=bool(build_info.build_info.get("is_cuda_build", False)),
        inter_op_threads=tf.config.threading.get_inter_op_parallelism_threads(),
        intra_op_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        versions={"tensorflow": tf.__version__, "keras": version(keras_package())},
    )


_FILLING: Final = 2
"""Windows of the trial that takes fingerprints which filling a cache may take: it is filled once for all others."""

Take = Callable[[dict[str, Any]], None]


class LiveTarget:
    """Target of the calling process, measured there with fixes and without.

    No other process could build it. Each fix is applied once and kept: building it again for every trial would fill its
    cache again, and start the processes of a pool again, which is no part of what is measured.

    Args:
        target: a dataset, ``(dataset, step)``, ``(dataset, model)`` or a Workload.
        name: for people.

    Raises:
        TargetError: the target is none of these.
    """

    def __init__(self, target: Any, name: str) -> None:
        self._loaded = classify(target, name)
        self._step = step_of(self._loaded)
        self._fixed: dict[FixSet, Any] = {}

    @property
    def dataset(self) -> Any:
        """The dataset as it was given: this object itself."""
        return self._loaded.dataset

    def with_fix(self, fixes: FixSet) -> Any:
        """The dataset with some fixes of the dataset; the same object each time.

        Raises:
            InvalidInputError: there is no such fix, or it does not apply.
        """
        if fixes not in self._fixed:
            self._fixed[fixes] = apply(self.dataset, fixes)
        return self._fixed[fixes]

    def measure(self, spec: TrialSpec, take: Take, rows: RowMemory) -> None:
        """Run one trial in this process and thread; whatever it raises is told as its end.

        A trial of the kind ``elements`` has no step: another training of the caller's model is not ours to do. One of
        the kind ``arm`` does not look for shapes, since the step has seen them in the main trial. ``take`` gets each
        message that a trial in a process of its own would send, ``rows`` its steps.
        """
        channel = DirectChannel(take, rows)
        try:
            loaded, step, kind = self._prepared(spec)
            run_kind(spec, loaded, step, channel, kind)
        except Exception as error:
            channel.send(failure(error))
        channel.send({"done": True})

    def _prepared(self, spec: TrialSpec) -> tuple[Loaded, Step | None, Callable[..., None] | None]:
        loaded = self._loaded
        if spec.kind == "elements":
            # Applied afresh: a cache that these shortened passes fill must not be the one that is timed, or kept.
            if spec.fix is not None:
                loaded = replace(loaded, dataset=apply(self.dataset, FixSet.parse(spec.fix)))
            return loaded, None, self._run_elements
        if spec.fix is not None:
            loaded = replace(loaded, dataset=self.with_fix(FixSet.parse(spec.fix)))
        return loaded, self._step, measure_as_is if spec.kind == "arm" else None

    def _run_elements(self, spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
        """Take the fingerprints, then fill the cache of the dataset that is timed, so that no timed trial does it."""
        bench.channel.part("elements", read_elements(spec, loaded, step, bench, self.dataset))
        if spec.fix is not None:
            kept = self.with_fix(FixSet.parse(spec.fix))
            fill_caches(spec.model_copy(update={"window_s": spec.window_s * _FILLING}), kept, bench.channel)


def load_here(target: Any, name: str, kwargs: dict[str, Any]) -> Loaded:
    """A target in the calling process: what is there already, what a callable returns, or what a name stands for.

    Raises:
        TargetError: it cannot be imported or called, or is no target.
    """
    if isinstance(target, str):
        return load_target(parse_target(target), kwargs)
    return classify(target(**kwargs) if callable(target) else target, name)
