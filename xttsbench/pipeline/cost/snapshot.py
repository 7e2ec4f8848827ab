"""TensorFlow's performance model of a running iterator, as this package's own nodes."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import model_pb2

from xttsbench.pipeline.cost.model import ModelNode

_KNOWN_RATIO: Final = (model_pb2.NodeClass.KNOWN_RATIO, model_pb2.NodeClass.ASYNC_KNOWN_RATIO)


def snapshot(iterator: Any) -> tuple[dict[int, ModelNode], int]:
    """The nodes of an iterator's model now, by id, and the id of its root.

    Raises:
        tf.errors.NotFoundError: there is no model, since autotune is off.
    """
    proto = tf.data.experimental.get_model_proto(iterator)
    nodes = {
        node.id: ModelNode(
            id=node.id,
            name=node.name,
            elements=node.num_elements,
            time_ns=node.processing_time,
            ratio=node.ratio if node.node_class in _KNOWN_RATIO and node.ratio > 0 else None,
            inputs=tuple(i for i in node.inputs if i in proto.nodes),
            parameters={parameter.name: parameter.state_value for parameter in node.parameters},
        )
        for node in proto.nodes.values()
    }
    return nodes, proto.output
