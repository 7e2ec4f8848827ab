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
def keeps(yielded, built):
    """``keeps(dataset, edit, **arguments)``: the edited graph, and its dataset, which yields what the original does.

    The graph that is edited stays as it was.
    """
    from xttsbench.pipeline.read import read_graph

    def run(dataset, edit, **arguments):
        graph = read_graph(dataset)
        before = graph.SerializeToString(deterministic=True)
        edited = edit(graph, **arguments)
        assert graph.SerializeToString(deterministic=True) == before
        fixed = built(edited, dataset)
        assert fixed.element_spec == dataset.element_spec
        assert yielded(fixed) == yielded(dataset)
        return edited, fixed

    return run


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
