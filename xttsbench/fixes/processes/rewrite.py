"""A dataset's graph with other Python functions in it: each hands its calls to a pool of processes.

The new functions are registered under tokens of their own and named in a copy of the graph. Exchanging the entries of
the original's tokens would need no copy, but it would move the original dataset into the pool as well, beside which
the new one is compared in the same process.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import psutil
import tensorflow as tf
from tensorflow.python.ops import script_ops

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.edit import from_graph, graph_of, named
from xttsbench.fixes.graph.hazards import STATELESS, Reader
from xttsbench.fixes.open_generator.rewrite import Body
from xttsbench.fixes.pool import work
from xttsbench.fixes.pool.packing import objection, packed, without_tensorflow
from xttsbench.fixes.pool.workers import WorkerPool
from xttsbench.fixes.processes import gaining
from xttsbench.pipeline.source import PYTHON_OPS, Registered, lookup
from xttsbench.records.fix import Fix, FixSet
from xttsbench.records.pipeline import Pipeline

_HELD: Final = "_xttsbench_pooled"
"""Attribute of the dataset that keeps the registered functions, and through them the pool."""
_NOT_ARRAYS: Final = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)


def in_processes(dataset: Any, count: int) -> Any:
    """A dataset whose Python functions (``numpy_function``, ``py_function``) run in ``count`` processes.

    The given dataset stays as it was: the new one has a graph of its own that names other functions. Generators stay
    in this process. The processes are ready when this returns, and end with the new dataset or with this process. A
    sequential ``map`` waits for each call, so make it parallel as well.

    A process loads TensorFlow where a function takes tensors, refers to it, or is written inside a function that
    AutoGraph converts; that is seconds at the start and some hundred megabytes each, and no GPU is used there.

    A call may come to any of the processes. What a function keeps between calls (a counter, a cache) is therefore kept
    in each process for itself, starting from its value now, and random numbers are others than in one process.

    Raises:
        InvalidInputError: no function to move; one that cannot be copied into another process, with its name, file,
            line and the object that cannot; one that cannot be loaded there.
    """
    graph = graph_of(dataset, f"processes:{count}")
    functions = _functions(graph, count)
    pool = _pool(list(functions.values()), count)
    entries: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    for number, (token, registered) in enumerate(functions.items()):
        user, eager = without_tensorflow(registered.called), isinstance(registered.entry, script_ops.EagerFunc)
        entry: Any = _in_pool(user, pool, number) if isinstance(user, Body) else _Call(pool, number, user, eager)
        if eager:
            entry = script_ops.EagerFunc(entry, registered.entry._out_dtypes, False)
        renamed[token] = script_ops._py_funcs.insert(entry)
        entries[renamed[token]] = entry
    for node in _python_nodes(graph):
        token = node.attr["token"].s.decode()
        node.attr["token"].s = renamed.get(token, token).encode()
    result = from_graph(graph, dataset.element_spec, source=dataset)
    result.__dict__[_HELD] = entries
    for input_dataset in result._inputs():  # options may be taken off again
        input_dataset.__dict__[_HELD] = entries
    return result


def why_immovable(dataset: Any, pipeline: Pipeline) -> str | None:
    """Why Python functions that would gain by it cannot run in another process, with function, file and line.

    One process is started to see whether they can be copied into it, and loaded there; ``None`` where they can.
    """
    functions = gaining(pipeline)
    opened = FixSet.of(["open-generator"] * any(one.kind == "generator" for one in functions))
    try:
        if functions:
            in_processes(apply(dataset, opened) if opened else dataset, 1)
    except InvalidInputError as error:
        return str(error).rstrip(".")
    return None


class _Call:
    """Stands in the registry for a function of arrays, or of tensors, and calls it in the pool with arrays."""

    def __init__(self, pool: WorkerPool, number: int, user: Any, eager: bool) -> None:
        self._pool, self._number, self._eager = pool, number, eager
        self.__wrapped__ = user  # for those who look for the user's function behind a token

    def __call__(self, *given: Any) -> Any:
        return self._pool.call(self._number, tuple(one.numpy() for one in given) if self._eager else given)


def _in_pool(body: Body, pool: WorkerPool, number: int) -> Body:
    """The body of an opened generator that makes its elements in the pool; the table of items stays here."""
    moved, known = copy.copy(body), body.cut.known
    moved.made = lambda values: pool.call(number, ({name: one for name, one in values.items() if name not in known},))
    return moved


def hazards(reader: Reader, _fix: Fix, every: FixSet) -> Iterator[str]:
    """State that Python functions keep from call to call, or read while other code changes it."""
    opens = any(one.kind == "open-generator" for one in every)  # then its body runs elsewhere, and its head here
    for node in reader.nodes:
        functions = list(reader.python(node, ("function",)))
        yield from (
            f"each process would have state of its own: {one.state}; {STATELESS}" for one in functions if one.state
        )
        for one in (*functions, *(reader.python(node, ("generator",)) if opens else ())):
            if one.reads is not None:
                yield f"each process would have a copy of its own: {one.reads}; {STATELESS}"


def _functions(graph: Any, count: int) -> dict[str, Registered]:
    """The functions that can go elsewhere, by token."""
    fix = f"The fix 'processes:{count}' does not apply"
    found: dict[str, Registered] = {}
    for node in _python_nodes(graph):
        token = node.attr["token"].s.decode()
        registered = lookup(token)
        if registered is None or registered.kind == "generator" or isinstance(registered.called, _Call):
            continue
        if any(kind in _NOT_ARRAYS for key in ("Tin", "Tout") for kind in node.attr[key].list.type):
            raise InvalidInputError(
                f"{fix}: the Python function {named(registered)} takes or returns a resource or variant tensor, which "
                "exists in one process only. Give it plain tensors."
            )
        found[token] = registered
    if not found:
        raise InvalidInputError(f"{fix}: the dataset has no Python function in this process other than generators.")
    return found


def _pool(functions: list[Registered], count: int) -> WorkerPool:
    """The processes, ready."""
    users = [without_tensorflow(registered.called) for registered in functions]
    eager = [one.kind == "py_function" for one in functions]
    cuts = [user.cut if isinstance(user, Body) else None for user in users]
    users = [work.ElementOf(cut.body, cut.known) if cut else user for cut, user in zip(cuts, users, strict=True)]
    try:
        pickled = packed(list(zip(users, eager, strict=True)))
    except Exception as error:
        for registered, user in zip(functions, users, strict=True):
            if (reason := objection(user)) is not None:
                raise InvalidInputError(
                    f"the Python function {named(registered)} cannot run in another process: {reason}. Make it "
                    "inside the function, on the first call, or leave processes:<n> out."
                ) from error
        raise InvalidInputError(f"The Python functions cannot be copied into another process: {error}.") from error
    available = psutil.virtual_memory().available
    if len(pickled) * count > available:
        raise InvalidInputError(
            f"The Python functions with the data that they hold take {len(pickled)} bytes in each of {count} "
            f"processes, and {available} bytes of memory are free. Map the data from a file, or take fewer processes."
        )
    names = [f"the Python function {named(registered)}" for registered in functions]
    try:
        return WorkerPool(pickled, names, count)
    except XttsbenchError as error:
        raise InvalidInputError(f"{', '.join(names)} cannot run in other processes: {error}") from error


def _python_nodes(graph: Any) -> Iterator[Any]:
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        yield from (node for node in nodes if node.op in PYTHON_OPS)
