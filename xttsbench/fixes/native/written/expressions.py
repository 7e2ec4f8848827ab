"""Text of TensorFlow's ops: the operator, or the call of the public function, that makes each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import tensorflow as tf

MOST_VALUES: Final = 16
"""Most values of an array that is written out."""


def _table(text: str) -> dict[str, str]:
    """Type of an op -> how it is written."""
    return dict(one.split(":") for one in text.split())


_INFIX: Final = _table(
    "AddV2:+ Add:+ Sub:- Mul:* RealDiv:/ FloorDiv:// FloorMod:% Pow:** MatMul:@ BatchMatMulV2:@ Less:< LessEqual:<= "
    "Greater:> GreaterEqual:>= Equal:== NotEqual:!= LogicalAnd:& LogicalOr:|"
)
_CALLS: Final = _table(
    "Abs:abs ComplexAbs:abs Sign:sign Sqrt:sqrt Square:square Exp:exp Sin:sin Cos:cos Tan:tan Tanh:tanh Asin:asin "
    "Acos:acos Atan:atan Atan2:atan2 Sinh:sinh Cosh:cosh Floor:floor Round:round Rank:rank ZerosLike:zeros_like "
    "OnesLike:ones_like LogicalXor:math.logical_xor Log:math.log Log1p:math.log1p Expm1:math.expm1 Rsqrt:math.rsqrt "
    "Ceil:math.ceil IsNan:math.is_nan IsInf:math.is_inf IsFinite:math.is_finite Conj:math.conj ReadFile:io.read_file "
    "Reciprocal:math.reciprocal DecodeWav:audio.decode_wav Where:where"
)
_WEAK_LAST: Final = _table("Maximum:maximum Minimum:minimum SelectV2:where")
"""Ops whose last operand may be a plain number, which takes the dtype of the others."""
_SIZED: Final = _table(
    "Reshape:reshape Tile:tile ReverseV2:reverse BroadcastTo:broadcast_to ExpandDims:expand_dims Pad:pad "
    "RFFT:signal.rfft IRFFT:signal.irfft"
)
"""Calls of which the second argument is sizes or axes."""
_REDUCTIONS: Final = _table("Sum:sum Mean:mean Max:max Min:min Prod:prod Any:any All:all")
_WRITTEN: Final = {
    "Neg": "-{operand 0}",
    "LogicalNot": "~{operand 0}",
    **{kind: f"tf.{name}({{given 0}}, {{argument 1}})" for kind, name in _SIZED.items()},
    "Cast": "tf.cast({given 0}, tf.{dtype})",
    "ArgMax": "tf.argmax({given 0}, axis={argument 1}, output_type=tf.{dtype})",
    "ArgMin": "tf.argmin({given 0}, axis={argument 1}, output_type=tf.{dtype})",
    "Fill": "tf.fill({argument 0}, {given 1})",
    "PadV2": "tf.pad({given 0}, {argument 1}, constant_values={argument 2})",
    "MirrorPad": "tf.pad({given 0}, {argument 1}, mode={mode})",
    "EnsureShape": "tf.ensure_shape({given 0}, {shape})",
    "StaticRegexFullMatch": "tf.strings.regex_full_match({given 0}, {pattern})",
    "StaticRegexReplace": "tf.strings.regex_replace({given 0}, {pattern}, {rewrite}{?replace_global=True})",
    "StringLower": "tf.strings.lower({given 0}{?encoding=})",
    "StringUpper": "tf.strings.upper({given 0}{?encoding=})",
    "StringLength": "tf.strings.length({given 0}{?unit=BYTE})",
    "Substr": "tf.strings.substr({given 0}, {argument 1}, {argument 2}{?unit=BYTE})",
    "DecodeRaw": "tf.io.decode_raw({given 0}, tf.{dtype}{?little_endian=True})",
    "Cumsum": "tf.cumsum({given 0}, axis={argument 1}{?exclusive=False}{?reverse=False})",
    "Cumprod": "tf.math.cumprod({given 0}, axis={argument 1}{?exclusive=False}{?reverse=False})",
    "StringToNumber": "tf.strings.to_number({given 0}, tf.{dtype})",
}
"""Others: names are inputs as a method of :class:`Body` writes them, the dtype of the result, and attributes; those
with a question mark are written where they are not the usual ones."""


class NoTextError(Exception):
    """A traced function that cannot be written so that it is read: why, as a phrase."""


class Body(Protocol):
    """The function that is written, which knows what its tensors are called."""

    def given(self, tensor: Any) -> str:
        """A tensor as it is written by itself."""

    def operand(self, tensor: Any, beside: Any = None) -> str:
        """A tensor inside an expression; a single value beside a tensor takes that one's dtype."""

    def argument(self, tensor: Any) -> str:
        """Sizes, axes and the like: plain numbers where they are known."""

    def is_made(self, tensor: Any) -> bool:
        """Whether an op that is written makes it."""


def expression(body: Body, op: Any) -> str:
    """Expression that makes an op.

    Raises:
        NoTextError: it has none.
    """
    kind, inputs = op.type, list(op.inputs)
    if kind in _INFIX and _plain_product(op):
        first, second = inputs
        return f"{body.operand(first, second)} {_INFIX[kind]} {body.operand(second, first)}"
    if kind in _WEAK_LAST:
        text = [*map(body.given, inputs[:-1]), body.operand(inputs[-1], inputs[-2])]
        return f"tf.{_WEAK_LAST[kind]}({', '.join(text)})"
    if kind in _CALLS:
        return f"tf.{_CALLS[kind]}({', '.join(map(body.given, inputs))})"
    if kind in _WRITTEN:
        return _WRITTEN[kind].format_map(_Parts(body, op))
    special = _SPECIAL.get(kind)
    return special(body, op) if special is not None else _raw(body, op)


class _Parts:
    """Values of the names in a text of :data:`_WRITTEN`."""

    def __init__(self, body: Body, op: Any) -> None:
        self._body, self._op = body, op

    def __getitem__(self, name: str) -> str:
        method, _, number = name.partition(" ")
        if number:
            return str(getattr(self._body, method)(self._op.inputs[int(number)]))
        if name == "dtype":
            return str(self._op.outputs[0].dtype.name)
        attribute, _, usual = name.removeprefix("?").partition("=")
        value = self._op.get_attr(attribute)
        text = words(value) if isinstance(value, bytes) else _attribute(value)
        if not name.startswith("?"):
            return text
        return "" if text in (usual, repr(usual)) else f", {attribute}={text}"


def _raw(body: Body, op: Any) -> str:
    """Any op at all, by its own name."""
    function = getattr(tf.raw_ops, op.type, None)
    if function is None:
        raise NoTextError(f"it uses the op {op.type}, which has no name in TensorFlow")
    waiting, given = list(op.inputs), []
    inputs: dict[str, str] = {}
    for one in op.op_def.input_arg:
        count, several = _count(op, one)
        own, waiting = waiting[:count], waiting[count:]
        text = ", ".join(body.given(tensor) for tensor in own)
        inputs[one.name] = f"[{text}]" if several else text
    names = [name for name in inspect.signature(function).parameters if name != "name"]
    renamed = [name for name in inputs if name not in names]  # Python's name of an argument may be another
    for name in names:
        known = name if name in inputs else None if name in op.node_def.attr else renamed.pop(0)
        given.append(f"{name}={inputs[known] if known is not None else _attribute(op.get_attr(name))}")
    return f"tf.raw_ops.{op.type}({', '.join(given)})"


def _reduction(body: Body, op: Any) -> str:
    given, axes = body.given(op.inputs[0]), tf.get_static_value(op.inputs[1])
    rank = op.inputs[0].shape.rank
    if axes is not None and rank is not None and sorted(np.ravel(axes) % max(rank, 1)) == list(range(rank)):
        where = []
    elif axes is not None and np.size(axes) == 1:
        where = [f"axis={int(np.ravel(axes)[0])}"]
    else:
        where = [f"axis={body.argument(op.inputs[1])}"]
    keep = ["keepdims=True"] if op.get_attr("keep_dims") else []
    return f"tf.reduce_{_REDUCTIONS[op.type]}({', '.join([given, *where, *keep])})"


def _shape(body: Body, op: Any) -> str:
    kind = op.outputs[0].dtype
    return f"tf.shape({body.given(op.inputs[0])}{'' if kind == tf.int32 else f', tf.{kind.name}'})"


def _gather(body: Body, op: Any) -> str:
    axis = tf.get_static_value(op.inputs[2])
    where = "" if axis is not None and int(axis) == 0 else f", axis={body.argument(op.inputs[2])}"
    if op.get_attr("batch_dims"):
        return _raw(body, op)
    return f"tf.gather({body.given(op.inputs[0])}, {body.given(op.inputs[1])}{where})"


def _transpose(body: Body, op: Any) -> str:
    given, order = body.given(op.inputs[0]), tf.get_static_value(op.inputs[1])
    if order is not None and list(order) == list(range(len(order)))[::-1]:
        return f"tf.transpose({given})"
    return f"tf.transpose({given}, {body.argument(op.inputs[1])})"


def _squeezed(body: Body, op: Any) -> str:
    axes = list(op.get_attr("squeeze_dims"))
    return f"tf.squeeze({body.given(op.inputs[0])}{f', {axes}' if axes else ''})"


def _ranged(body: Body, op: Any) -> str:
    given = [body.argument(one) for one in op.inputs]
    if given[0] == "0" and given[2] == "1":
        given = given[1:2]
    return f"tf.range({', '.join(given)}, dtype=tf.{op.outputs[0].dtype.name})"


def _concatenated(body: Body, op: Any) -> str:
    *parts, axis = op.inputs
    return f"tf.concat([{', '.join(map(body.given, parts))}], {body.argument(axis)})"


def _packed(body: Body, op: Any) -> str:
    axis, whole = op.get_attr("axis"), op.outputs[0].dtype in (tf.int32, tf.int64)
    # Lengths of which one is known: the list takes the dtype of that one.
    known = [body.is_made(one) for one in op.inputs]
    lengths = whole and any(known)
    text = [body.argument(one) if lengths else body.given(one) for one in op.inputs]
    return f"tf.stack([{', '.join(text)}]{f', axis={axis}' if axis else ''})"


def _split(body: Body, op: Any) -> str:
    axis = body.argument(op.inputs[0])
    where = "" if axis == "0" else f", axis={axis}"
    return f"tf.split({body.given(op.inputs[1])}, {op.get_attr('num_split')}{where})"


def _cut(body: Body, op: Any) -> str:
    """A subscript: numbers, slices, ``None`` and ``...``."""
    bounds = [_bounds(one) for one in op.inputs[1:]]
    masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    known = [one for one in bounds if one is not None]
    keys, count = [], max((len(one) for one in known), default=0)
    if len(known) < len(bounds):
        return _raw(body, op)
    for number in range(count):
        at = {name: bool(mask >> number & 1) for name, mask in masks.items()}
        begin, end, step = (
            body.argument(one[number]) if isinstance(one[number], tf.Tensor) else str(one[number]) for one in known
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
    return f"{body.operand(op.inputs[0])}[{', '.join(keys)}]"


def _text_joined(body: Body, op: Any) -> str:
    between = op.get_attr("separator")
    parts = [body.given(one) if body.is_made(one) else words(tf.get_static_value(one)) for one in op.inputs]
    return f"tf.strings.join([{', '.join(parts)}]{f', {words(between)}' if between else ''})"


def _text_split(body: Body, op: Any) -> str:
    """One text split, or decoded, of whose results only the parts are read."""
    whole = _bare(op.inputs[0])
    if whole is None:
        return _raw(body, op)
    if op.type == "UnicodeDecode":
        return f'tf.strings.unicode_decode({body.given(whole)}, "UTF-8", "strict")'
    separator = tf.get_static_value(op.inputs[1])
    return f"tf.strings.split({body.given(whole)}{f', {words(separator)}' if separator else ''})"


def only_parts(op: Any) -> bool:
    """Whether an op is written as a function that gives the second of its results alone."""
    return op.type in ("StringSplitV2", "UnicodeDecode") and _bare(op.inputs[0]) is not None


def _bare(tensor: Any) -> Any:
    """The one text of which a list of texts is made."""
    op = through(tensor).op
    single = op.type in ("ExpandDims", "StridedSlice", "Pack", "Reshape") and op.inputs[0].shape.rank == 0
    return op.inputs[0] if single else None


def words(value: Any) -> str:
    """Text, or an array of one, as Python writes it."""
    return repr(bytes(np.asarray(value, object).item()).decode())


_SPECIAL: Final[dict[str, Callable[[Body, Any], str]]] = {
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "Shape": _shape,
    "GatherV2": _gather,
    "Transpose": _transpose,
    "Squeeze": _squeezed,
    "Range": _ranged,
    "ConcatV2": _concatenated,
    "Pack": _packed,
    "Split": _split,
    "StridedSlice": _cut,
    "StringJoin": _text_joined,
    **dict.fromkeys(("StringSplitV2", "UnicodeDecode"), _text_split),
}


def through(tensor: Any) -> Any:
    """Strips identity ops."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


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
    packed = through(tensor).op
    return [through(one) for one in packed.inputs] if packed.type == "Pack" else None


def _count(op: Any, argument: Any) -> tuple[int, bool]:
    """Number of tensors that an argument of an op takes, and whether it takes a list."""
    if argument.number_attr:
        return int(op.get_attr(argument.number_attr)), True
    if argument.type_list_attr:
        return len(op.get_attr(argument.type_list_attr)), True
    return 1, False


def literal_of(value: np.ndarray[Any, Any]) -> str | None:
    """One value as Python writes it, the shortest that is read as the same; ``None`` where there is none."""
    if value.dtype.kind == "f":
        number = float(str(value[()]))
        return repr(number) if np.isfinite(number) else f'float("{number}")'
    if value.dtype.kind in "iubc":
        return repr(value[()].item())
    if value.dtype.kind in "OS":
        return repr(bytes(value.item()))
    return None


def nested(value: np.ndarray[Any, Any]) -> str | None:
    """All values of an array as Python writes them, in lists; ``None`` where one cannot be written."""
    if value.ndim == 0:
        return literal_of(value)
    parts = [nested(np.asarray(one)) for one in value]
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
