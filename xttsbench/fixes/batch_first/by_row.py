"""A map's function for one element, turned into one for a batch of them: row by row the same results.

The ops of the function are vectorised one by one (TensorFlow's ``pfor``, what ``tf.vectorized_map`` is made of), so
the result is right by construction where each op's conversion is; :mod:`xttsbench.fixes.batch_first.conversions` has
those that ``pfor`` lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import function_def_to_graph
from tensorflow.python.ops.parallel_for import control_flow_ops
from tensorflow.python.saved_model import function_deserialization

from xttsbench.fixes.batch_first.conversions import NotVectorisedError, conversions
from xttsbench.fixes.graph.inline import needed_nodes
from xttsbench.pipeline.graph.library import FunctionLibrary, called
from xttsbench.pipeline.graph.registry import PYTHON_OPS


def by_row(
    library: FunctionLibrary, name: str, spec: Sequence[tf.TensorSpec], captured: Sequence[tf.TensorSpec]
) -> tuple[Any, list[Any]]:
    """A function that takes batches of what the named one takes, and returns batches of what it returns.

    Args:
        library: the functions of the graph.
        name: of the function; it takes the components of an element and what it captures.
        spec: types and shapes of the components of one element.
        captured: types and shapes of what it captures, which is the same for all rows.

    Returns:
        Its ``FunctionDef``, under a new name, and those that it needs besides. Batches may be of any size, and the
        function may be called with several at once where the given one could. Checks (``Assert``) that no result is
        computed from are left out: they pass, or the original would have failed.

    Raises:
        NotVectorisedError: an op of the function is not known to work on several rows at once.
    """
    definition = library.get(name)
    if definition is None:
        raise NotVectorisedError(f"its function {name} is not in the graph")
    _refuse_effects(library, definition)
    body, names, called_functions = _body(library, definition, [*spec, *captured])
    count = len(spec)

    def batched(*arguments: Any) -> list[Any]:
        for function in called_functions:
            function.add_to_graph(tf.compat.v1.get_default_graph())

        def one_row(number: Any) -> list[Any]:
            row = [tf.gather(argument, number) for argument in arguments[:count]]
            return _call(body, definition, names, [*row, *arguments[count:]])

        rows = tf.shape(arguments[0])[0]
        return list(control_flow_ops.pfor(one_row, rows, fallback_to_while_loop=False))

    batches = [tf.TensorSpec(tf.TensorShape([None]).concatenate(one.shape), one.dtype) for one in spec]
    try:
        with conversions():
            traced = tf.function(batched, autograph=False).get_concrete_function(*batches, *captured)
    except Exception as error:  # conversions raise whatever TensorFlow's ops raise when they are built
        raise NotVectorisedError(_first_line(error)) from error
    if traced.captured_inputs:
        raise NotVectorisedError("its function for batches needs a tensor from outside")
    return _results_only(traced.function_def), list(traced.graph.as_graph_def().library.function)


def _refuse_effects(library: FunctionLibrary, definition: Any) -> None:
    """Python that is called for no result of the function would no longer be called."""
    needed = needed_nodes(definition, control=False)
    for node in definition.node_def:
        if node.name not in needed and any(
            one.op in PYTHON_OPS for one in [node, *library.reach([node.op, *called(node)])]
        ):
            raise NotVectorisedError(f"{node.name} calls Python for its effect alone")


def _results_only(traced: Any) -> Any:
    """A traced function without what its results do not need.

    The function for one row is part of the trace, and what has state in it would run once more for each batch.
    """
    needed = needed_nodes(traced, control=False)
    pruned = type(traced)()
    pruned.CopyFrom(traced)
    del pruned.node_def[:]
    for node in traced.node_def:
        if node.name in needed:
            kept = pruned.node_def.add()
            kept.CopyFrom(node)
            del kept.input[:]
            kept.input.extend(one for one in node.input if not one.startswith("^") or one[1:] in needed)
    pruned.control_ret.clear()
    del pruned.signature.control_output[:]
    return pruned


def _body(
    library: FunctionLibrary, definition: Any, spec: Sequence[tf.TensorSpec]
) -> tuple[Any, dict[str, str], list[Any]]:
    """A function's nodes as a graph to import, the tensor there behind each reference, and the functions it calls.

    Those come under new names: ``pfor`` looks into their graphs, which a definition alone does not have.
    """
    inner = function_pb2.FunctionDefLibrary()
    inner.function.extend(one for one in library.functions([definition.signature.name]) if one is not definition)
    try:
        loaded = function_deserialization.load_function_def_library(inner, wrapper_function=_with_results)
        own = type(definition)()
        own.CopyFrom(definition)
        for node in own.node_def:
            if node.op in loaded:
                node.op = loaded[node.op].name
            for value in node.attr.values():
                for function in (*((value.func,) if value.HasField("func") else ()), *value.list.func):
                    if function.name in loaded:
                        function.name = loaded[function.name].name
        body, names = function_def_to_graph.function_def_to_graph_def(own, [one.shape for one in spec])
    except (ValueError, KeyError, tf.errors.OpError) as error:
        raise NotVectorisedError(_first_line(error)) from error
    body.ClearField("library")
    return body, names, list(loaded.values())


def _with_results(function: Any) -> Any:
    """A loaded function that says how many results it has: ``pfor`` converts so many, and loading leaves it out."""
    graph = function.graph
    results = tuple(tf.TensorSpec(one.shape, one.dtype) for one in graph.outputs)
    kind = function_type.from_structured_signature(
        graph.structured_input_signature, results, graph.function_captures.capture_types
    )
    return concrete_function.ConcreteFunction.from_func_graph(graph, kind, attrs={})


def _call(body: Any, definition: Any, names: dict[str, str], arguments: Sequence[Any]) -> list[Any]:
    """The function's nodes put into the graph that is being traced; its results, in order."""
    inputs = [argument.name for argument in definition.signature.input_arg]
    outputs = [names[definition.ret[output.name]] for output in definition.signature.output_arg]
    results = tf.graph_util.import_graph_def(
        body,
        input_map={f"{name}:0": argument for name, argument in zip(inputs, arguments, strict=True)},
        return_elements=[name if ":" in name else f"{name}:0" for name in outputs],
        name="row",
    )
    return list(results)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
