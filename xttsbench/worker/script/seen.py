"""What is kept of a script for the measurements afterwards: the dataset of its main loop, and its step alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from xttsbench.worker.script.afterwards import Seen
from xttsbench.worker.script.eager_loops import original

if TYPE_CHECKING:
    from xttsbench.worker.script.watched import Watched


def seen_of(watched: Watched) -> Seen:
    """The dataset and the step of the main loop."""
    main = watched.results.loops.main
    if main is None:
        return Seen(why_no_step="no loop was seen")
    dataset = original(main.dataset)
    if main is watched.fit.loop:
        return _of_fit(watched.fit.model, main.dataset, dataset)
    if main in watched.graph:
        return Seen(dataset, None, "the loop is inside a tf.function, so no function takes a single batch")
    if dataset is not main.dataset:
        return Seen(dataset, None, "the batches are distributed over replicas")
    if watched.eager.step is None:
        return Seen(dataset, None, "no function of the script takes the whole batch as it comes")
    return Seen(dataset, watched.eager.step, None, watched.eager.step_mode)


def _of_fit(model: Any, distributed: Any, dataset: Any) -> Seen:
    from xttsbench.step.modes import keras_step

    if distributed is not dataset or tf.distribute.has_strategy():
        return Seen(dataset, None, "the batches are distributed over replicas")
    mode = "eager" if model.run_eagerly else "xla" if model.jit_compile else "graph"
    return Seen(dataset, keras_step(model), None, mode)
