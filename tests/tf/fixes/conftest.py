"""What the tests of rewrites share: every bit that a dataset yields, in order."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tensorflow as tf


def bits(component):
    """Type, shape and bytes of one tensor."""
    array = np.asarray(component.numpy())
    return component.dtype.name, array.shape, tuple(array.ravel()) if array.dtype == object else array.tobytes()


@pytest.fixture
def yielded():
    """A function from a dataset to what it yields over two epochs, an element after the other."""

    def run(dataset, epochs=2):
        return [
            [[bits(component) for component in tf.nest.flatten(e, expand_composites=True)] for e in dataset]
            for _ in range(epochs)
        ]

    return run


@pytest.fixture
def built():
    """A function from an edited graph and its original dataset to the dataset that it describes."""
    from xttsbench.fixes.graph.edit import from_graph

    return lambda graph, dataset: from_graph(graph, dataset.element_spec, source=dataset)


@pytest.fixture
def written_targets():
    """Places of what the user calls are kept, and targets that the test wrote are forgotten behind it."""
    from xttsbench.pipeline import places

    before, path, end = set(sys.modules), list(sys.path), places.install()
    yield
    end()
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("written_target"):
            del sys.modules[name]
