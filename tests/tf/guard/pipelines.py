"""Pipelines of ``tf.data`` with something planted in one op of theirs, and what each fix does to what they yield.

What a fix does is known from how the pipeline was put together, not from the guard: :meth:`Plan.truth`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import planted
import planted_classes
import tensorflow as tf
from hypothesis import strategies as st

from xttsbench.pipeline.python.state import called
from xttsbench.pipeline.source import lookup

ROWS = 24
Truth = Literal["changes", "random", "harmless"]
"""``changes``: other data, at the latest in some later epoch; ``random``: the same distribution, or nothing that can be
held against the fix for sure, so that either answer is right; ``harmless``: the same data."""


def in_python(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A map that calls a Python function on an ``int64``."""
    return lambda x: tf.ensure_shape(tf.numpy_function(function, [x], tf.int64), [])


def in_py_function(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same with eager tensors; the function is wrapped as AutoGraph and libraries do."""
    return lambda x: tf.ensure_shape(tf.py_function(lambda y: function(y.numpy()), [x], tf.int64), [])


def in_generator(function: Callable[[Any], Any], loop: str = "range") -> tf.data.Dataset:
    """A generator that passes its numbers through the function, in one of the loops that people write."""
    rows = planted.LOOPS[loop](function, ROWS)
    return tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))


def _lines(folder: Path) -> tf.data.Dataset:
    files = [str(folder / f"{number}.txt") for number in range(4)]
    for number, file in enumerate(files):
        Path(file).write_text("".join(f"{6 * number + row}\n" for row in range(ROWS // 4)))
    read = tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TextLineDataset, cycle_length=2)
    return read.map(lambda line: tf.strings.to_number(line, tf.int64))


def _records(folder: Path) -> tf.data.Dataset:
    file = str(folder / "rows.tfrecord")
    with tf.io.TFRecordWriter(file) as writer:
        for row in range(ROWS):
            writer.write(str(row).encode())
    read = tf.data.Dataset.from_tensor_slices([file]).flat_map(tf.data.TFRecordDataset)
    return read.map(lambda line: tf.strings.to_number(line, tf.int64))


SOURCES: dict[str, Callable[[Path], tf.data.Dataset]] = {
    "range": lambda _: tf.data.Dataset.range(ROWS),
    "slices": lambda _: tf.data.Dataset.from_tensor_slices(tf.range(ROWS, dtype=tf.int64)),
    "text": _lines,
    "tfrecord": _records,
    **{f"generator {loop}": lambda _, loop=loop: in_generator(planted.pure(), loop) for loop in planted.LOOPS},
}


PLAIN = ("range", "slices", "text", "tfrecord")
"""The others are generators."""


def _scan(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.scan(tf.constant(0, tf.int64), lambda total, x: (total + x, total + x))


OPS: dict[str, Callable[[tf.data.Dataset], tf.data.Dataset]] = {
    "map": lambda d: d.map(lambda x: x * 5 + 2),
    "python": lambda d: d.map(in_python(planted.pure())),
    "parallel map": lambda d: d.map(lambda x: x + 7, num_parallel_calls=2, deterministic=True),
    "filter": lambda d: d.filter(lambda x: x % 7 != 0),
    "shuffle": lambda d: d.shuffle(16),
    "shuffle once": lambda d: d.shuffle(16, seed=3, reshuffle_each_iteration=False),
    "shuffle seeded": lambda d: d.shuffle(16, seed=3),
    "flat_map": lambda d: d.flat_map(lambda x: tf.data.Dataset.from_tensors(x).repeat(2)),
    "interleave": lambda d: d.interleave(
        lambda x: tf.data.Dataset.range(3).map(lambda y: x * 10 + y), cycle_length=3, block_length=2
    ),
    "repeat": lambda d: d.repeat(2),
    "take": lambda d: d.take(20),
    "skip": lambda d: d.skip(3),
    "cache": lambda d: d.cache(),
    "prefetch": lambda d: d.prefetch(2),
    "zip": lambda d: tf.data.Dataset.zip((d, tf.data.Dataset.range(10**6))).map(lambda x, y: x * 100 + y),
    "enumerate": lambda d: d.enumerate().map(lambda number, x: x + number),
    "scan": _scan,
    "rebatch": lambda d: d.batch(4).unbatch(),
    "concatenate": lambda d: d.concatenate(tf.data.Dataset.range(5)),
    "stateless noise": lambda d: d.map(lambda x: x * 1000 + tf.random.stateless_uniform([], [1, x], 0, 1000, tf.int64)),
}
SHUFFLES = ("shuffle", "shuffle seeded")
"""Come in another order in each epoch."""
ENDS: dict[str, Callable[[tf.data.Dataset], tf.data.Dataset]] = {
    "": lambda d: d,
    "batch": lambda d: d.batch(5),
    "whole batches": lambda d: d.batch(6, drop_remainder=True),
    "padded_batch": lambda d: d.map(lambda x: tf.fill([x % 3 + 1], x)).padded_batch(4, padded_shapes=[None]),
    "endless": lambda d: d.batch(6).repeat(),
}


def _tf_counter(dataset: tf.data.Dataset) -> tf.data.Dataset:
    calls = tf.Variable(0, dtype=tf.int64)
    return dataset.map(lambda x: x + 1000 * calls.assign_add(1))


def _tf_noise(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.map(lambda x: x * 1000 + tf.random.uniform([], 0, 1000, tf.int64))


def _tf_generator(dataset: tf.data.Dataset) -> tf.data.Dataset:
    drawing = tf.random.Generator.from_seed(5)
    return dataset.map(lambda x: x * 1000 + drawing.uniform([], 0, 1000, tf.int64))


IN_TF: dict[str, tuple[str, Callable[[tf.data.Dataset], tf.data.Dataset]]] = {
    "tf counter": ("state", _tf_counter),
    "tf noise": ("random", _tf_noise),
    "tf generator": ("random", _tf_generator),
}
KINDS: dict[str, tuple[Callable[[], Any], ...]] = {
    "harmless": (*planted.HARMLESS, *planted_classes.HARMLESS),
    "state": (*planted.STATE, *planted_classes.STATE),
    "epoch": (*planted.EPOCH, *planted_classes.EPOCH),
    "random": (*planted.RANDOM, *planted_classes.RANDOM),
    "memo": planted.MEMO,
}
MAKERS = {maker.__name__: (kind, maker) for kind, makers in KINDS.items() for maker in makers}


@dataclass(frozen=True)
class Plan:
    """A pipeline: a source, ops, what is planted after the first ``at`` of them, and how it ends."""

    source: str
    ops: tuple[str, ...]
    at: int
    plant: str
    where: Literal["numpy_function", "py_function", "generator", "interleave", "filter"]
    end: str

    def build(self, folder: Path) -> tf.data.Dataset:
        """The dataset, with state of its own."""
        dataset = self._generated() if self.generates else SOURCES[self.source](folder)
        for number, op in enumerate((*self.ops, None)):
            if number == self.at and not self.generates:
                dataset = self._planted(dataset)
            if op is not None:
                dataset = OPS[op](dataset)
        return ENDS[self.end](dataset)

    @property
    def generates(self) -> bool:
        """Whether the plant is the source."""
        return self.where == "generator" and self.plant in MAKERS

    @property
    def draws_order(self) -> bool:
        """Whether its source is a generator whose order is drawn anew in each epoch."""
        return self.source == "generator drawn"

    def _generated(self) -> tf.data.Dataset:
        loop = self.source.partition("generator ")[2] or "range"
        return in_generator(MAKERS[self.plant][1](), loop)

    @property
    def kind(self) -> str:
        """Of the plant."""
        return IN_TF[self.plant][0] if self.plant in IN_TF else MAKERS[self.plant][0]

    def _planted(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if self.plant in IN_TF:
            return IN_TF[self.plant][1](dataset)
        made = MAKERS[self.plant][1]()
        called = (in_py_function if self.where == "py_function" else in_python)(made)
        if self.where == "interleave":
            return dataset.interleave(lambda x: tf.data.Dataset.from_tensors(x).map(called), cycle_length=2)
        if self.where == "filter":
            return dataset.filter(lambda x: called(x) % 5 != 0)
        return dataset.map(called)

    def truth(self, fix: str, graph: Any, after: Any = None) -> Truth:
        """What a fix does to the data, for all parts of the name together: the worst of them.

        ``after`` is the graph with the fix, where the fix itself chooses what it touches.
        """
        parts = [part.strip() for part in fix.split("+")]
        found = [self._as_ops(after) if part == "native" else self._truth(part, graph) for part in parts]
        return next(one for one in ("changes", "random", "harmless") if one in found)

    def _as_ops(self, after: Any) -> Truth:
        """What it is that a Python function became ops: what it reads or draws is that of its trace from then on."""
        if self.plant in MAKERS and not any(_is_plant(node, after, self) for node in after.node):
            return _of(self.kind, True, state="changes", epoch="changes", random="changes", memo="changes")
        # Left alone; but the calls that are recorded before the others are traced count in what keeps state.
        return "random" if self.kind in ("random", "state", "memo", "epoch") else "harmless"

    def _truth(self, fix: str, graph: Any) -> Truth:
        kind, name = self.kind, re.split("[:@]", fix)[0]
        own = self.kind if self.generates else "harmless"
        if self.draws_order and name == "open-generator" and own == "harmless":
            return "random"  # another copy of the random numbers, or as many of them at another time
        python = self.plant in MAKERS
        mapped = not python or self.where in ("numpy_function", "py_function")
        if kind == "epoch" and name not in ("cache", "processes", "thread-pool"):
            return "random"  # whoever assigns from outside is overtaken by what runs ahead, if he does it within a pass
        if name == "open-generator" and self.generates:  # calls of the body of its loop overtake one another
            return _of(kind, True, state="changes", random="random", memo="random")
        if name in ("prefetch", "buffer", "thread-pool", "open-generator"):
            return "random" if kind == "random" else "harmless"  # the order of all calls stays
        if name == "parallel-map":  # calls of one map overtake one another; those in an interleave do not
            return _of(kind, mapped, state="changes", epoch="random", random="random", memo="random")
        if name == "parallel-interleave":
            return _of(
                kind,
                python and self.where == "interleave",
                state="changes",
                epoch="random",
                random="random",
                memo="random",
            )
        if name == "processes":  # each process has a copy; a generator stays where it was
            moved = python and self.where != "generator"
            return _of(kind, moved, state="changes", epoch="changes", random="random", memo="changes")
        if name == "cache":
            return self._cached(fix.partition("@")[2], graph)
        # Fewer calls, or calls for whole batches, which is refused for Python unless it is per row.
        return _of(kind, mapped, state="random", epoch="random", random="random", memo="random")

    def _cached(self, op: str, graph: Any) -> Truth:
        """A cache repeats the first pass of all that feeds it, but for what another cache repeats already.

        Shuffles and repeats before a map come after it, so that it repeats none of them.
        """
        above = _above(op, graph) - _passed(op, graph)
        begun = {node.name for node in graph.node if node.name in above}
        if any(
            node.op.startswith("ShuffleDatasetV3") and node.attr["reshuffle_each_iteration"].b
            for node in graph.node
            if node.name in begun
        ):
            return "changes"
        opened = [node for node in graph.node if node.name in begun and "GeneratorDataset" in _ops_of(node, graph)]
        if self.draws_order and opened:
            return "changes"
        if not any(_is_plant(node, graph, self) for node in graph.node if node.name in begun):
            return "harmless"
        return _of(self.kind, True, state="changes", epoch="changes", random="changes", memo="random")


def _of(kind: str, touched: bool, **answers: Truth) -> Truth:
    return answers.get(kind, "harmless") if touched else "harmless"


def _above(op: str, graph: Any) -> set[str]:
    """Names of all nodes that feed an op, as far as caches that are read to their end.

    A take behind a cache of no more elements stops without asking for the end, so that the cache never is complete.
    """
    by_name = {node.name: node for node in graph.node}
    found, waiting = set(), [(op, False)]
    while waiting:
        name, stopped = waiting.pop()
        if name in found or (by_name[name].op == "CacheDatasetV2" and name != op and not stopped):
            continue
        found.add(name)
        stopped |= by_name[name].op == "TakeDataset"
        waiting.extend((text.split(":")[0].lstrip("^"), stopped) for text in by_name[name].input)
    return found


def _passed(op: str, graph: Any) -> set[str]:
    """Names of the shuffles and repeats with nothing but maps and prefetches between them and a map."""
    by_name = {node.name: node for node in graph.node}
    found, here = set[str](), by_name[op]
    while re.match("(Parallel)?Map|Prefetch|Shuffle|Repeat", here.op) and "Map" in by_name[op].op:
        if here.op.startswith(("Shuffle", "Repeat")):
            found.add(here.name)
        here = by_name[here.input[0].split(":")[0]]
    return found


def _ops_of(node: Any, graph: Any) -> set[str]:
    return {one.op for one in _run_by(node, graph)}


def _run_by(node: Any, graph: Any) -> list[Any]:
    """All ops of the functions that a node runs."""
    functions = {function.signature.name: function for function in graph.library.function}
    waiting = [value.func.name for value in node.attr.values() if value.HasField("func")]
    seen, ops = set(), list[Any]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        for one in functions[name].node_def:
            ops.append(one)
            waiting.append(one.op)
            waiting.extend(value.func.name for value in one.attr.values() if value.HasField("func"))
    return ops


def _is_plant(node: Any, graph: Any, plan: Plan) -> bool:
    """Whether a node runs the planted function: the only one of its kind that is not one of ours."""
    ops = _run_by(node, graph)
    if any(one.op == "GeneratorDataset" for one in ops):  # TensorFlow's own Python functions among it
        return plan.generates
    if plan.plant in IN_TF:
        wanted = {"tf counter": "AssignAdd", "tf noise": "RandomUniformInt", "tf generator": "StatefulUniformInt"}
        drawn = [one.op for one in ops if not one.op.startswith("Stateless")]  # noise by index is no plant
        return any(wanted[plan.plant] in op or "RngReadAndSkip" in op for op in drawn)
    if plan.generates:
        return False
    wanted_op = "EagerPyFunc" if plan.where == "py_function" else "PyFunc"
    tokens = [one.attr["token"].s.decode() for one in ops if one.op == wanted_op]
    for token in tokens:
        found = lookup(token)
        if found is None or found.kind == "generator":
            continue
        function = called(found.called)
        if "pure." not in getattr(function, "__qualname__", ""):  # as wrappers have it, too
            return True
    return False


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Pipelines, about one in five of them without a fault."""
    ops = tuple(draw(st.lists(st.sampled_from(sorted(OPS)), min_size=0, max_size=4)))
    kind = draw(st.sampled_from(("harmless", "state", "state", "epoch", "random", "memo", "tf")))
    plant = draw(st.sampled_from(sorted(IN_TF) if kind == "tf" else [maker.__name__ for maker in KINDS[kind]]))
    return Plan(
        source=draw(st.sampled_from(PLAIN) | st.sampled_from(sorted(SOURCES.keys() - set(PLAIN)))),
        ops=ops,
        at=draw(st.integers(0, len(ops))),
        plant=plant,
        where=draw(
            st.sampled_from(
                (
                    "numpy_function",
                    "numpy_function",
                    "numpy_function",
                    "py_function",
                    "generator",
                    "interleave",
                    "filter",
                )
            )
        ),
        end=draw(st.sampled_from(sorted(ENDS))),
    )
