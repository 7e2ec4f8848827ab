"""A traced function as text: a Python function of TensorFlow's ops that a reader of the original can follow.

Each op of the graph is written as the call, or the operator, that makes it, under the user's line that it comes from;
variables keep the user's names. An array that the function did not get as an argument is written as the name, or the
call, that gives it. What cannot be written so that it is read is refused.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import linecache
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from xttsbench.fixes.native.written.expressions import (
    MOST_VALUES,
    NoTextError,
    expression,
    literal_of,
    nested,
    only_parts,
    through,
    words,
)
from xttsbench.pipeline.source import whose

_LONGEST: Final = 100  # characters of an expression that is written inside another
_MOST_LINES: Final = 120


def written(
    traced: Any,
    name: str,
    parameters: Sequence[str],
    *,
    says: str,
    called: Mapping[str, str],
    arrays: Iterable[tuple[np.ndarray[Any, Any], str]],
) -> str:
    """The text of a function that makes the ops of a traced one, without indentation, its last line ended.

    Args:
        traced: a ``ConcreteFunction``.
        name: of the function that is written.
        parameters: their names.
        says: its docstring.
        called: names of the user's for tensors, by the tensors' names.
        arrays: values that have a name or are made by a call, each with that text.

    Raises:
        NoTextError: an array has no name, or the text would be too long.
    """
    writer = _Writer(called, list(arrays))
    body = writer.body(traced.graph, parameters)
    if len(body) > _MOST_LINES:
        raise NoTextError(f"as ops it would be {len(body)} lines long, its loops written out")
    lines = [f"def {name}({', '.join(parameters)}):", f'    """{says}"""', *(f"    {line}".rstrip() for line in body)]
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes one function, and those of branches and loops inside it."""

    def __init__(self, called: Mapping[str, str], arrays: list[tuple[np.ndarray[Any, Any], str]]) -> None:
        self._called, self._arrays = called, arrays
        self._taken = {"tf", *dir(builtins), *keyword.kwlist}
        for _, text in arrays:
            self._taken |= set(re.findall(r"[A-Za-z_]\w*", text))

    def body(self, graph: Any, parameters: Sequence[str], *, inner: bool = False) -> list[str]:
        """The lines of a function's body, up to what it returns; an inner one's results are a list."""
        self._taken |= set(parameters)
        known = dict(zip((one.name for one in graph.inputs), parameters, strict=True))
        return _Body(self, graph, known, inner).lines(graph.outputs)

    def fresh(self, wanted: str) -> str:
        """A variable's name that is not taken."""
        found, number = wanted, 2
        while found in self._taken:
            found, number = f"{wanted}_{number}", number + 1
        self._taken.add(found)
        return found

    def user_name(self, tensor: Any) -> str | None:
        """User's name of a tensor; ``None`` without one."""
        return self._called.get(tensor.name)

    def array(self, value: np.ndarray[Any, Any]) -> str | None:
        """Text that makes an array: a name or a call; ``None`` for none."""
        for known, text in self._arrays:
            if known.dtype == value.dtype and known.shape == value.shape and np.array_equal(known, value):
                return text
        return None


class _Body:
    """Writes the body of one function; ``inner`` where it is that of a branch or of a loop."""

    def __init__(self, writer: _Writer, graph: Any, known: dict[str, str], inner: bool) -> None:
        self._writer, self._graph, self._known, self._inner = writer, graph, known, inner
        self._lines: list[str] = []
        self._place: tuple[str, int] | None = None
        self._uses: Counter[str] = Counter()

    def lines(self, outputs: Sequence[Any]) -> list[str]:
        returned = [through(one) for one in outputs]
        needed = _behind(self._graph, returned)
        self._uses.update(one.name for one in returned)
        self._uses.update(one.name for op in needed.values() for one in map(through, op.inputs))
        for op in self._graph.get_operations():
            if op.name in needed and op.type not in ("Const", "Placeholder", "Identity") and not _is_known(op):
                self._write(op)
        given = [self.given(one) for one in returned]
        single = len(given) == 1 and not self._inner
        return [*self._lines, f"return {given[0]}" if single else f"return [{', '.join(given)}]"]

    def _write(self, op: Any) -> None:
        """An op as a variable, or kept as an expression for the one that reads it."""
        if op.type == "Assert":
            said = ", ".join(words(tf.get_static_value(one)) for one in op.inputs[1:])
            self._lines.append(f"tf.debugging.Assert({self.given(op.inputs[0])}, [{said}])")
            return
        if op.type in ("While", "StatelessWhile"):
            self._loop(op)
            return
        text = self._branches(op) if op.type in ("If", "StatelessIf") else expression(self, op)
        names = [self._writer.user_name(one) for one in op.outputs]
        used = sum(self._uses[one.name] for one in op.outputs)
        if only_parts(op):
            self._known[op.outputs[1].name] = self._statement(op, names[1] or _word(op.type), text)
        elif len(op.outputs) > 1:
            variable = self._statement(op, _word(op.type), text)
            for number, one in enumerate(op.outputs):
                self._known[one.name] = f"{variable}[{number}]"
        elif names[0] is None and used == 1 and len(text) <= _LONGEST - 20:
            self._known[op.outputs[0].name] = text
        else:
            self._known[op.outputs[0].name] = self._statement(op, names[0] or _word(op.type), text)

    def _statement(self, op: Any, wanted: str, text: str) -> str:
        place = None if self._inner else _place(op)
        if place is not None and place != self._place:
            self._place = place
            source = " ".join(linecache.getline(*place).split())  # one line, whatever ends lines elsewhere
            self._lines += [f"# {source[:_LONGEST]}"] if source else []
        variable = self._writer.fresh(wanted)
        self._lines.append(f"{variable} = {text}")
        return variable

    def given(self, tensor: Any) -> str:
        """A tensor as it is written by itself."""
        tensor = through(tensor)
        return self._known[tensor.name] if tensor.name in self._known else self._constant(tensor)

    def operand(self, tensor: Any, beside: Any = None) -> str:
        """A tensor inside an expression; a single value beside a tensor takes that one's dtype."""
        tensor = through(tensor)
        if tensor.name in self._known:
            text = self._known[tensor.name]
            return text if _is_closed(text) else f"({text})"
        value = tf.get_static_value(tensor)
        if beside is not None and through(beside).name in self._known and np.ndim(value) == 0 and value is not None:
            literal = literal_of(np.asarray(value))
            if literal is not None:
                return f"({literal})" if literal.startswith("-") else literal
        return self._constant(tensor)

    def _constant(self, tensor: Any) -> str:
        value = tf.get_static_value(tensor)
        if value is None:
            raise NoTextError(f"it uses {tensor.op.type}, which has no text")
        array, dtype = np.asarray(value), f"tf.{tensor.dtype.name}"
        if array.size <= MOST_VALUES and (literal := nested(array)) is not None:
            return f"tf.constant({literal}, {dtype})"
        text = self._writer.array(array)
        if text is None:
            shape = list(array.shape)
            raise NoTextError(f"an array of {array.dtype} {shape} that it computes with has no name at module level")
        return f"tf.constant({text}, {dtype})"

    def is_made(self, tensor: Any) -> bool:
        """Whether an op that is written makes it."""
        return through(tensor).name in self._known

    def argument(self, tensor: Any) -> str:
        """Sizes, axes and the like: plain numbers where they are known."""
        tensor = through(tensor)
        if tensor.name in self._known:
            return self.given(tensor)
        value = tf.get_static_value(tensor)
        literal = nested(np.asarray(value)) if value is not None and np.size(value) <= MOST_VALUES else None
        return literal if literal is not None else self.given(tensor)

    def _branches(self, op: Any) -> str:
        """A condition: each branch a function inside this one."""
        names = [self._inner_function(op, op.get_attr(one).name, one[:4]) for one in ("then_branch", "else_branch")]
        given = ", ".join(self.given(one) for one in op.inputs[1:])
        text = f"tf.cond({self.given(op.inputs[0])}, lambda: {names[0]}({given}), lambda: {names[1]}({given}))"
        return text if len(op.outputs) > 1 else f"{text}[0]"

    def _loop(self, op: Any) -> None:
        """A loop: its test and body are functions inside this one, and read from it what the loop leaves as it is."""
        test, body = (self._graph_of(op.get_attr(one).name) for one in ("cond", "body"))
        results = [through(one) for one in body.outputs]
        fixed = {number for number, one in enumerate(results) if one.name == body.inputs[number].name}
        needed = {number for number, one in enumerate(op.outputs) if self._uses[one.name]}
        needed |= _inputs_of(test, test.outputs)
        while not needed >= (more := _inputs_of(body, [results[number] for number in needed])):
            needed |= more
        kept, known = sorted(needed - fixed), {}
        for number in needed & fixed:
            text = self.given(op.inputs[number])
            if not text.isidentifier() and through(op.inputs[number]).op.type != "Const":
                text = self._known[through(op.inputs[number]).name] = self._statement(op, "given", text)
            known[number] = text
        start = ", ".join(self.given(op.inputs[number]) for number in kept)
        names = []
        for graph, outputs, wanted in ((test, test.outputs, "goes_on"), (body, [results[n] for n in kept], "once")):
            known |= {number: self._writer.fresh(self._writer.user_name(op.outputs[number]) or "x") for number in kept}
            own = {graph.inputs[number].name: text for number, text in known.items()}
            lines = _Body(self._writer, graph, own, True).lines(outputs)
            if graph is test:
                lines[-1] = f"return {lines[-1].removeprefix('return [').removesuffix(']')}"
            names.append(self._writer.fresh(wanted))
            head = f"def {names[-1]}({', '.join(known[number] for number in kept)}):"
            self._lines += ["", head, *(f"    {line}" for line in lines), ""]
        shapes = [op.outputs[number].shape for number in kept]
        sizes = ""
        if any(op.inputs[number].shape != shape for number, shape in zip(kept, shapes, strict=True)):
            sizes = f", shape_invariants=[{', '.join(f'tf.TensorShape({one.as_list()})' for one in shapes)}]"
        variable = self._statement(op, "ended", f"tf.while_loop({names[0]}, {names[1]}, [{start}]{sizes})")
        self._known |= {op.outputs[number].name: f"{variable}[{place}]" for place, number in enumerate(kept)}
        self._known |= {op.outputs[number].name: known[number] for number in needed & fixed}

    def _graph_of(self, function: str) -> Any:
        definition = self._graph._get_function(function).cached_definition
        return function_def_to_graph.function_def_to_graph(definition, include_library_functions=True)

    def _inner_function(self, op: Any, function: str, word: str) -> str:
        inner = self._graph_of(function)
        name = self._writer.fresh({"then": "where_true", "else": "where_false"}.get(word, word))
        parameters = [self._writer.fresh(self._writer.user_name(one) or "x") for one in op.inputs[1:]]
        body = self._writer.body(inner, parameters, inner=True)
        self._lines += ["", f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in body), ""]
        return name


def _behind(graph: Any, tensors: Sequence[Any]) -> dict[str, Any]:
    """The ops of a function, by name, that some tensors, and its checks, depend on."""
    checks = [one for one in graph.get_operations() if one.type == "Assert"]
    waiting, found = [*checks, *(through(one).op for one in tensors)], {}
    while waiting:
        op = waiting.pop()
        if op.name not in found:
            found[op.name] = op
            waiting += [through(one).op for one in op.inputs]
    return found


def _inputs_of(graph: Any, tensors: Sequence[Any]) -> set[int]:
    """The numbers of a function's inputs that some tensors, and its checks, depend on."""
    found = _behind(graph, tensors)
    return {number for number, one in enumerate(graph.inputs) if one.op.name in found}


def _is_known(op: Any) -> bool:
    """Whether an op gives a few values that are known, so that they are written themselves."""
    value = tf.get_static_value(op.outputs[0]) if len(op.outputs) == 1 else None
    return value is not None and np.size(value) <= MOST_VALUES and nested(np.asarray(value)) is not None


def _word(kind: str) -> str:
    """A variable's name for what an op gives."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower().removesuffix("_v2").removesuffix("v2")


def _is_closed(text: str) -> bool:
    """Whether an expression is a name, or one call or subscript, so that it needs no parentheses."""
    return isinstance(ast.parse(text, mode="eval").body, ast.Name | ast.Call | ast.Subscript | ast.Attribute)


def _place(op: Any) -> tuple[str, int] | None:
    """The user's line that made an op, the innermost."""
    for frame in reversed(op.traceback or ()):
        file, line = frame[0], frame[1]
        if whose(file) == "user":
            return file, line
    return None
