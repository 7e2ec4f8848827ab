"""Names of a report as people read them: files by short paths, the graph's ops by calls, fixes by what they do.

Records keep the names of the graph (``MapDataset/_3``) and of fixes (``cache@MapDataset/_3``); no output for people has
them, whatever text of the record it shows: :func:`spoken` goes over a whole document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import reduce
from pathlib import PurePath
from typing import Any, Final

from xttsbench.evidence.pipeline import function_of
from xttsbench.fixes.registry import said
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import PipelineOp
from xttsbench.records.report import Report
from xttsbench.reporting import document as doc
from xttsbench.reporting.sections import on_cpu, pipeline_of
from xttsbench.reporting.sections.pipeline import name as call_of
from xttsbench.reporting.words import short_path

_LAMBDA: Final = re.compile(r"\b(\w+)\.<locals>\.<lambda>\(\)")
_NESTED: Final = re.compile(r"(?<![\w.<])(?:[\w.]+\.<locals>\.)+(\w+\(\))")
"""A function as Python names it, which people know by its own name alone."""
_DEVICE: Final = re.compile(r"\breal device\b")
_TWICE: Final = re.compile(r" \([^\s()]*?([^\s()/]+:\d+)\)( \((?:[^\s()]*/)?\1\))")
"""A line after the name of a call that tells it from others, and again as its place."""

_LONGEST: Final = 60  # Characters of a path that is shown whole
_BOUNDS: Final = re.compile(r"\((?=[\d.,]+ to [\d.,]+\))")


def short(file: str, report: Report) -> str:
    """A file from the directory of the command on, where that is known and the file is in it; else its path's end."""
    name = str(report.target.get("name", "")).rpartition(":")[0] or str(report.target.get("name", ""))
    own = f"/{name.removeprefix('./') if name.endswith('.py') else name.replace('.', '/') + '.py'}"
    roots = {at.removesuffix(own) for at in _files(report) if at.endswith(own)}
    inside = file.removeprefix(f"{roots.pop()}/") if len(roots) == 1 else file
    fits = inside != file and len(inside) <= _LONGEST and "site-packages" not in inside
    return inside if fits else short_path(file)


def _files(report: Report) -> set[str]:
    """Files of the report's ops and findings."""
    places = (*(op.location for op in ops_of(report)), *(one.location for one in report.findings))
    return {at.file for at in places if at.file}


def with_calls(text: str, report: Report) -> str:
    """A sentence of the record as people read it: with short paths, and :func:`speaker`'s words in place of names."""
    return speaker(report)(text)


def speaker(report: Report) -> Callable[[str], str]:
    """Function that shortens paths, puts calls in place of the graph's ops, and what a fix does in place of its name.

    Where several ops are of one call, function and line follow: ``map of crop() (data.py:12)``. A name that is a word
    of its own (``prefetch``) stays. Of several with the same line it is said which, counted from the source.
    """
    ops = ops_of(report)
    calls = [call_of(op) for op in ops]
    words = {}
    for op, call in zip(ops, calls, strict=True):
        at = op.location
        line = f" ({at.file}:{at.line})" if at.file and at.line and calls.count(call) > 1 else ""
        own = function_of(op) if line else "f"
        words[op.name] = call + (f" of {own}()" if own != "f" else "") + line
    every = list(words.values())
    for number, (name, told) in enumerate(words.items()):
        if told.endswith(")") and (count := every.count(told)) > 1:
            words[name] = f"{told[:-1]}, number {every[: number + 1].count(told)} of {count})"
    parts = {str(fix): said((fix,)) for found in report.fixes for fix in FixSet.of(found.fixes)}
    fixes = parts | {one.name: one.words for one in report.fixes}
    named = _replacing({name: what for name, what in fixes.items() if re.search("[@:+]", name)})
    called = _replacing(words)
    here = "this CPU" if on_cpu(report) else r"\g<0>"
    shown = ((_TWICE, r"\2"), (_DEVICE, here), (_LAMBDA, r"the lambda in \1()"), (_NESTED, r"\1"))
    paths = {file: short(file, report) for file in sorted(_files(report), key=len, reverse=True)}
    ends = [PurePath(file).name for file in paths]
    alone = {PurePath(file).name: path for file, path in paths.items() if ends.count(PurePath(file).name) == 1}
    by_end = re.compile(rf"(?<![\w/.])({'|'.join(map(re.escape, alone)) or '(?!)'})(?=:\d)")

    def say(text: str) -> str:
        text = reduce(lambda said, one: one[0].sub(one[1], said), shown, called(named(text)))
        text = reduce(lambda said, file: said.replace(file, paths[file]), paths, text)
        return by_end.sub(lambda found: alone[found[0]], text)

    return say


def _replacing(words: Mapping[str, str]) -> Callable[[str], str]:
    """Function that replaces whole names in a text, the longest first."""
    names = "|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)"
    found = re.compile(rf"(?<![\w/@-])(?<!--try )(?:{names})(?![\w/])")
    return lambda text: found.sub(lambda match: words[match[0]], text)


def ops_of(report: Report) -> tuple[PipelineOp, ...]:
    """The ops of the report's pipeline; none where it was not read."""
    return pipeline.ops if (pipeline := pipeline_of(report)) is not None else ()


def spoken(document: doc.Document, report: Report) -> doc.Document:
    """The document with words in place of names everywhere but in code and in plots."""
    say = speaker(report)
    return doc.Document(_mapped(document.blocks, say), _mapped(document.summary, say))


def with_level(blocks: tuple[doc.Block, ...]) -> tuple[doc.Block, ...]:
    """The blocks of which the first interval in brackets says what those are."""
    left = [1]

    def say(text: str) -> str:
        said, found = _BOUNDS.subn("(95 % interval: ", text, count=1) if left else (text, 0)
        del left[:found]
        return said

    return tuple(_mapped(blocks, say))


def _mapped(value: Any, say: Callable[[str], str]) -> Any:
    """A block, text or tuple of them with another text."""
    if isinstance(value, str):
        return say(value)
    if isinstance(value, tuple):
        return tuple(_mapped(one, say) for one in value)
    kept = isinstance(value, doc.Code | doc.Figure)
    if kept or not isinstance(value, doc.Cleaned):
        return value
    return replace(value, **{one.name: _mapped(getattr(value, one.name), say) for one in fields(value)})
