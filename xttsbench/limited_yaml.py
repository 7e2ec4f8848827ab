"""YAML whose text somebody else may have written: limited in depth and size, and with one kind of error.

PyYAML follows aliases for ever (332 bytes can stand for thousands of millions of items), falls over deep nesting, and
lets whatever Python raises through where a value is not of the kind that its tag says.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_NODES: Final = 20_000  # aliases followed
_DEPTH: Final = 40
_LONGEST_NUMBER: Final = 400  # characters; numbers to the base of sixty take the square of their length
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(yaml.SafeLoader):
    """Composes what is small enough, aliases followed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = self._depth = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event, before = self.peek_event(), self._nodes  # type: ignore[no-untyped-call]
        alias = isinstance(event, yaml.AliasEvent)
        self._nodes += 1
        self._depth += 1
        if self._depth <= _DEPTH:
            node = super().compose_node(parent, index)
            # What is not composed yet holds its own alias: that never ends.
            self._nodes += self._sizes.get(id(node), _NODES) if alias else 0
            self._sizes[id(node)] = self._nodes - before
        if self._depth > _DEPTH or self._nodes > _NODES:
            at = event.start_mark
            raise yaml.composer.ComposerError(None, None, "too large or too deep once its aliases are followed", at)
        self._depth -= 1
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if node.tag in _NUMBERS and ":" in node.value and len(node.value) > _LONGEST_NUMBER:
            what = f"a number to the base of sixty of {len(node.value)} characters"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        return super().construct_scalar(node)


class _Exponents(_Loader):
    """Numbers such as ``1e-4`` and ``1.5e4`` are numbers, as in YAML 1.2."""


_Exponents.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse(text: str, *, exponents: bool = False) -> tuple[yaml.Node | None, Any]:
    """The node of a document, with the places of all in it, and what it holds; ``None`` for an empty one.

    Args:
        text: the document.
        exponents: whether ``1e-4`` is a number; YAML 1.1, which PyYAML writes, takes it for text, for want of a dot.

    Raises:
        yaml.YAMLError: it is none, too large or too deep, or a value is not of the kind that its tag says.
    """
    loader = (_Exponents if exponents else _Loader)(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError) as error:
        # A date that is none, and !!int, !!bool, !!timestamp of something else: each raises as its constructor does.
        raise yaml.YAMLError(f"a value is not of its kind: {error}") from error
    finally:
        loader.dispose()


def content(text: str) -> Any:
    """Parse a document, or a single value, without its node; for the errors see :func:`parse`."""
    return parse(text)[1]
