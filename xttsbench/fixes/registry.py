"""Every fix there is, in the order in which fixes are applied: none takes away what a later one changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.batch_first import BATCH_FIRST
from xttsbench.fixes.cache import CACHE
from xttsbench.fixes.dataset import DATASET
from xttsbench.fixes.gather import GATHER
from xttsbench.fixes.native import NATIVE
from xttsbench.fixes.open_generator import OPEN_GENERATOR
from xttsbench.fixes.parallel import (
    PARALLEL_INTERLEAVE,
    PARALLEL_MAP,
)
from xttsbench.fixes.prefetch import BUFFER, PREFETCH
from xttsbench.fixes.processes import PROCESSES
from xttsbench.fixes.service import SERVICE
from xttsbench.fixes.spec import Candidate, Setting, Spec
from xttsbench.fixes.step import (
    STEP_GRAPH,
    STEP_NO_XLA,
    STEP_SEVERAL,
    STEP_TRACED_ONCE,
    STEP_XLA,
)
from xttsbench.fixes.thread_pool import THREAD_POOL
from xttsbench.records.fix import Fix, FixSet

SPECS: Final[Mapping[str, Spec]] = {
    spec.name: spec
    for spec in (
        DATASET,
        OPEN_GENERATOR,
        NATIVE,
        PARALLEL_MAP,
        PARALLEL_INTERLEAVE,
        PROCESSES,
        CACHE,
        BATCH_FIRST,
        GATHER,
        SERVICE,
        BUFFER,
        PREFETCH,
        THREAD_POOL,
        STEP_GRAPH,
        STEP_XLA,
        STEP_NO_XLA,
        STEP_SEVERAL,
        STEP_TRACED_ONCE,
    )
}
"""Name -> fix."""
_MOST: Final = 2**31 - 1


def candidates(setting: Setting) -> tuple[Candidate, ...]:
    """The fixes that would change a pipeline, in the order in which they are applied."""
    return tuple(one for spec in SPECS.values() if spec.candidates for one in spec.candidates(setting))


def said(fixes: Iterable[Fix]) -> str:
    """Phrase for the effect of some fixes: ``maps in parallel (32 calls), a private thread pool (32 threads)``."""
    return ", ".join(SPECS[fix.kind].said(fix) if fix.kind in SPECS else str(fix) for fix in fixes)


def combined(sets: Sequence[FixSet]) -> FixSet:
    """All parts of some fixes as one, the faster first given: of two of one kind the first one's number is taken."""
    parts: dict[str, Fix] = {}
    for fix in (fix for one in sets for fix in one):
        # Of several caches the fastest one's alone; what became ops has no Python to move into processes.
        kind = "processes" if fix.kind == "native" else fix.kind
        parts.setdefault(kind, fix)
    order = {kind: number for number, kind in enumerate(SPECS)}
    return FixSet(tuple(sorted(parts.values(), key=lambda fix: order.get(fix.kind, len(order)))))


def spec_of(fix: Fix) -> Spec:
    """The kind of a fix.

    Raises:
        InvalidInputError: there is none of that name.
    """
    if (spec := SPECS.get(fix.kind)) is None:
        own = [known for known in SPECS.values() if known is not DATASET and not known.name.startswith("step:")]
        forms = ", ".join(known.usage for known in own)
        raise InvalidInputError(f"There is no fix named {str(fix)!r}. Use one of {forms}.")
    return spec


def checked(text: str) -> FixSet:
    """The fixes of the dataset that a text names, in the order in which it does.

    Raises:
        InvalidInputError: there is no such fix of the dataset, or what follows its name is missing or wrong.
    """
    found = FixSet.parse(text)
    for fix in found:
        _check(fix)
    return found


def _check(fix: Fix) -> None:
    if fix.is_of_step or fix.kind in ("step", DATASET.name):
        of = "a script's own loop" if fix.kind == DATASET.name else "the training step"
        raise InvalidInputError(f"The fix {str(fix)!r} is one of {of}, not of the dataset. Leave it out here.")
    spec = spec_of(fix)
    if fix.mark == "@" or spec.form == "name@op":
        if spec.form != "name@op" or not fix.op:
            raise InvalidInputError(f"A fix is written {spec.usage}; received {str(fix)!r}.")
    elif spec.form == "name":
        if fix.mark:
            raise InvalidInputError(f"The fix {spec.name!r} takes no number; received {str(fix)!r}. Write {spec.name}.")
    elif (fix.mark or spec.form == "name:n") and not 1 <= (fix.number or 0) <= _MOST:
        raise InvalidInputError(f"{spec.name}:<n> needs a positive whole number up to {_MOST}; received {fix.value!r}.")
