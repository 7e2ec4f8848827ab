"""Nodes and functions of a ``GraphDef``: what they are, what feeds them, what they reach, and edits of a copy of it."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2
from tensorflow.python.data.ops import options as options_lib
from tensorflow.python.data.util import options as options_util
from tensorflow.python.framework import op_def_registry

from xttsbench.pipeline.source import PYTHON_OPS, lookup


def copied(graph: Any) -> Any:
    """A graph to edit; the one that was given stays as it is."""
    edited = tf.compat.v1.GraphDef()
    edited.CopyFrom(graph)
    return edited


def add_constant(graph: Any, name: str, value: int | str | bool) -> str:
    """Add an int64, string or boolean scalar to a graph or function, in place; its name, ``name`` if that is free."""
    name, nodes = free_name(graph, name), _nodes(graph)
    node = nodes.add(name=name, op="Const")
    kind = tf.string if isinstance(value, str) else tf.bool if isinstance(value, bool) else tf.int64
    tensor = tf.make_tensor_proto(value, kind)
    node.attr["dtype"].type = tensor.dtype
    node.attr["value"].tensor.CopyFrom(tensor)
    return name


def free_name(graph: Any, name: str) -> str:
    """``name``, with a number where the graph or function has a node of that name already."""
    taken = {node.name for node in _nodes(graph)}
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(one for one in candidates if one not in taken)


def node_of(reference: str) -> str:
    """The name of the node that a reference is to: ``map`` of ``map:output:1`` and of ``^map``."""
    return reference.removeprefix("^").split(":")[0]


def data_inputs(node: Any) -> list[str]:
    """The inputs of a node as it refers to them, control inputs left out."""
    return [name for name in node.input if not name.startswith("^")]


def set_inputs(node: Any, names: Sequence[str]) -> None:
    """Give a node other inputs, in place; its control inputs stay."""
    control = [name for name in node.input if name.startswith("^")]
    node.input[:] = [*names, *control]


def redirect(nodes: Iterable[Any], past: Mapping[str, str], returned: Any = None) -> None:
    """Have nodes, and what a function returns (``FunctionDef.ret``), take others in place of some references."""

    def behind(name: str) -> str:
        while name in past:
            name = past[name]
        return name

    for node in nodes:
        node.input[:] = map(behind, node.input)
    for key, name in (returned or {}).items():
        returned[key] = behind(name)


def _nodes(graph: Any) -> Any:
    return graph.node if hasattr(graph, "node") else graph.node_def


_DATASET_OP: Final = re.compile(r"Dataset(V\d+)?$")
_ENDS_IN_DATASET: Final = ("ReduceDataset", "DeleteMultiDeviceIterator")  # which make none: the first runs one
_SMALL: Final = 4096  # elements of the largest constant that is looked into; embedded data is never unpacked


def dataset_nodes(graph: Any) -> list[Any]:
    """The dataset nodes that feed the graph's result, sources first, each after all of its inputs."""
    return ordered({node.name: node for node in graph.node}, results(graph))


def ordered(by_name: Mapping[str, Any], ends: Iterable[str]) -> list[Any]:
    """The dataset nodes among ``ends`` and all that feeds them, each after all of its inputs."""
    found: dict[str, Any] = {}
    waiting = [(name, False) for name in ends]
    while waiting:
        name, inputs_done = waiting.pop()
        if name not in by_name or name in found:
            continue
        if inputs_done:
            found[name] = by_name[name]
        else:
            waiting.append((name, True))
            waiting.extend((upstream, False) for upstream in reversed(node_inputs(by_name[name])))
    return [node for node in found.values() if is_dataset(node)]


def results(graph: Any) -> list[str]:
    """Names of the nodes that a graph's results come from."""
    return [name for node in graph.node if node.op == "_Retval" for name in node_inputs(node)]


def dataset_inputs(node: Any, by_name: Mapping[str, Any]) -> list[str]:
    """Names of the dataset nodes that a dataset node reads."""
    return [name for name in node_inputs(node) if name in by_name and is_dataset(by_name[name])]


def node_inputs(node: Any) -> list[str]:
    """Names of the nodes that a node reads, output numbers and control inputs taken off."""
    return [node_of(name) for name in data_inputs(node)]


def is_dataset(node: Any) -> bool:
    """Whether a node makes a dataset."""
    return _DATASET_OP.search(node.op) is not None and node.op not in _ENDS_IN_DATASET


def constant_input(node: Any, argument: str, by_name: Mapping[str, Any]) -> int | None:
    """The value of a scalar input by its name in the op's definition; ``None`` where it is absent or not constant."""
    value = constant(dict(named_inputs(node)).get(argument), by_name)
    return int(value.item()) if value is not None and value.ndim == 0 else None


def text_inputs(node: Any, argument: str, by_name: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The strings of an input by its name in the op's definition; ``None`` where it is absent or not constant."""
    value = constant(dict(named_inputs(node)).get(argument), by_name)
    if value is None or value.dtype != object:
        return None
    return tuple(item.decode(errors="replace") for item in value.ravel())


def constant(reference: str | None, by_name: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    """The value of a small constant; ``None`` where the reference is absent, no constant or a large one."""
    node = behind_identities(node_of(reference), by_name) if reference is not None else None
    if node is None or node.op != "Const":
        return None
    tensor = node.attr["value"].tensor
    if tensor.dtype in (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum):
        return None
    if int(np.prod([dimension.size for dimension in tensor.tensor_shape.dim])) > _SMALL:
        return None
    return array_of(tensor)


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """The value of a tensor's record; ``tf.make_ndarray`` does not read several strings as a graph writes them."""
    if tensor.tensor_content and tensor.dtype == tf.string.as_datatype_enum:
        with tf.device("/CPU:0"):
            return np.asarray(tf.io.parse_tensor(tensor.SerializeToString(), tf.string).numpy())
    return np.asarray(tf.make_ndarray(tensor))


def behind_identities(name: str, by_name: Mapping[str, Any]) -> Any | None:
    """The node that makes the value which a named node hands on; ``None`` where it is not in the graph."""
    node = by_name.get(name)
    while node is not None and node.op in ("Identity", "StopGradient"):
        node = by_name.get(node_inputs(node)[0])
    return node


def named_inputs(node: Any) -> Iterator[tuple[str, str]]:
    """Pairs of argument name and input, as the node refers to it; an argument that is a list appears once per element.

    An op that this TensorFlow does not know has none.
    """
    definition = op_def_registry.get(node.op)
    if definition is None:
        return
    inputs = iter(data_inputs(node))
    for argument in definition.input_arg:
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        if argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        for _, name in zip(range(count), inputs, strict=False):
            yield argument.name, name


def captured_inputs(node: Any) -> list[str]:
    """Names of a dataset node's inputs that go to its functions besides the element, in order."""
    return [name for argument, name in named_inputs(node) if argument.endswith(("other_arguments", "other_args"))]


_ALWAYS_SET: Final = ("experimental_distribute.auto_shard_policy", "AUTO")  # in the options of every pipeline


def graph_options(graph: Any) -> Any:
    """The options that hold at the end of the pipeline: later ones win, as TensorFlow merges them."""
    merged = dataset_options_pb2.Options()
    for node in dataset_nodes(graph):
        if node.op == "OptionsDataset":
            merged.MergeFromString(node.attr["serialized_options"].s)
    return merged


def option_fields(options: Any) -> dict[str, Any]:
    """The option fields of a :class:`Pipeline`, with TensorFlow's defaults for what was not set."""

    def value(message: Any, field: str, default: Any) -> Any:
        return getattr(message, field) if message.WhichOneof(f"optional_{field}") else default

    autotune = value(options.autotune_options, "enabled", True)
    return {
        "autotune": autotune,
        "injects_prefetch": autotune and value(options.optimization_options, "inject_prefetch", True),
        "threadpool_size": value(options.threading_options, "private_threadpool_size", None),
        "deterministic": value(options, "deterministic", None),
        "options": set_options(options),
    }


def set_options(options: Any) -> dict[str, str]:
    """Dotted name, as on :class:`tf.data.Options`, of every option that was set -> its value as text."""
    python = options_lib.Options()
    python._from_proto(options)
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", python)]
    while waiting:
        prefix, current = waiting.pop(0)
        for name, value in sorted(current._options.items()):
            if isinstance(value, options_util.OptionsBase):
                waiting.append((f"{prefix}{name}.", value))
            elif value is not None and (prefix + name, getattr(value, "name", None)) != _ALWAYS_SET:
                found[prefix + name] = value.name if isinstance(value, enum.Enum) else str(value)
    return found


_HARMLESS: Final = ("Assert", "If", "While")
"""Ops marked stateful that hold none of their own; what a branch or loop runs is looked at itself."""


class FunctionLibrary:
    """The function definitions of one graph, by name. Every question is answered transitively."""

    def __init__(self, functions: Iterable[Any]) -> None:
        """Take the ``FunctionDef`` messages of a ``GraphDef``'s library."""
        self._functions = {function.signature.name: function for function in functions}

    def get(self, name: str | None) -> Any | None:
        """A function's definition, or ``None`` where the library holds none of that name."""
        return self._functions.get(name) if name is not None else None

    def functions(self, names: Iterable[str]) -> Iterator[Any]:
        """The named functions and those that they call, map over or branch to, each once."""
        waiting, seen = list(reversed(list(names))), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._functions:
                continue
            seen.add(name)
            yield self._functions[name]
            for node in self._functions[name].node_def:
                waiting.extend((node.op, *called(node)))

    def reach(self, names: Iterable[str]) -> Iterator[Any]:
        """Every ``NodeDef`` in the named functions and in those that they call, map over or branch to."""
        for function in self.functions(names):
            yield from function.node_def

    def stateful(self, names: Iterable[str]) -> bool:
        """Whether an op with state (Python, random numbers, variable, table) is reached.

        TensorFlow's own rewrites ask the same question in this way.
        """
        return any(is_stateful(node) and node.op not in _HARMLESS for node in self.reach(names))

    def all_tokens(self) -> dict[str, str]:
        """Token -> graph op of every call of Python in the library, helpers included."""
        return self._tokens(self._functions)

    def python_tokens(self, names: Iterable[str]) -> dict[str, str]:
        """Token -> graph op of the Python functions reached; the helpers of ``from_generator`` are left out."""
        tokens = self._tokens(names)
        in_order = sorted(tokens, key=lambda token: (len(token), token))  # pyfunc_2 before pyfunc_10
        return {token: tokens[token] for token in in_order if not getattr(lookup(token), "helper", False)}

    def _tokens(self, names: Iterable[str]) -> dict[str, str]:
        return {node.attr["token"].s.decode(): node.op for node in self.reach(names) if node.op in PYTHON_OPS}


def is_stateful(node: Any) -> bool:
    """Whether TensorFlow marks an op as one with state of its own; not one that it does not know."""
    return bool(getattr(op_def_registry.get(node.op), "is_stateful", False))


def called(node: Any) -> list[str]:
    """Names of the functions that a node's attributes refer to (map, branch, loop, call), in attribute order."""
    values = [node.attr[key] for key in sorted(node.attr)]
    return [one.name for value in values for one in ([value.func] if value.HasField("func") else value.list.func)]
