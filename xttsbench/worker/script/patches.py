"""Patches of TensorFlow and Keras that show a script's iteration; each wrapper tells :class:`Watched` and no more.

Every wrapper keeps ``functools.wraps``: AutoGraph would take it for user code otherwise.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tensorflow.python.autograph.operators import control_flow
from tensorflow.python.data.ops import dataset_autograph, dataset_ops, iterator_ops, optional_ops
from tensorflow.python.distribute import distribute_lib, input_lib
from tensorflow.python.eager import backprop, context
from tensorflow.python.framework import ops

from xttsbench.owners import LEGACY_KERAS
from xttsbench.worker.script.keras_calls import ON_BATCH
from xttsbench.worker.script.replaced import ReplacedStep
from xttsbench.worker.script.watched import Watched

Around = Callable[[Callable[..., Any]], Callable[..., Any]]


class Patches:
    """Installed patches, to be undone in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, around: Around) -> None:
        """Replace ``owner.name`` by what ``around`` makes of it."""
        original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        static = isinstance(original, staticmethod)
        plain = original.__func__ if static else original
        wrapped = functools.wraps(plain)(around(plain))
        setattr(owner, name, staticmethod(wrapped) if static else wrapped)
        self._undo.append(lambda: setattr(owner, name, original))

    def on_undo(self, action: Callable[[], None]) -> None:
        """Do this too when everything is put back."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


def around_request(watched: Watched) -> Callable[..., Callable[..., Any]]:
    """Makes a decorator that reports the calls of a function which asks an iterator for a batch.

    Outside of eager execution another function is called, if there is one.
    """
    main, me, clock = threading.main_thread().ident, threading.get_ident, time.perf_counter_ns

    def around(original: Callable[..., Any], in_graph: Callable[..., Any] | None = None) -> Callable[..., Any]:
        def get(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            if in_graph is not None and not context.executing_eagerly():
                return in_graph(iterator, *args, **kwargs)
            if watched.requesting or not watched.active or me() != main:
                return original(iterator, *args, **kwargs)
            watched.before_next(iterator)
            watched.requesting = True
            began = clock()
            try:
                element = original(iterator, *args, **kwargs)
            except BaseException:
                watched.requesting = False
                watched.waited(began, clock())
                raise
            watched.requesting = False
            watched.after_next(began, clock(), element)
            return element

        return watched.eager.steady.around(original, get, watched)

    return around


def patch_tensorflow(watched: Watched, patches: Patches) -> None:
    """Iteration from Python and inside graphs, gradients; calls of tf.functions are heard of by the watch."""
    main, me, clock = threading.main_thread().ident, threading.get_ident, time.perf_counter_ns

    def mine() -> bool:
        return watched.active and me() == main

    eager = around_request(watched)

    def around_owned(original: Callable[..., Any]) -> Callable[..., Any]:
        def in_graph(iterator: Any) -> Any:
            if watched.active and ops.inside_function():
                return watched.clock.around_request(lambda: original(iterator))
            return original(iterator)

        return eager(original, in_graph)

    def around_distributed(original: Callable[..., Any]) -> Callable[..., Any]:
        return eager(original, lambda *args, **kwargs: watched.clock.grouped(lambda: original(*args, **kwargs)))

    def around_create(original: Callable[..., Any]) -> Callable[..., Any]:
        def create(iterator: Any, dataset: Any) -> Any:
            if not (mine() and context.executing_eagerly()):
                return original(iterator, dataset)
            dataset = watched.dataset_begun(dataset)
            began = clock()
            try:
                return original(iterator, dataset)
            finally:
                if not watched.requesting:
                    watched.waited(began, clock())

        return create

    def around_distribution(original: Callable[..., Any]) -> Callable[..., Any]:
        def build(distributed: Any, dataset_to_replace: Any = None) -> Any:
            if not mine() or dataset_to_replace is not None:
                return original(distributed, dataset_to_replace)
            distributed._original_dataset = watched.datasets.used(distributed._original_dataset)
            original(distributed)
            watched.datasets.distributed(distributed)

        return build

    def around_tape(original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(tape: Any) -> Any:
            watched.recorder.tapes += 1
            if watched.recorder.replaced is not None:
                watched.recorder.replaced.tape()
            return original(tape)

        return enter

    patches.put(iterator_ops.OwnedIterator, "_next_internal", around_owned)
    patches.put(iterator_ops.OwnedIterator, "get_next_as_optional", around_owned)
    patches.put(iterator_ops.OwnedIterator, "_create_iterator", around_create)
    patches.put(input_lib.DistributedDataset, "build", around_distribution)
    patches.put(input_lib.DistributedIteratorBase, "get_next", around_distributed)
    patches.put(input_lib.DistributedIteratorBase, "get_next_as_optional", around_distributed)
    patches.put(backprop.GradientTape, "__enter__", around_tape)
    patches.put(optional_ops.Optional, "from_value", around_results(watched))
    if (replaced := watched.recorder.replaced) is not None:
        patches.put(distribute_lib.StrategyBase, "run", around_training(replaced))
    _patch_loops_over_datasets(watched, patches)


def around_results(watched: Watched) -> Around:
    """Makes a decorator for functions that the results of a step of ``fit`` go through: there the step ends."""
    main = threading.main_thread().ident

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def marked(value: Any, *args: Any, **kwargs: Any) -> Any:
            if watched.active and watched.fitting and threading.get_ident() == main and ops.inside_function():
                watched.clock.mark_end_of(value)
            return original(value, *args, **kwargs)

        return marked

    return around


def around_training(replaced: ReplacedStep) -> Around:
    """Makes a decorator for methods that train: by a function, their first argument, or by themselves."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def train(owner: Any, *args: Any, **kwargs: Any) -> Any:
            step = args[0] if args and callable(args[0]) else owner
            return replaced.around(step, lambda: original(owner, *args, **kwargs))

        return train

    return around


def _patch_loops_over_datasets(watched: Watched, patches: Patches) -> None:
    """``for batch in dataset`` inside a tf.function has no request for data that could be stamped: its body has."""
    original = dataset_autograph._tf_ag_dataset_for_stmt

    @functools.wraps(original)
    def for_stmt(ds: Any, extra_test: Any, body: Any, get_state: Any, *rest: Any) -> Any:
        if watched.active and ops.inside_function():
            ds = watched.dataset_in_graph(ds)
            body = watched.clock.around_body(body, get_state)
        return original(ds, extra_test, body, get_state, *rest)

    control_flow.for_loop_registry._registry[dataset_ops.DatasetV2] = for_stmt
    patches.on_undo(lambda: control_flow.for_loop_registry._registry.update({dataset_ops.DatasetV2: original}))


class _Keras(NamedTuple):
    """Parts of one package of Keras that ``fit`` goes through.

    Attributes:
        lists: the class that calls the callbacks.
        trainer: the class with ``fit``.
        epochs: the class that iterates over the data set, which it has as the attribute ``dataset``.
        results: where the function is that a step's results go through in the graph of ``fit``; Keras 3 wraps them by
            TensorFlow's own ``Optional.from_value``.
    """

    lists: type
    trainer: type
    epochs: type
    dataset: str
    results: tuple[Any, str] | None = None


def _keras(package: str) -> _Keras:
    if package == LEGACY_KERAS:
        from tf_keras.src import callbacks  # type: ignore[import-untyped]
        from tf_keras.src.engine import data_adapter, training  # type: ignore[import-untyped]

        handler = data_adapter.DataHandler
        return _Keras(callbacks.CallbackList, training.Model, handler, "_dataset", (training, "reduce_per_replica"))
    from keras.src.backend.tensorflow import trainer
    from keras.src.callbacks import callback_list

    return _Keras(
        callback_list.CallbackList, trainer.TensorFlowTrainer, trainer.TFEpochIterator, "_distributed_dataset"
    )


KERAS_3_WORKERS: Final = (
    "fit of Keras 3 fails under MultiWorkerMirroredStrategy (keras-team/keras#20585). What works: Keras 2, by "
    "pip install tf_keras and TF_USE_LEGACY_KERAS=1 in the environment before TensorFlow is imported; or a loop of "
    "your own around strategy.run."
)


def _on_several_workers(model: Any) -> bool:
    strategy = getattr(model, "distribute_strategy", None)
    return getattr(getattr(strategy, "extended", None), "_num_workers", 1) > 1


def patch_keras(watched: Watched, patches: Patches, package: str) -> None:
    """The steps of ``fit``, its validation, and the data set that it takes, in one package of Keras."""
    keras = _keras(package)

    def noted(action: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """An error of our own ends no training: it is noted."""
        try:
            action(*args, **kwargs)
        except Exception as error:
            watched.note_once(f"watching fit failed in part: {type(error).__name__}: {str(error)[:200]}")

    def told(before: Callable[..., None] | None, after: Callable[..., None] | None) -> Around:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
                if before is not None and watched.active:
                    noted(before, callbacks)
                result = original(callbacks, *args, **kwargs)
                if after is not None and watched.active:
                    noted(after, *args, **kwargs)
                return result

            return call

        return around

    def around_epochs(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(iterator: Any, *args: Any, **kwargs: Any) -> None:
            original(iterator, *args, **kwargs)
            if not watched.fitting:
                watched.fit_dataset = getattr(iterator, keras.dataset)

        return init

    def around_fit(original: Callable[..., Any]) -> Callable[..., Any]:
        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            if watched.active and package != LEGACY_KERAS and _on_several_workers(model):
                print(f"xttsbench: {KERAS_3_WORKERS}", file=sys.stderr, flush=True)
                watched.note_once(KERAS_3_WORKERS)
            if watched.before_fit is not None and watched.active:
                kwargs = dict(inspect.signature(original).bind(model, *args, **kwargs).arguments)
                del kwargs["self"]
                args = ()
                watched.before_fit(model, kwargs)
            try:
                return original(model, *args, **kwargs)
            finally:
                watched.fit_over()

        return fit

    def begin(callbacks: Any) -> None:
        model = getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
        watched.fit_begins(model, callbacks.callbacks)

    patches.put(keras.lists, "on_train_begin", told(begin, None))
    patches.put(keras.lists, "on_epoch_begin", told(lambda _: watched.epoch_begins(), None))
    if watched.recorder.stops:
        patches.put(keras.lists, "on_train_batch_begin", told(lambda _: watched.recorder.check_stop(), None))
    patches.put(keras.lists, "on_train_batch_end", told(None, lambda _, logs=None: watched.batch_ended(logs)))
    patches.put(keras.lists, "on_test_begin", told(lambda _: watched.validation_begins(), None))
    patches.put(keras.lists, "on_test_end", told(None, lambda *_, **__: watched.validated()))
    patches.put(keras.epochs, "__init__", around_epochs)
    if keras.results is not None:
        patches.put(*keras.results, around_results(watched))
    patches.put(keras.trainer, "fit", around_fit)
    for method in ON_BATCH:
        patches.put(keras.trainer, method, watched.recorder.keras_calls.around)
    if (replaced := watched.recorder.replaced) is not None:
        patches.put(keras.trainer, "train_on_batch", around_training(replaced))
