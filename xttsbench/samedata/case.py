"""One case to be judged: the runs, what is known of them, and the words in which a judgement is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xttsbench.records.elements import Elements
from xttsbench.records.fix import How, Semantics
from xttsbench.samedata.order import Difference, InOrder
from xttsbench.samedata.seen import Seen


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Runs of an original and one of a fixed pipeline."""

    originals: tuple[Seen, ...]
    fixed: Seen
    columns: tuple[int, ...]
    """The components that could be read in all runs."""
    names: tuple[str, ...]
    """Of all components."""
    free: bool
    """Whether the order may change: nobody promises it, or giving it up was asked for."""
    gives_up: bool
    """Whether the fixed pipeline gives up an order that the original promises."""
    shuffles: bool
    """Whether the original has random ops."""
    caches: bool
    """Whether the fix may replay what was drawn."""
    compared: InOrder
    """How far the runs are the same, place by place."""

    def name(self, column: int | None) -> str:
        """Path of a component."""
        return "element" if column is None else self.names[column]

    def where(self, found: Difference | None) -> str:
        """A place for a person, counted from 1."""
        if found is None:
            return "no place"
        place = f"epoch {found.epoch + 1}, element {found.element + 1}"
        if found.kind == "value":
            return f"{place}, sample {found.row + 1}, {self.name(found.column)}"
        what = {
            "size": "another number of samples",
            "shape": "another shape",
            "missing": "the fixed pipeline ends before it",
            "extra": "the fixed pipeline goes on where the original ends",
        }
        return f"{place} ({what[found.kind]})"

    def different(self, sentence: str) -> Semantics:
        """The judgement that the data are others."""
        return told(False, "different", sentence, self.compared.elements, self.compared.epochs)

    def unknown(self, sentence: str) -> Semantics:
        """The judgement that it cannot be told."""
        return told(None, "unknown", sentence, self.compared.elements, self.compared.epochs)


def told(equivalent: bool | None, how: How, sentence: str, elements: int = 0, epochs: int = 0) -> Semantics:
    """The judgement, its sentence begun and ended as one."""
    text = sentence.strip()
    text = f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
    return Semantics(equivalent=equivalent, how=how, sentence=text, elements=elements, epochs=epochs)


def many(number: int, what: str) -> str:
    """``1 epoch``, ``12 epochs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def elements_of(run: Seen) -> int:
    """Elements of all epochs."""
    return sum(len(part.sizes) for part in run.passes)


def lost_components(runs: Sequence[Elements]) -> dict[str, str]:
    """Path of each component that could not be read in some run -> why."""
    paths = {path for run in runs for path in run.components}
    return {path: why for run in runs for path, why in run.unknown.items() if path in paths or path == "element"}
