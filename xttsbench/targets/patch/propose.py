"""Fixes, by name, as edits of the source: gathered fix by fix, checked that the result is Python, shown as a diff."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable, Sequence

from xttsbench.records.base import Location
from xttsbench.records.fix import Edit, Patch
from xttsbench.records.pipeline import Pipeline
from xttsbench.targets.patch.buffers import buffered, cached, prefetched, without_inner_prefetches
from xttsbench.targets.patch.calls import Sources
from xttsbench.targets.patch.draft import Step, rendered
from xttsbench.targets.patch.found import Found
from xttsbench.targets.patch.module import Module
from xttsbench.targets.patch.no_edit import NoEditError
from xttsbench.targets.patch.parallelism import in_any_order, parallel
from xttsbench.targets.patch.pool import thread_pool
from xttsbench.targets.patch.reorder import batch_first, filter_first, rebatch
from xttsbench.targets.patch.step import compiled_step

_MADE_PARALLEL = {"parallel-map": "map", "parallel-interleave": "interleave", "parallel-batch": "batch"}
_BY_HAND = {
    "processes": "no call of TensorFlow runs a Python function in processes of its own; apply the saved plan",
    "step:buckets": "which lengths to pad to is a decision about the data: pad to a few fixed lengths before the step",
}


def propose(
    fixes: Sequence[str],
    pipeline: Pipeline,
    read: Callable[[str], str],
    *,
    own: Callable[[str], bool],
    step_place: Location | None = None,
    cache_file: Callable[[str], str] | None = None,
) -> Patch:
    """What to change in the user's source so that it has the fixes.

    Nothing is run or written. A fix of several calls, some of which cannot be edited, has edits for the others and an
    entry in ``unpatched``.

    Args:
        fixes: names of fixes, one each, in the order in which they are applied; an op's name is that of ``pipeline``.
        pipeline: of the target as it stands, with the line that made each op.
        read: a file's text by its name; may raise ``OSError``.
        own: whether a file may be edited: it is the user's, neither generated nor a library's.
        step_place: where the step's function is defined; ``None`` where a Keras model is trained.
        cache_file: where ``cache-file@<op>`` keeps the elements, by the op's name; by default a file beside the
            program that is named after the op.
    """
    sources = Sources(pipeline, read, own)
    modules: dict[str, Module] = {}
    steps: dict[str, list[Step]] = {}
    edits: list[Edit] = []
    unpatched: dict[str, list[str]] = {}
    for fix in fixes:
        for found in _found(fix, fixes, sources, step_place, cache_file):
            why_not = found.why_not or _added(fix, found, modules, steps, edits)
            if why_not is not None and why_not not in unpatched.setdefault(fix, []):
                unpatched[fix].append(why_not)
    files = {file: rendered(modules[file].text, made) for file, made in steps.items() if made}
    return Patch(
        edits=tuple(edits),
        files=files,
        diff="".join(_diff(file, modules[file].text, text) for file, text in files.items()),
        unpatched={fix: _sentences(why) for fix, why in unpatched.items() if why},
    )


def _found(
    fix: str,
    fixes: Sequence[str],
    sources: Sources,
    step_place: Location | None,
    cache_file: Callable[[str], str] | None,
) -> Iterable[Found]:
    """The edits of one fix; always at least one entry."""
    if fix in ("step:graph", "step:xla"):
        return [compiled_step(sources, step_place, xla=fix == "step:xla")]
    name, op = (fix.partition("@")[0], fix.partition("@")[2]) if "@" in fix else (fix.partition(":")[0], "")
    try:
        count = int(fix.partition(":")[2]) if ":" in fix and not op and fix not in _BY_HAND else None
    except ValueError:
        return [Found(why_not=f"{fix!r} does not end in a whole number")]
    any_order = "any-order" in fixes
    if name in _MADE_PARALLEL:
        method = _MADE_PARALLEL[name]
        found = list(parallel(sources, method, count, already=False, any_order=any_order))
        if not found and method == "interleave" and count is not None:
            found = list(parallel(sources, method, count, already=True, any_order=any_order))
        if method == "interleave":
            found += _flat_maps(sources, nothing=not found)
        return found or [Found(why_not=f"the pipeline has no sequential .{method}(...)")]
    if name == "calls":
        found = list(parallel(sources, "map", count, already=True, any_order=any_order))
        return found or [Found(why_not="the pipeline has no parallel .map(...)")]
    if name == "any-order":
        made = frozenset(
            _MADE_PARALLEL[one] for one in (other.partition(":")[0] for other in fixes) if one in _MADE_PARALLEL
        )
        return list(in_any_order(sources, made)) or [Found(why_not="the pipeline has no parallel call")]
    if name == "prefetch":
        return [prefetched(sources, count)]
    if name == "buffer":
        return [buffered(sources, count)]
    if name == "drop-prefetch":
        return list(without_inner_prefetches(sources))
    if name == "thread-pool" and count is not None:
        return [thread_pool(sources, count)]
    if name == "cache":
        return [cached(sources, op, None)]
    if name == "cache-file":
        return [cached(sources, op, cache_file(op) if cache_file else f"{op.replace('/', '-')}.cache")]
    if name == "filter-first":
        return [filter_first(sources)]
    if name == "batch-first":
        return [batch_first(sources)]
    if name == "rebatch":
        return [rebatch(sources)]
    return [Found(why_not=_BY_HAND.get(fix) or _BY_HAND.get(name) or f"no edit of the source is known for {fix!r}")]


def _flat_maps(sources: Sources, *, nothing: bool) -> list[Found]:
    flat = [op for op in sources.pipeline.ops if op.op == "FlatMapDataset"]
    if not flat:
        return []
    why = (
        ".flat_map(...) has no argument for reading ahead in order; apply the saved plan, or write "
        ".interleave(..., num_parallel_calls=tf.data.AUTOTUNE, deterministic=True), which mixes the files, in its place"
    )
    return [Found(why_not=f"{why} at {op.location.file}:{op.location.line}") for op in flat] if nothing else []


def _added(
    fix: str, found: Found, modules: dict[str, Module], steps: dict[str, list[Step]], edits: list[Edit]
) -> str | None:
    """Take edits that belong together in, if the files are Python with them; else why not."""
    drafts: dict[str, list[Step]] = {}
    shown: list[Edit] = []
    try:
        for module, change in found.changes:
            modules[module.file] = module
            draft = drafts.setdefault(module.file, list(steps.get(module.file, ())))
            draft.extend(change.steps)
            before, after = _lines(module, change.start, change.end, change.steps)
            shown.append(Edit(fix=fix, file=module.file, line=change.line, before=before, after=after))
        for file, draft in drafts.items():
            _check(file, rendered(modules[file].text, draft))
    except NoEditError as error:
        where = ", ".join(f"{module.file}:{change.line}" for module, change in found.changes)
        return f"{error} ({where}); write it by hand"
    except (SyntaxError, ValueError) as error:
        where = ", ".join(f"{module.file}:{change.line}" for module, change in found.changes)
        return f"the source would not be Python with the edit ({error}); write it by hand at {where}"
    steps.update(drafts)
    edits.extend(shown)
    return None


def _check(file: str, text: str) -> None:
    """Compile the text, which says more than parsing it: an argument given twice, a name that is both kinds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what the user wrote
        compile(text, file, "exec", dont_inherit=True)


def _lines(module: Module, start: int, end: int, steps: Sequence[Step]) -> tuple[str, str]:
    """The lines that an edit is in, as they stand and with this edit alone."""
    begin = module.line_start(start)
    stop = end if module.text[end - 1 : end] in ("\n", "\r") else module.line_stop(end)
    return module.text[begin:stop].rstrip("\r\n"), rendered(module.text, steps, begin, stop).rstrip("\r\n")


def _sentences(why: Sequence[str]) -> str:
    """Each reason as a sentence; what begins with a name of the user's is left as it is written."""
    return " ".join(f"{one[0].upper() if one.split()[0].isalpha() else one[0]}{one[1:]}." for one in why)


def _diff(file: str, before: str, after: str) -> str:
    """Unified diff; a last line without an end is marked as ``patch`` wants it."""
    name = file.lstrip("/")
    lines = difflib.unified_diff(_split(before), _split(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _split(text: str) -> list[str]:
    """Lines with their ends; a lone carriage return ends none, as in ``patch``."""
    pieces = text.split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
