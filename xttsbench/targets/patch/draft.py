"""Edits of one text, gathered from several fixes and applied together.

All places are those of the original text, so that the lines which the graph's ops name stay valid. An exchange moves
whole links of a chain between their places; what other fixes write into a link moves with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xttsbench.targets.patch.no_edit import NoEditError

Span = tuple[int, int]


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


Step = Replacement | Exchange


@dataclass(frozen=True)
class Change:
    """What one fix does at one place: its steps, and the part of the text that shows them."""

    start: int
    end: int
    line: int
    steps: tuple[Step, ...]


def rendered(text: str, steps: Sequence[Step], start: int = 0, end: int | None = None) -> str:
    """The text, or a part of it, with the steps that lie in that part.

    Raises:
        NoEditError: two steps are about the same text.
    """
    end = len(text) if end is None else end
    _refuse_overlap(steps)
    plain = [step for step in steps if isinstance(step, Replacement)]
    for exchange in [step for step in steps if isinstance(step, Exchange)]:
        contents = [_replaced(text, [step for step in plain if _inside(step, span)], span) for span in exchange.spans]
        plain = [step for step in plain if not any(_inside(step, span) for span in exchange.spans)]
        for span, source in zip(exchange.spans, exchange.order, strict=True):
            plain.insert(0, Replacement(*span, contents[source]))
    return _replaced(text, [step for step in plain if start <= step.start and step.end <= end], (start, end))


def _inside(step: Replacement, span: Span) -> bool:
    """Whether it moves with a part; an insertion belongs to the part that ends there, not to the one that begins."""
    if step.start == step.end:
        return span[0] < step.start < span[1] or (step.start == span[1] and not step.stays)
    return span[0] <= step.start and step.end <= span[1]


def _replaced(text: str, steps: Sequence[Replacement], span: Span) -> str:
    """The part with its replacements; at one place, insertions come in their order and before what begins there."""
    done, pieces = span[0], []
    numbered = sorted(enumerate(steps), key=lambda one: (one[1].start, one[1].end, one[0]))
    for _, step in numbered:
        pieces += [text[done : step.start], step.text]
        done = max(done, step.end)
    return "".join([*pieces, text[done : span[1]]])


def _refuse_overlap(steps: Sequence[Step]) -> None:
    replaced = [step for step in steps if isinstance(step, Replacement)]
    moved = [span for step in steps if isinstance(step, Exchange) for span in step.spans]
    pairs = [(one, other) for number, one in enumerate(replaced) for other in replaced[number + 1 :]]
    clash = any(_overlap((one.start, one.end), (other.start, other.end)) for one, other in pairs)
    clash |= any(_overlap(one, other) for number, one in enumerate(moved) for other in moved[number + 1 :])
    for step in replaced:
        for span in moved:
            clash |= _overlap((step.start, step.end), span) and not _inside(step, span)
    if clash:
        raise NoEditError("it changes the same call as another fix of this patch")


def _overlap(one: Span, other: Span) -> bool:
    """Whether two parts share text, or one inserts strictly inside the other."""
    return one[0] < other[1] and other[0] < one[1]
