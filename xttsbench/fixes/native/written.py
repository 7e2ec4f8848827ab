"""A traced function as text: a Python function of TensorFlow's ops that a reader of the original can follow.

Each op of the graph is written as the call, or the operator, that makes it, under the user's line that it comes from;
variables keep the user's names. An array that the function did not get as an argument is written as the name, or the
call, that gives it. What cannot be written so that it is read is refused.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import linecache
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from xttsbench.pipeline.graph.source import whose

_LONGEST: Final = 100
"""Characters of an expression that is written inside another."""
_MOST_LINES: Final = 120
_MOST_VALUES: Final = 16
"""Of an array that is written out."""


def _table(text: str) -> dict[str, str]:
    """Type of an op -> how it is written."""
    return dict(one.split(":") for one in text.split())


_INFIX: Final = _table(
    "AddV2:+ Add:+ Sub:- Mul:* RealDiv:/ FloorDiv:// FloorMod:% Pow:** MatMul:@ BatchMatMulV2:@ Less:< LessEqual:<= "
    "Greater:> GreaterEqual:>= Equal:== NotEqual:!= LogicalAnd:& LogicalOr:|"
)
_UNARY: Final = _table("Neg:- LogicalNot:~")
_CALLS: Final = _table(
    "Abs:abs ComplexAbs:abs Sign:sign Sqrt:sqrt Square:square Exp:exp Sin:sin Cos:cos Tan:tan Tanh:tanh Asin:asin "
    "Acos:acos Atan:atan Atan2:atan2 Sinh:sinh Cosh:cosh Floor:floor Round:round Rank:rank ZerosLike:zeros_like "
    "OnesLike:ones_like LogicalXor:math.logical_xor Log:math.log Log1p:math.log1p Expm1:math.expm1 Rsqrt:math.rsqrt "
    "Ceil:math.ceil IsNan:math.is_nan IsInf:math.is_inf IsFinite:math.is_finite Conj:math.conj ReadFile:io.read_file "
    "Reciprocal:math.reciprocal"
)
_WEAK_LAST: Final = _table("Maximum:maximum Minimum:minimum SelectV2:where")
"""Of these the last operand may be a plain number, which takes the dtype of the others."""
_SIZED: Final = _table("Reshape:reshape Tile:tile ReverseV2:reverse BroadcastTo:broadcast_to")
"""Calls of which all arguments but the first are sizes or axes."""
_REDUCTIONS: Final = _table("Sum:sum Mean:mean Max:max Min:min Prod:prod Any:any All:all")
_PLACES: Final = {"ArgMax": "argmax", "ArgMin": "argmin"}
_SPECTRA: Final = {"RFFT": "rfft", "IRFFT": "irfft"}


class NoTextError(Exception):
    """A traced function that cannot be written so that it is read: why, as a phrase."""


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
    body = writer.body(traced.graph, traced.graph.inputs, parameters, traced.outputs)
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

    def body(
        self,
        graph: Any,
        inputs: Sequence[Any],
        parameters: Sequence[str],
        outputs: Sequence[Any],
        *,
        inner: bool = False,
    ) -> list[str]:
        """The lines of a function's body, up to what it returns; an inner one's results are a list."""
        self._taken |= set(parameters)
        known = dict(zip((one.name for one in inputs), parameters, strict=True))
        return _Body(self, graph, known, inner).lines(outputs)

    def fresh(self, wanted: str) -> str:
        """A variable's name that is not taken."""
        found, number = wanted, 2
        while found in self._taken:
            found, number = f"{wanted}_{number}", number + 1
        self._taken.add(found)
        return found

    def user_name(self, tensor: Any) -> str | None:
        """What the user calls a tensor."""
        return self._called.get(tensor.name)

    def array(self, value: np.ndarray[Any, Any]) -> str | None:
        """What gives an array: a name or a call."""
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
        self._uses: dict[str, int] = {}

    def lines(self, outputs: Sequence[Any]) -> list[str]:
        returned = [_through(one) for one in outputs]
        needed = self._needed(returned)
        for one in returned:
            self._uses[one.name] = self._uses.get(one.name, 0) + 1
        for op in self._graph.get_operations():
            if op.name in needed and op.type not in ("Const", "Placeholder", "Identity") and not _is_known(op):
                self._write(op)
        given = [self._given(one) for one in returned]
        single = len(given) == 1 and not self._inner
        return [*self._lines, f"return {given[0]}" if single else f"return [{', '.join(given)}]"]

    def _needed(self, outputs: Sequence[Any]) -> set[str]:
        """The ops that outputs depend on; how often each tensor is read is noted."""
        waiting, found = [one.op for one in outputs], set()
        while waiting:
            op = waiting.pop()
            if op.name not in found:
                found.add(op.name)
                for one in map(_through, op.inputs):
                    self._uses[one.name] = self._uses.get(one.name, 0) + 1
                    waiting.append(one.op)
        return found

    def _write(self, op: Any) -> None:
        """An op as a variable, or kept as an expression for the one that reads it."""
        text, many = self._expression(op), len(op.outputs) > 1
        names = [self._writer.user_name(one) for one in op.outputs]
        used = sum(self._uses.get(one.name, 0) for one in op.outputs)
        if many:
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

    def _given(self, tensor: Any) -> str:
        """A tensor as it is written by itself."""
        tensor = _through(tensor)
        return self._known[tensor.name] if tensor.name in self._known else self._constant(tensor)

    def _operand(self, tensor: Any, beside: Any = None) -> str:
        """A tensor inside an expression; a single value beside a tensor takes that one's dtype."""
        tensor = _through(tensor)
        if tensor.name in self._known:
            text = self._known[tensor.name]
            return text if _is_closed(text) else f"({text})"
        value = tf.get_static_value(tensor)
        if beside is not None and _through(beside).name in self._known and np.ndim(value) == 0 and value is not None:
            literal = _literal(np.asarray(value))
            if literal is not None:
                return f"({literal})" if literal.startswith("-") else literal
        return self._constant(tensor)

    def _constant(self, tensor: Any) -> str:
        value = tf.get_static_value(tensor)
        if value is None:
            raise NoTextError(f"it uses {tensor.op.type}, which has no text")
        array, dtype = np.asarray(value), f"tf.{tensor.dtype.name}"
        if array.size <= _MOST_VALUES and (literal := _nested(array)) is not None:
            return f"tf.constant({literal}, {dtype})"
        text = self._writer.array(array)
        if text is None:
            shape = list(array.shape)
            raise NoTextError(f"an array of {array.dtype} {shape} that it computes with has no name at module level")
        return f"tf.constant({text}, {dtype})"

    def _argument(self, tensor: Any) -> str:
        """Sizes, axes and the like: plain numbers where they are known."""
        tensor = _through(tensor)
        if tensor.name in self._known:
            return self._given(tensor)
        value = tf.get_static_value(tensor)
        literal = _nested(np.asarray(value)) if value is not None and np.size(value) <= _MOST_VALUES else None
        return literal if literal is not None else self._given(tensor)

    def _expression(self, op: Any) -> str:
        kind, inputs = op.type, list(op.inputs)
        if kind in _INFIX and _plain_product(op):
            first, second = inputs
            return f"{self._operand(first, second)} {_INFIX[kind]} {self._operand(second, first)}"
        if kind in _UNARY:
            return f"{_UNARY[kind]}{self._operand(inputs[0])}"
        if kind in _WEAK_LAST:
            text = [*map(self._given, inputs[:-1]), self._operand(inputs[-1], inputs[-2])]
            return f"tf.{_WEAK_LAST[kind]}({', '.join(text)})"
        if kind in _CALLS:
            return f"tf.{_CALLS[kind]}({', '.join(map(self._given, inputs))})"
        if kind in _SIZED:
            text = [self._given(inputs[0]), *map(self._argument, inputs[1:])]
            return f"tf.{_SIZED[kind]}({', '.join(text)})"
        special = _SPECIAL.get(kind)
        return special(self, op) if special is not None else self._raw(op)

    def _raw(self, op: Any) -> str:
        """Any op at all, by its own name."""
        function = getattr(tf.raw_ops, op.type, None)
        if function is None:
            raise NoTextError(f"it uses the op {op.type}, which has no name in TensorFlow")
        counts = {one.name: _count(op, one) for one in op.op_def.input_arg}
        waiting, given = list(op.inputs), []
        for name in inspect.signature(function).parameters:
            if name in counts:
                count, several = counts[name]
                own, waiting = waiting[:count], waiting[count:]
                text = ", ".join(self._given(one) for one in own)
                given.append(f"{name}=[{text}]" if several else f"{name}={text}")
            elif name != "name":
                given.append(f"{name}={_attribute(op.get_attr(name))}")
        return f"tf.raw_ops.{op.type}({', '.join(given)})"

    # What needs a look at its attributes

    def cast(self, op: Any) -> str:
        return f"tf.cast({self._given(op.inputs[0])}, tf.{op.outputs[0].dtype.name})"

    def reduction(self, op: Any) -> str:
        given, axes = self._given(op.inputs[0]), tf.get_static_value(op.inputs[1])
        rank = op.inputs[0].shape.rank
        if axes is not None and rank is not None and sorted(np.ravel(axes) % max(rank, 1)) == list(range(rank)):
            where = []
        elif axes is not None and np.size(axes) == 1:
            where = [f"axis={int(np.ravel(axes)[0])}"]
        else:
            where = [f"axis={self._argument(op.inputs[1])}"]
        keep = ["keepdims=True"] if op.get_attr("keep_dims") else []
        return f"tf.reduce_{_REDUCTIONS[op.type]}({', '.join([given, *where, *keep])})"

    def place(self, op: Any) -> str:
        given, axis = self._given(op.inputs[0]), self._argument(op.inputs[1])
        return f"tf.{_PLACES[op.type]}({given}, axis={axis}, output_type=tf.{op.outputs[0].dtype.name})"

    def spectrum(self, op: Any) -> str:
        return f"tf.signal.{_SPECTRA[op.type]}({self._given(op.inputs[0])}, {self._argument(op.inputs[1])})"

    def shape(self, op: Any) -> str:
        kind = op.outputs[0].dtype
        return f"tf.shape({self._given(op.inputs[0])}{'' if kind == tf.int32 else f', tf.{kind.name}'})"

    def gather(self, op: Any) -> str:
        axis = tf.get_static_value(op.inputs[2])
        where = "" if axis is not None and int(axis) == 0 else f", axis={self._argument(op.inputs[2])}"
        if op.get_attr("batch_dims"):
            return self._raw(op)
        return f"tf.gather({self._given(op.inputs[0])}, {self._given(op.inputs[1])}{where})"

    def transpose(self, op: Any) -> str:
        given, order = self._given(op.inputs[0]), tf.get_static_value(op.inputs[1])
        if order is not None and list(order) == list(range(len(order)))[::-1]:
            return f"tf.transpose({given})"
        return f"tf.transpose({given}, {self._argument(op.inputs[1])})"

    def expanded(self, op: Any) -> str:
        return f"tf.expand_dims({self._given(op.inputs[0])}, {self._argument(op.inputs[1])})"

    def squeezed(self, op: Any) -> str:
        axes = list(op.get_attr("squeeze_dims"))
        return f"tf.squeeze({self._given(op.inputs[0])}{f', {axes}' if axes else ''})"

    def ranged(self, op: Any) -> str:
        given = [self._argument(one) for one in op.inputs]
        if given[0] == "0" and given[2] == "1":
            given = given[1:2]
        return f"tf.range({', '.join(given)}, dtype=tf.{op.outputs[0].dtype.name})"

    def filled(self, op: Any) -> str:
        return f"tf.fill({self._argument(op.inputs[0])}, {self._given(op.inputs[1])})"

    def concatenated(self, op: Any) -> str:
        *parts, axis = op.inputs
        return f"tf.concat([{', '.join(map(self._given, parts))}], {self._argument(axis)})"

    def packed(self, op: Any) -> str:
        axis, whole = op.get_attr("axis"), op.outputs[0].dtype in (tf.int32, tf.int64)
        # Lengths of which one is known: the list takes the dtype of that one.
        known = [_through(one).name in self._known for one in op.inputs]
        lengths = whole and any(known)
        text = [self._argument(one) if lengths else self._given(one) for one in op.inputs]
        return f"tf.stack([{', '.join(text)}]{f', axis={axis}' if axis else ''})"

    def padded(self, op: Any) -> str:
        given = [self._given(op.inputs[0]), self._argument(op.inputs[1])]
        if op.type == "PadV2":
            given.append(f"constant_values={self._argument(op.inputs[2])}")
        if op.type == "MirrorPad":
            given.append(f'mode="{op.get_attr("mode").decode()}"')
        return f"tf.pad({', '.join(given)})"

    def summed(self, op: Any) -> str:
        if op.get_attr("exclusive") or op.get_attr("reverse"):
            return self._raw(op)
        function = "tf.cumsum" if op.type == "Cumsum" else "tf.math.cumprod"
        return f"{function}({self._given(op.inputs[0])}, axis={self._argument(op.inputs[1])})"

    def ensured(self, op: Any) -> str:
        return f"tf.ensure_shape({self._given(op.inputs[0])}, {_attribute(op.get_attr('shape'))})"

    def cut(self, op: Any) -> str:
        """A subscript: numbers, slices, ``None`` and ``...``."""
        bounds = [_bounds(one) for one in op.inputs[1:]]
        masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
        known = [one for one in bounds if one is not None]
        keys, count = [], max((len(one) for one in known), default=0)
        if len(known) < len(bounds):
            return self._raw(op)
        for number in range(count):
            at = {name: bool(mask >> number & 1) for name, mask in masks.items()}
            begin, end, step = (
                self._argument(one[number]) if isinstance(one[number], tf.Tensor) else str(one[number]) for one in known
            )
            if at["ellipsis"]:
                keys.append("...")
            elif at["new_axis"]:
                keys.append("None")
            elif at["shrink_axis"]:
                keys.append(begin)
            else:
                text = f"{'' if at['begin'] else begin}:{'' if at['end'] else end}"
                keys.append(text if step == "1" else f"{text}:{step}")
        return f"{self._operand(op.inputs[0])}[{', '.join(keys)}]"

    def branches(self, op: Any) -> str:
        """A condition: each branch a function inside this one."""
        names = [self._nested(op, op.get_attr(one).name, one[:4]) for one in ("then_branch", "else_branch")]
        given = ", ".join(self._given(one) for one in op.inputs[1:])
        text = f"tf.cond({self._given(op.inputs[0])}, lambda: {names[0]}({given}), lambda: {names[1]}({given}))"
        return text if len(op.outputs) > 1 else f"{text}[0]"

    def loop(self, op: Any) -> str:
        test, body = (self._nested(op, op.get_attr(one).name, one) for one in ("cond", "body"))
        given = ", ".join(self._given(one) for one in op.inputs)
        shapes = ", ".join(f"tf.TensorShape({_attribute(one)})" for one in op.get_attr("output_shapes"))
        test = f"lambda *x: {test}(*x)[0]"
        return f"tf.while_loop({test}, {body}, [{given}], shape_invariants=[{shapes}])"

    def _nested(self, op: Any, function: str, word: str) -> str:
        graph = self._graph
        definition = graph._get_function(function).cached_definition
        inner = function_def_to_graph.function_def_to_graph(definition, include_library_functions=True)
        name = self._writer.fresh({"then": "where_true", "else": "where_false"}.get(word, word))
        parameters = [self._writer.fresh(self._writer.user_name(one) or "x") for one in op.inputs[-len(inner.inputs) :]]
        body = self._writer.body(inner, inner.inputs, parameters, inner.outputs, inner=True)
        self._lines += ["", f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in body), ""]
        return name


_SPECIAL: Final[dict[str, Callable[[_Body, Any], str]]] = {
    "Cast": _Body.cast,
    **dict.fromkeys(_REDUCTIONS, _Body.reduction),
    **dict.fromkeys(_PLACES, _Body.place),
    **dict.fromkeys(_SPECTRA, _Body.spectrum),
    "Shape": _Body.shape,
    "GatherV2": _Body.gather,
    "Transpose": _Body.transpose,
    "ExpandDims": _Body.expanded,
    "Squeeze": _Body.squeezed,
    "Range": _Body.ranged,
    "Fill": _Body.filled,
    "ConcatV2": _Body.concatenated,
    "Pack": _Body.packed,
    **dict.fromkeys(("Pad", "PadV2", "MirrorPad"), _Body.padded),
    **dict.fromkeys(("Cumsum", "Cumprod"), _Body.summed),
    "EnsureShape": _Body.ensured,
    "StridedSlice": _Body.cut,
    **dict.fromkeys(("If", "StatelessIf"), _Body.branches),
    **dict.fromkeys(("While", "StatelessWhile"), _Body.loop),
}


def _through(tensor: Any) -> Any:
    """What an identity stands for."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _is_known(op: Any) -> bool:
    """Whether an op gives a few values that are known, so that they are written themselves."""
    value = tf.get_static_value(op.outputs[0]) if len(op.outputs) == 1 else None
    return value is not None and np.size(value) <= _MOST_VALUES and _nested(np.asarray(value)) is not None


def _plain_product(op: Any) -> bool:
    """Whether a product of matrices turns neither."""
    if not op.type.startswith(("MatMul", "BatchMatMul")):
        return True
    return not any(
        op.get_attr(name) for name in ("transpose_a", "transpose_b", "adj_x", "adj_y") if name in op.node_def.attr
    )


def _bounds(tensor: Any) -> list[Any] | None:
    """The numbers, or tensors, that a list of bounds is made of."""
    value = tf.get_static_value(tensor)
    if value is not None:
        return [int(one) for one in value]
    packed = _through(tensor).op
    return [_through(one) for one in packed.inputs] if packed.type == "Pack" else None


def _count(op: Any, argument: Any) -> tuple[int, bool]:
    """How many tensors an argument of an op takes, and whether it takes a list."""
    if argument.number_attr:
        return int(op.get_attr(argument.number_attr)), True
    if argument.type_list_attr:
        return len(op.get_attr(argument.type_list_attr)), True
    return 1, False


def _literal(value: np.ndarray[Any, Any]) -> str | None:
    """One value as Python writes it, the shortest that is read as the same; ``None`` where there is none."""
    if value.dtype.kind == "f":
        number = float(str(value[()]))
        return repr(number) if np.isfinite(number) else f'float("{number}")'
    if value.dtype.kind in "iubc":
        return repr(value[()].item())
    if value.dtype.kind in "OS":
        return repr(bytes(value.item()))
    return None


def _nested(value: np.ndarray[Any, Any]) -> str | None:
    if value.ndim == 0:
        return _literal(value)
    parts = [_nested(np.asarray(one)) for one in value]
    return None if None in parts else f"[{', '.join(str(one) for one in parts)}]"


def _attribute(value: Any) -> str:
    if isinstance(value, tf.DType):
        return f"tf.{value.name}"
    if isinstance(value, bytes | str | bool | int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_attribute, value))}]"
    shape = tf.TensorShape(value)
    return repr(None if shape.rank is None else shape.as_list())


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
