"""The private thread pool of a pipeline, an option at its end."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from xttsbench.fixes.graph.edit import does_not_apply


def with_pool(dataset: Any, *, threads: int) -> Any:
    """The dataset with a private pool, by its options alone.

    Raises:
        InvalidInputError: it has a pool of this size already.
    """
    if dataset.options().threading.private_threadpool_size == threads:
        raise does_not_apply(f"thread-pool:{threads}", f"the dataset has a private pool of {threads} threads already")
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    return dataset.with_options(options)
