"""What the tests of rewrites ask of a dataset."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.nodes import dataset_nodes
from xttsbench.pipeline.read import read_graph


def ops(dataset):
    """Types of its ops, sources first, without options."""
    return [node.op for node in dataset_nodes(read_graph(dataset)) if node.op != "OptionsDataset"]


def elements(dataset):
    """What an epoch of it yields, each element as a flat list of plain values."""
    return [[np.asarray(part).tolist() for part in tf.nest.flatten(one)] for one in dataset.as_numpy_iterator()]
