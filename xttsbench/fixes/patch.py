"""Fixes as edits of the user's source: gathered fix by fix, checked that the result is Python, shown as a diff."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable, Sequence
from pkgutil import resolve_name
from typing import Final

from xttsbench.fixes.registry import SPECS
from xttsbench.records.base import Location
from xttsbench.records.code import OwnBatches
from xttsbench.records.fix import Edit, Fix, FixSet, Patch
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.trial import Trace
from xttsbench.targets.source.calls import Calls
from xttsbench.targets.source.edits import Change, Found, NoEditError, Step, rendered
from xttsbench.targets.source.module import Module

_ONLY_WHILE: Final = "what it gives is right only while {} is {}, and no edit of this kind keeps such a condition"


def propose(
    fixes: FixSet,
    pipeline: Pipeline,
    read: Callable[[str], str],
    *,
    own: Callable[[str], bool],
    step_place: Location | None = None,
    step_traces: Sequence[Trace] = (),
    own_batches: OwnBatches | None = None,
) -> Patch:
    """Proposes edits of the user's source that give it the fixes.

    Nothing is run or written. A fix of several calls, some of which cannot be edited, has edits for the others and an
    entry in ``unpatched``.

    Args:
        fixes: in the order in which they are applied; an op's name is that of ``pipeline``.
        pipeline: of the target as it stands, with the line that made each op.
        read: a file's text by its name; may raise ``OSError``.
        own: whether a file may be edited: it is the user's, neither generated nor a library's.
        step_place: where the step's function is defined; ``None`` where a Keras model is trained.
        step_traces: of tf.functions, as the target ran.
        own_batches: of a script's training loop that takes no dataset.
    """
    calls = Calls(pipeline, read, own, fixes, step_place, step_traces, own_batches)
    draft = _Draft()
    unpatched: dict[str, list[str]] = {}
    for fix in fixes:
        for found in _found(fix, calls):
            why_not = found.why_not or draft.take(str(fix), found.changes)
            if why_not is not None and why_not not in unpatched.setdefault(str(fix), []):
                unpatched[str(fix)].append(why_not)
    before = {file: calls.module(file).text for file in draft.steps}
    files = {file: rendered(before[file], steps) for file, steps in draft.steps.items()}
    return Patch(
        edits=tuple(draft.edits),
        files=files,
        diff="".join(_diff(file, before[file], text) for file, text in files.items()),
        unpatched={fix: _sentences(why) for fix, why in unpatched.items() if why},
        also=tuple(dict.fromkeys(other for place in draft.places for other in calls.others(*place))),
    )


def _found(fix: Fix, calls: Calls) -> Iterable[Found]:
    spec = SPECS.get(fix.kind)
    if spec is None or spec.patch is None:
        by_hand = spec.by_hand if spec is not None else None
        return [Found(why_not=by_hand or f"no edit of the source is known for {str(fix)!r}")]
    if fix.mark == ":" and fix.number is None:
        return [Found(why_not=f"{str(fix)!r} does not end in a whole number")]
    if calls.settings and not (spec.keeps_conditions or fix.is_of_step):
        return [Found(why_not=_ONLY_WHILE.format(calls.settings[0].name, calls.settings[0].value))]
    return resolve_name(spec.patch)(calls, fix.number, fix.op or "")


class _Draft:
    """The edits that were taken in so far, each checked to leave Python."""

    def __init__(self) -> None:
        self.steps: dict[str, list[Step]] = {}
        self.edits: list[Edit] = []
        self.places: list[tuple[Module, int]] = []
        """Modules and positions of the changes."""

    def take(self, fix: str, changes: Sequence[Change]) -> str | None:
        """Take changes that belong together in, if the files are Python with them; else say why not."""
        drafts: dict[str, list[Step]] = {}
        where = ", ".join(f"{change.module.file}:{change.line}" for change in changes)
        try:
            for change in changes:
                file = change.module.file
                drafts.setdefault(file, list(self.steps.get(file, ()))).extend(change.steps)
            for change in changes:
                _check(change.module.file, rendered(change.module.text, drafts[change.module.file]))
            shown = [_edit(fix, change) for change in changes]
        except NoEditError as error:
            return f"{error} ({where}); write it by hand"
        except (SyntaxError, ValueError) as error:
            return f"the source would not be Python with the edit ({error}); write it by hand at {where}"
        self.steps.update(drafts)
        self.edits += shown
        self.places += [(change.module, change.span[0]) for change in changes]
        return None


def _check(file: str, text: str) -> None:
    """Compile the text, which says more than parsing it: an argument given twice, a name that is both kinds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what the user wrote
        compile(text.removeprefix("\ufeff"), file, "exec", dont_inherit=True)


def _edit(fix: str, change: Change) -> Edit:
    module, (start, end) = change.module, change.span
    begin = module.line_start(start)
    stop = end if module.text[end - 1 : end] in ("\n", "\r") else module.line_stop(end)
    before, after = module.text[begin:stop], rendered(module.text, change.steps, begin, stop)
    return Edit(fix=fix, file=module.file, line=change.line, before=before.rstrip("\r\n"), after=after.rstrip("\r\n"))


def _sentences(why: Sequence[str]) -> str:
    """Each reason as a sentence; what begins with a name of the user's is left as it is written."""
    return " ".join(f"{one[0].upper() if one.split()[0].isalpha() else one[0]}{one[1:]}." for one in why)


def _diff(file: str, before: str, after: str) -> str:
    """Unified diff; a last line without an end is marked as ``patch`` wants it."""
    name = file.lstrip("/")
    lines = difflib.unified_diff(_split(before), _split(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _split(text: str) -> list[str]:
    pieces = text.split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
