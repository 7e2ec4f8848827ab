"""One file of the user's as text, syntax tree and tokens, with its calls; all positions are offsets into the text.

The syntax tree leaves out parentheses and counts columns in UTF-8 bytes; the tokens know where a link of a chain really
begins and ends. Both are needed, and this is where they are brought together.
"""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from xttsbench.targets.source_names import Source

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_OPENING: Final = "([{"
_CLOSING: Final = ")]}"
_BLANK: Final = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.ENDMARKER)


@dataclass(frozen=True)
class Token:
    """A token that stands for something, comments left out; ``depth`` counts the brackets that are open before it."""

    text: str
    start: int
    end: int
    depth: int


@dataclass(frozen=True, eq=False)
class Link:
    """One call, as a link of a chain: ``.map(f)``, or the whole ``make(x)`` where a plain name is called."""

    node: ast.Call
    name: str
    """What is called, without what comes before the last dot."""
    start: int
    """Of the dot, or of the name where there is none."""
    end: int
    """Behind the closing parenthesis."""
    line: int
    """Where Python says that the call runs: the line of the name."""
    opening: int
    """Number of the token that opens the arguments."""
    closing: int
    """Number of the token that closes them."""


class Module:
    """The text of one file, taken apart.

    Raises:
        SyntaxError, ValueError: the text is not Python.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.source = Source(file, text)
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
        found_end = _LINE_END.search(text)
        self.line_end = found_end.group() if found_end else "\n"
        """How the file ends its lines."""
        self.tokens, self.comments = self._read_tokens()
        """The comments by their start and end."""
        self._token_starts = [one.start for one in self.tokens]
        self._token_ends = {one.end: number for number, one in enumerate(self.tokens)}
        self.links: tuple[Link, ...] = tuple(sorted(self._read_links(), key=lambda link: link.end))
        self._link_of = {link.node: link for link in self.links}

    def offset(self, line: int, column_bytes: int) -> int:
        """Offset of a place in the tree, whose columns are counted in bytes."""
        start = self._starts[line - 1]
        rest = self.text[start : start + column_bytes]
        return start + (column_bytes if rest.isascii() else len(rest.encode()[:column_bytes].decode()))

    def span(self, node: ast.expr | ast.stmt | ast.keyword | ast.arg) -> tuple[int, int]:
        """Start and end of a node as the tree has it, without parentheses around it."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0  # the parser sets both
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)

    def line_of(self, offset: int) -> int:
        """Number of the line that an offset is in, from 1."""
        return bisect.bisect_right(self._starts, offset)

    def line_start(self, offset: int) -> int:
        """Offset at which the line of ``offset`` begins."""
        return self._starts[self.line_of(offset) - 1]

    def line_stop(self, offset: int) -> int:
        """Offset at which the text of that line ends, before its line end."""
        found = _LINE_END.search(self.text, offset)
        return found.start() if found else len(self.text)

    def indent(self, offset: int) -> str:
        """The white space with which that line begins."""
        line = self.text[self.line_start(offset) : self.line_stop(offset)]
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def begins_line(self, offset: int) -> bool:
        """Whether there is only white space before it on its line."""
        return not self.text[self.line_start(offset) : offset].strip(" \t\f")

    def token_at(self, offset: int) -> int:
        """Number of the first token that starts at the offset or behind it."""
        return bisect.bisect_left(self._token_starts, offset)

    def comment_behind(self, offset: int) -> tuple[int, int] | None:
        """The comment that is all that follows on the line."""
        for start, end in self.comments:
            if start >= offset and not self.text[offset:start].strip(" \t\f"):
                return start, end
        return None

    def link(self, node: ast.AST) -> Link | None:
        """The link of a call."""
        return self._link_of.get(node) if isinstance(node, ast.Call) else None

    def next_link(self, link: Link) -> Link | None:
        """The link whose method is called on what this one returns."""
        attribute = self.source.parent(link.node)
        call = self.source.parent(attribute) if isinstance(attribute, ast.Attribute) else None
        return self.link(call) if isinstance(call, ast.Call) and call.func is attribute else None

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds an expression."""
        return next(found for found in (node, *self.source.ancestors(node)) if isinstance(found, ast.stmt))

    def _read_tokens(self) -> tuple[tuple[Token, ...], tuple[tuple[int, int], ...]]:
        tokens: list[Token] = []
        comments: list[tuple[int, int]] = []
        depth = 0
        for token in _tokens(self.text):
            start = self._starts[token.start[0] - 1] + token.start[1] if token.start[0] <= len(self._starts) else 0
            end = self._starts[token.end[0] - 1] + token.end[1] if token.end[0] <= len(self._starts) else 0
            if token.type == tokenize.COMMENT:
                comments.append((start, end))
            elif token.type not in _BLANK:
                depth -= token.string in _CLOSING and token.type == tokenize.OP
                tokens.append(Token(token.string, start, end, depth))
                depth += token.string in _OPENING and token.type == tokenize.OP
        return tuple(tokens), tuple(comments)

    def _read_links(self) -> Iterator[Link]:
        for node in self.source.nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            named = self._token_ends.get(self.span(node.func)[1])
            closing = self._token_ends.get(self.span(node)[1])
            if named is None or closing is None or self.tokens[named].text != name:
                continue  # inside an f-string, where the tree's places are none of the text's
            opening = self._opening(closing)
            first = named - 1 if isinstance(node.func, ast.Attribute) else named
            if opening is not None and (first == named or self.tokens[first].text == "."):
                token = self.tokens[first]
                line = self.line_of(self.tokens[named].start)
                yield Link(node, name, token.start, self.tokens[closing].end, line, opening, closing)

    def _opening(self, closing: int) -> int | None:
        """Number of the bracket that a closing one belongs to."""
        depth = self.tokens[closing].depth
        for number in range(closing - 1, -1, -1):
            if self.tokens[number].depth == depth and self.tokens[number].text in _OPENING:
                return number
        return None


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    except tokenize.TokenError as error:
        raise ValueError(f"the text cannot be taken apart: {error}") from error
