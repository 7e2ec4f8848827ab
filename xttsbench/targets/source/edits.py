"""Edits of one text, gathered from several fixes and applied together; all else stays byte for byte.

All places are those of the original text, so that the lines which the graph's ops name stay valid. An exchange moves
whole links of a chain between their places, other moves take them elsewhere; what other fixes write into a link moves
with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from xttsbench.targets.source.module import Module
from xttsbench.targets.source.tree import Span


class NoEditError(Exception):
    """No edit can be made safely; the message is a sentence for the user, who can write it by hand."""


class NothingToDoError(NoEditError):
    """The source has the fix already; there is nothing to write by hand."""


class NoCallError(NoEditError):
    """The op was made by a call that has no such argument (``unbatch`` makes a map); there is nothing to write."""


@dataclass(frozen=True)
class Replacement:
    """Text in place of a part of the original; an insertion where the part is empty."""

    start: int
    end: int
    text: str
    stays: bool = False
    """An insertion behind a link that is moved stays behind what comes to stand there: the end of the pipeline."""


@dataclass(frozen=True)
class Exchange:
    """Parts of the text that change places: the part ``order[i]`` comes to stand where the part ``i`` was."""

    spans: tuple[Span, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Put:
    """Insertion: text, and parts of the original."""

    at: int
    pieces: tuple[str | Span, ...]


@dataclass(frozen=True)
class Moved:
    """A part that is taken out, and what of it is written elsewhere, with what other fixes write into that."""

    gone: Span
    left: str  # what stands in its place
    puts: tuple[Put, ...]


Step = Replacement | Exchange | Moved


@dataclass(frozen=True)
class Change:
    """Edit of one fix at one place of a file."""

    module: Module
    line: int  # of the call or function that it is about
    shown: Span  # a part of the text that shows it, beside its replacements
    steps: tuple[Step, ...]

    @property
    def span(self) -> Span:
        """The part of the text that shows it whole."""
        places = [self.shown, *((one.start, one.end) for one in self.steps if isinstance(one, Replacement))]
        for moved in (one for one in self.steps if isinstance(one, Moved)):
            places += [moved.gone, *((put.at, put.at) for put in moved.puts)]
        return min(start for start, _ in places), max(end for _, end in places)


@dataclass(frozen=True)
class Found:
    """Edits of a fix that only make sense together, or the reason for none."""

    changes: tuple[Change, ...] = ()
    why_not: str | None = None  # a sentence that says what to write by hand, and where


def rendered(text: str, steps: Sequence[Step], start: int = 0, end: int | None = None) -> str:
    """The text, or a part of it, with the steps that lie in that part.

    Raises:
        NoEditError: two steps are about the same text.
    """
    end = len(text) if end is None else end
    _refuse_overlap(steps)
    plain = [step for step in steps if isinstance(step, Replacement)]
    for moved in [step for step in steps if isinstance(step, Moved)]:
        plain = _taken(text, plain, moved)
    for exchange in [step for step in steps if isinstance(step, Exchange)]:
        contents = [_replaced(text, [step for step in plain if _inside(step, span)], span) for span in exchange.spans]
        plain = [step for step in plain if not any(_inside(step, span) for span in exchange.spans)]
        for span, source in zip(exchange.spans, exchange.order, strict=True):
            plain.insert(0, Replacement(*span, contents[source]))
    return _replaced(text, [step for step in plain if start <= step.start and step.end <= end], (start, end))


def _taken(text: str, plain: Sequence[Replacement], moved: Moved) -> list[Replacement]:
    """The replacements with what is moved among them, and those within it in its text."""
    spans = {piece for put in moved.puts for piece in put.pieces if not isinstance(piece, str)}
    contents = {span: _replaced(text, [step for step in plain if _inside(step, span)], span) for span in spans}
    left = [step for step in plain if not any(_inside(step, span) for span in spans)]
    if any(_overlap((step.start, step.end), moved.gone) for step in left):
        raise NoEditError("it changes the same call as another fix of this patch")
    written = [
        Replacement(put.at, put.at, "".join(one if isinstance(one, str) else contents[one] for one in put.pieces))
        for put in moved.puts
    ]
    return [*left, Replacement(*moved.gone, moved.left), *written]


def _inside(step: Replacement, span: Span) -> bool:
    """Whether a step moves with a part; an insertion belongs to the part that ends there, not to the next."""
    if step.start == step.end:
        return span[0] < step.start < span[1] or (step.start == span[1] and not step.stays)
    return span[0] <= step.start and step.end <= span[1]


def _replaced(text: str, steps: Sequence[Replacement], span: Span) -> str:
    """The part with its replacements; at one place, insertions come in their order and before what begins there."""
    done, pieces = span[0], []
    for step in sorted(steps, key=lambda one: (one.start, one.end, one.stays)):
        pieces += [text[done : step.start], step.text]
        done = max(done, step.end)
    return "".join([*pieces, text[done : span[1]]])


def _refuse_overlap(steps: Sequence[Step]) -> None:
    replaced = [step for step in steps if isinstance(step, Replacement)]
    moved = [span for step in steps if isinstance(step, Exchange) for span in step.spans]
    moved += [step.gone for step in steps if isinstance(step, Moved)]
    spans = [(one.start, one.end) for one in replaced]
    clash = any(_overlap(*pair) for parts in (spans, moved) for pair in itertools.combinations(parts, 2))
    clash |= any(_overlap((one.start, one.end), span) and not _inside(one, span) for one in replaced for span in moved)
    if clash:
        raise NoEditError("it changes the same call as another fix of this patch")


def _overlap(one: Span, other: Span) -> bool:
    """Whether two parts share text, or one inserts strictly inside the other."""
    return one[0] < other[1] and other[0] < one[1]
