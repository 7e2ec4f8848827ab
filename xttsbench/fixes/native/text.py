"""Text in a function that is traced: a string of TensorFlow that behaves as Python's ``str`` and ``bytes``.

Beside its tensor a text holds the values that it had in the recorded calls, on which Python's own methods are called:
what a file at that path holds says of which dtype and rank an array is that is read from it.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.native.arrays import Array, CannotTraceError, Symbolic, holds_traced, only

_SPACES: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""White space by Python's definition; TensorFlow's own functions know ASCII's alone."""
_ENCODINGS: Final = ("utf-8", "utf8", "UTF-8", "ascii")
_PERCENT: Final = re.compile(r"%(?P<flags>0?)(?P<width>\d*)(?P<kind>[sdi%])")
_CONVERSIONS: Final[Mapping[int, Callable[[Any], str]]] = {115: str, 114: repr, 97: ascii}
"""``!s``, ``!r`` and ``!a`` of f-strings, by the numbers that Python gives them."""
_WHOLE: Final = re.compile(r"(?P<zero>0?)(?P<width>\d*)d?")


class Text(Symbolic):
    """A string.

    Attributes:
        tensor: a scalar string.
        seen: its values in the recorded calls; ``None`` where they are not known.
        kind: ``str``, ``bytes`` or ``Path``; the values of a path are ``str``.
    """

    __slots__ = ("kind", "seen", "tensor")
    what = "text"

    def __init__(self, tensor: Any, seen: Sequence[Any] | None, kind: type) -> None:
        self.tensor, self.kind = tensor, kind
        self.seen = None if seen is None else tuple(seen)

    def made(self, tensor: Any, seen: Callable[[Any], Any], kind: type | None = None) -> Text:
        """Another text, made of this one by an op, and by a function of Python's on what was seen."""
        values = None if self.seen is None else [seen(one) for one in self.seen]
        return Text(tensor, values, kind or self.kind)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> Text:
        """As ``bytes`` have it."""
        only(self.kind is bytes and encoding in _ENCODINGS and errors == "strict", f"decodes text from {encoding}")
        return self.made(self.tensor, bytes.decode, str)

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> Text:
        """As ``str`` has it."""
        only(self.kind is str and encoding in _ENCODINGS and errors == "strict", f"encodes text as {encoding}")
        return self.made(self.tensor, str.encode, bytes)

    def lower(self) -> Text:
        """In lower case."""
        return self.made(tf.strings.lower(self.tensor, self._encoding), methodcaller("lower"))

    def upper(self) -> Text:
        """In upper case."""
        return self.made(tf.strings.upper(self.tensor, self._encoding), methodcaller("upper"))

    @property
    def _encoding(self) -> str:
        return "utf-8" if self.kind is str else ""

    @property
    def _unit(self) -> str:
        return "UTF8_CHAR" if self.kind is str else "BYTE"

    def replace(self, old: Any, new: Any, count: int = -1) -> Text:
        """With one known text in place of another."""
        only(isinstance(old, str | bytes) and isinstance(new, str | bytes), "replaces what is known only when it runs")
        only(count in (-1, 1) and bool(old), "replaces text several times, or nothing")
        return self.sub(_pattern(old), _rewrite(new), methodcaller("replace", old, new, count), every=count == -1)

    def strip(self, chars: Any = None) -> Text:
        """Without white space, or some characters, at its ends."""
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: Any = None) -> Text:
        """Without white space, or some characters, at its beginning."""
        return self.sub(f"^[{self._some(chars)}]+", "", methodcaller("lstrip", chars))

    def rstrip(self, chars: Any = None) -> Text:
        """Without white space, or some characters, at its end."""
        return self.sub(f"[{self._some(chars)}]+$", "", methodcaller("rstrip", chars))

    def translate(self, table: Any) -> Text:
        """With some letters replaced, or left out."""
        only(isinstance(table, Mapping) and self.kind is str, "translates by what is no table of letters")
        known = {
            chr(one) if isinstance(one, int) else one: chr(new) if isinstance(new, int) else new or ""
            for one, new in table.items()
        }
        gone = "".join(one for one, new in known.items() if not new)
        again = {one for new in known.values() for one in new if known.get(one, one) != one}
        only(not again, "replaces letters by others that are replaced too")
        found = self.sub(f"[{_pattern(gone)}]", "", lambda one: one) if gone else self
        for one, new in known.items():
            found = found.sub(_pattern(one), _rewrite(new), lambda one: one) if new and new != one else found
        return self.made(found.tensor, methodcaller("translate", table))

    def _some(self, chars: Any) -> str:
        only(chars is None or (isinstance(chars, str | bytes) and bool(chars)), "strips what is not known, or nothing")
        known = (" \t\n\r\x0b\f" if self.kind is bytes else _SPACES) if chars is None else chars
        return _pattern(known)

    def sub(self, pattern: str, new: str, seen: Callable[[Any], Any], *, every: bool = True) -> Text:
        """With what a pattern of RE2's matches replaced; ``seen`` does it to what was seen."""
        return self.made(tf.strings.regex_replace(self.tensor, f"(?s){pattern}", new, every), seen)

    def split(self, sep: Any = None, maxsplit: int = -1) -> Texts:
        """Parts of the text between separators."""
        only(maxsplit == -1 and (sep is None or (isinstance(sep, str | bytes) and bool(sep))), "splits text in part")
        tensor = self.tensor
        if sep is None:
            tensor = self.sub(f"[{self._some(None)}]+", " ", lambda one: one).tensor
        parts = tf.raw_ops.StringSplitV2(input=tensor[None], sep=sep or "").values
        return Texts(parts, None if self.seen is None else [one.split(sep) for one in self.seen], self.kind)

    def startswith(self, start: Any) -> Array:
        """Whether the text begins with a known text."""
        return self._matches(start, lambda pattern: f"{pattern}.*")

    def endswith(self, end: Any) -> Array:
        """Whether the text ends with a known text."""
        return self._matches(end, lambda pattern: f".*{pattern}")

    def _matches(self, part: Any, pattern: Callable[[str], str]) -> Array:
        parts = part if isinstance(part, tuple) else (part,)
        only(all(isinstance(one, str | bytes) for one in parts), "compares text with what is known only when it runs")
        either = pattern(f"(?:{'|'.join(map(_pattern, parts))})")
        return Array(tf.strings.regex_full_match(self.tensor, f"(?s){either}"), scalar=True)

    def length(self) -> Array:
        """Number of characters, or bytes."""
        return Array(tf.cast(tf.strings.length(self.tensor, self._unit), tf.int64), int)

    def __eq__(self, other: Any) -> Any:
        return Array(tf.equal(self.tensor, text(other).tensor), scalar=True)

    def __ne__(self, other: Any) -> Any:
        return Array(tf.not_equal(self.tensor, text(other).tensor), scalar=True)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Text:
        return joined([self, other], self.kind)

    def __radd__(self, other: Any) -> Text:
        return joined([other, self], self.kind)

    def __getitem__(self, key: Any) -> Text:
        only(isinstance(key, slice) and key.step in (None, 1), "takes a character of text by its place")
        only(all(one is None or isinstance(one, int) for one in (key.start, key.stop)), "cuts text where values say")
        length = tf.strings.length(self.tensor, self._unit)

        def bound(value: int | None, default: Any) -> Any:
            if value is None:
                return default
            return tf.maximum(length + value, 0) if value < 0 else tf.minimum(value, length)

        start, stop = bound(key.start, 0), bound(key.stop, length)
        cut = tf.strings.substr(self.tensor, start, tf.maximum(stop - start, 0), self._unit)
        return self.made(cut, lambda one: one[key])


class Texts(Symbolic):
    """A list of texts whose length is known only when it runs.

    Attributes:
        tensor: strings with one axis.
        seen: the lists of the recorded calls.
        kind: ``str`` or ``bytes``.
    """

    __slots__ = ("kind", "seen", "tensor")
    what = "a list of texts"

    def __init__(self, tensor: Any, seen: Sequence[Any] | None, kind: type) -> None:
        self.tensor, self.seen, self.kind = tensor, seen, kind

    def length(self) -> Array:
        """Number of texts."""
        return Array(tf.shape(self.tensor, tf.int64)[0], int)

    def __getitem__(self, key: Any) -> Text:
        only(isinstance(key, int), "takes a part of a list whose place is known only when it runs")
        return Text(self.tensor[key], None if self.seen is None else [one[key] for one in self.seen], self.kind)

    def __iter__(self) -> Any:
        lengths = {len(one) for one in self.seen or ()}
        only(len(lengths) == 1, "goes through a list whose length is known only when it runs")
        (length,) = lengths
        whole = Texts(tf.ensure_shape(self.tensor, [length]), self.seen, self.kind)
        return iter([whole[number] for number in range(length)])


def text(value: Any) -> Text:
    """A value as text.

    Raises:
        CannotTraceError: it is none.
    """
    if isinstance(value, Text):
        return value
    only(isinstance(value, str | bytes), f"joins or compares text with {type(value).__name__}")
    return Text(tf.constant(value), [value], str if isinstance(value, str) else bytes)


def joined(parts: Sequence[Any], kind: type) -> Text:
    """Texts one behind the other."""
    given = [text(one) for one in parts if not (isinstance(one, str | bytes) and not one)]
    only(all(one.kind is kind for one in given), "joins texts of different kinds")
    seen = _seen([one.seen for one in given], lambda *values: kind().join(values))
    tensor = given[0].tensor if len(given) == 1 else tf.strings.join([one.tensor for one in given])
    return Text(tensor, seen, kind)


def _seen(values: Sequence[Sequence[Any] | None], function: Callable[..., Any]) -> list[Any] | None:
    """Results of a function for the values of each recorded call; one value alone is that of all calls."""
    known = [one for one in values if one is not None]
    if len(known) < len(values):
        return None
    count = max(map(len, known), default=1)
    return [function(*row) for row in zip(*(list(one) * (count if len(one) == 1 else 1) for one in known), strict=True)]


def written_out(*parts: Any) -> Any:
    """An f-string: texts, and values each with conversion and format."""
    found = [one if isinstance(one, str) else formatted(*one) for one in parts]
    return joined(found, str) if holds_traced(found) else "".join(found)


def formatted(value: Any, conversion: int = -1, spec: Any = "") -> Any:
    """``format(value, spec)``: of text, and of whole numbers with zeros before them."""
    if not isinstance(value, Symbolic):
        only(isinstance(spec, str), "writes text of a width that is known only when it runs")
        return format(value if conversion == -1 else _CONVERSIONS[conversion](value), spec)
    if isinstance(value, Text) and value.kind is not bytes and spec in ("", "s") and conversion in (-1, 115):
        return Text(value.tensor, value.seen, str)
    match = _WHOLE.fullmatch(spec) if isinstance(spec, str) and conversion in (-1, 115) else None
    whole = isinstance(value, Array) and value.dtype.kind in "iu" and not value.ndim
    if match is None or not whole or not isinstance(value, Array):
        raise CannotTraceError("writes the value of an array as text")
    width = int(match["width"] or -1)
    fill = match["zero"] if width > 0 else ""
    seen = None if value.seen is None else [format(int(one), spec) for one in value.seen]
    return Text(tf.strings.as_string(value.tensor, width=width, fill=fill), seen, str)


def percent(pattern: str, values: Any) -> Any:
    """``pattern % values`` with traced ones among them."""
    waiting, parts, end = list(values) if isinstance(values, tuple) else [values], [], 0
    for match in _PERCENT.finditer(pattern):
        parts.append(pattern[end : match.start()])
        if match["kind"] == "%":
            parts.append("%")
        else:
            only(bool(waiting), "formats text in a way that is not known here")
            spec = f"{match['flags']}{match['width']}"
            parts.append(formatted(waiting.pop(0), -1, spec if match["kind"] != "s" else ""))
        end = match.end()
    only(not waiting and "%" not in pattern[end:], "formats text in a way that is not known here")
    return joined([*parts, pattern[end:]], str)


def format_method(pattern: str, *values: Any, **named: Any) -> Any:
    """``pattern.format(...)`` with traced values among them."""
    parts: list[Any] = []
    count = 0
    for literal, field, spec, conversion in string.Formatter().parse(pattern):
        parts.append(literal)
        if field is None:
            continue
        only(not field or field.isidentifier() or field.isdecimal(), "formats text in a way that is not known here")
        value = named[field] if field.isidentifier() else values[int(field or count)]
        count += not field
        parts.append(formatted(value, {None: -1, "s": 115}.get(conversion, 114), spec or ""))
    return joined(parts, str)


def join_method(separator: Any, values: Any) -> Text:
    """``separator.join(texts)``."""
    if isinstance(values, Texts):
        tensor = tf.strings.reduce_join(values.tensor, separator=separator)
        return Text(tensor, None if values.seen is None else [separator.join(one) for one in values.seen], values.kind)
    parts = [part for one in values for part in (separator, one)][1:]
    return joined(parts, str if isinstance(separator, str) else bytes)


def made_text(value: Any = "", *more: Any) -> Any:
    """``str(value)``, and ``str(value, "utf-8")``."""
    if isinstance(value, Text) and more:
        return value.decode(*more)
    return formatted(value)


def number_of(value: Text, kind: type) -> Array:
    """``int(text)`` or ``float(text)``."""
    wide = tf.int64 if kind is int else tf.float64
    found = Array(tf.strings.to_number(value.tensor, wide), kind)
    try:
        found.seen = None if value.seen is None else tuple(kind(one) for one in value.seen)
    except ValueError:  # of calls that went another way
        found.seen = None
    return found


def substituted(pattern: Any, new: Any, value: Any, count: int = 0) -> Text:
    """``re.sub`` of what means the same to both libraries, for text of ASCII's letters where it does only there."""
    known = pattern if isinstance(pattern, re.Pattern) else re.compile(pattern)
    pattern, flags = known.pattern, known.flags
    only(isinstance(pattern, str) and isinstance(new, str), "replaces text by what is known only when it runs")
    only(not flags & ~(re.UNICODE | re.IGNORECASE) and not count, "replaces text by a pattern with flags, or in part")
    given = text(value)
    plain = re.fullmatch(
        r"(?:[^\\(){}$^|*?.\[\]+]|\\[\\.()\[\]{}$^|*?+s]|\[\^?(?:[^\\\[\]]|\\[s\\\]\[\-])+\]|[+*])+", pattern
    )
    if plain is None or "\\" in new or flags & re.IGNORECASE:
        _only_ascii(pattern, new, given)
    classes = _in_classes(pattern).replace(r"\s", f"[{_SPACES}]")
    with_flags = f"(?{'i' if flags & re.IGNORECASE else ''}s){classes}"
    tensor = tf.strings.regex_replace(given.tensor, with_flags, new if "\\" in new else _rewrite(new))
    return given.made(tensor, lambda one: known.sub(new, one))


def _in_classes(pattern: str) -> str:
    """A pattern whose classes of letters name the white space that Python knows."""
    return re.sub(r"(?<!\\)\[(?:\\.|[^\]\\])*\]", lambda found: found[0].replace(r"\s", _SPACES), pattern)


def _only_ascii(pattern: str, new: str, given: Text) -> None:
    """Have the text be ASCII's, in which letters, digits and the bounds of words are the same to both libraries.

    Raises:
        CannotTraceError: a recorded text is not, or the pattern means something else even there.
    """
    unknown = f"replaces text by the pattern {pattern!r}, which is not known here"
    without = re.sub(r"\\[.$^*+?()]|\[(?:\\.|[^\]\\])*\]", "", pattern)
    other = re.search(r"\(\?(?!:)|\\[1-9AZzS\\]|[$^.]|[*+?}]\+", without)
    only(other is None and re.search(pattern, "") is None and r"\S" not in pattern, unknown)
    only(re.fullmatch(r"(?:[^\\]|\\[1-9])*", new) is not None, unknown)
    seen = [one for one in given.seen or () if not one.isascii()]
    only(not seen, f"{unknown} for text with other letters than ASCII's")
    holds = tf.strings.regex_full_match(given.tensor, r"(?s)[\x00-\x7f]*")
    tf.debugging.Assert(holds, ["text has letters that are not ASCII's, and the recorded calls had none"])


def _pattern(value: str | bytes) -> str:
    """A text as a regular expression of RE2's."""
    known = value.decode() if isinstance(value, bytes) else value
    return "".join(f"\\{one}" if one.isascii() and not one.isalnum() and not one.isspace() else one for one in known)


def _rewrite(value: str | bytes) -> str:
    return (value.decode() if isinstance(value, bytes) else value).replace("\\", "\\\\")


FUNCTIONS: Final[Mapping[Any, Callable[..., Any]]] = {str: made_text, re.sub: substituted}
"""Function of Python's -> what does the same with traced text."""
