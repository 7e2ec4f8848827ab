"""Which cases are optimized: those of the diagnosis benchmark whose dataset is at fault, and one of its own.

Pure. Nothing of the corpus is copied: a case's original is its function, the hand-tuned version the same function with
``tuned=True``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
sys.path.append(str(HERE.parent / "diagnosis"))

from cases import Case  # noqa: E402 - the path comes first
from known import CASES  # noqa: E402

_OF_THE_STEP = "steps"  # the family whose fault is in the step alone


@dataclass(frozen=True)
class OwnCase(Case):
    """A case whose code lies beside this file."""

    @property
    def file(self) -> Path:
        """Where its code is."""
        return HERE / f"{self.family}.py"


PROCESSOR_BOUND = OwnCase("decoded_every_epoch", "processor_bound", ("input",), fixes=("cache@",))
"""All of its time is the processors' own, so that no parallelism helps and only not doing the work again does."""


def faulty_cases() -> tuple[Case, ...]:
    """All cases with something to mend in the dataset, the benchmark's own last."""
    corpus = (case for case in CASES if not case.healthy and case.family != _OF_THE_STEP)
    return (*corpus, PROCESSOR_BOUND)


def chosen(names: Sequence[str]) -> tuple[Case, ...]:
    """The cases of these names, in the given order, those at fault in their step too; without names all others.

    Raises:
        KeyError: there is no such case, or nothing to mend in it.
    """
    if not names:
        return faulty_cases()
    by_name = {case.name: case for case in (*CASES, PROCESSOR_BOUND) if not case.healthy}
    return tuple(by_name[name] for name in dict.fromkeys(names))


def reachable(case: Case) -> bool:
    """Whether the hand-tuned version is a rewrite of the original; else it is another function."""
    return bool(case.fixes)
