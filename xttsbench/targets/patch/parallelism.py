"""Calls in parallel, and in any order: arguments of ``map``, ``interleave`` and ``batch``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.patch.arguments import argument, with_argument
from xttsbench.targets.patch.calls import Sources, kind, place
from xttsbench.targets.patch.draft import Change, Replacement
from xttsbench.targets.patch.found import Found
from xttsbench.targets.patch.module import Link, Module
from xttsbench.targets.patch.no_edit import NoCallError, NoEditError, NothingToDoError
from xttsbench.targets.patch.spelling import autotune_or

_CALLS_AT: Final = {"map": 1, "interleave": 3, "batch": 2}
"""Method -> position of ``num_parallel_calls``; ``deterministic`` comes next."""


def parallel(sources: Sources, method: str, count: int | None, *, already: bool, any_order: bool) -> Iterator[Found]:
    """Every sequential op of a kind made parallel, or with ``already`` every parallel one given ``count`` calls.

    Args:
        sources: of the pipeline.
        method: ``map``, ``interleave`` or ``batch``.
        count: calls; ``None`` is AUTOTUNE.
        already: whether it is about the ops that are parallel.
        any_order: whether the order need not be kept, so that ``deterministic=False`` may stand.
    """
    ops = [op for op in sources.pipeline.ops if kind(op) == method and (op.op.startswith("Parallel") == already)]
    meant = frozenset(op.name for op in ops)

    def edit(module: Module, link: Link) -> Change:
        value = autotune_or(module, link.node, count)
        steps = [with_argument(module, link, "num_parallel_calls", _CALLS_AT[method], value)]
        if not any_order and not already and _order_lost(sources, module, link, method):
            steps.append(with_argument(module, link, "deterministic", _CALLS_AT[method] + 1, "True"))
        return _change(module, link, steps)

    by_hand = f"num_parallel_calls={'tf.data.AUTOTUNE' if count is None else count} as an argument of .{method}(...)"
    yield from _each(sources, ops, meant, edit, by_hand)


def in_any_order(sources: Sources, made_parallel: frozenset[str]) -> Iterator[Found]:
    """``deterministic=False`` at every parallel op, and at those that other fixes of the patch make parallel."""
    ops = [
        op
        for op in sources.pipeline.ops
        if kind(op) in _CALLS_AT and (op.op.startswith("Parallel") or kind(op) in made_parallel)
    ]

    def edit(module: Module, link: Link) -> Change:
        return _change(module, link, [with_argument(module, link, "deterministic", _CALLS_AT[link.name] + 1, "False")])

    meant = frozenset(op.name for op in ops)
    yield from _each(sources, ops, meant, edit, "deterministic=False as an argument of the parallel calls")


def _each(
    sources: Sources,
    ops: list[PipelineOp],
    meant: frozenset[str],
    edit: Callable[[Module, Link], Change],
    by_hand: str,
) -> Iterator[Found]:
    done: set[Link] = set()
    for op in ops:
        where = place(op)
        try:
            module, link = sources.call(op, meant, kind(op))
            where = f"{module.file}:{link.line}"
            if link not in done:
                done.add(link)
                yield Found(((module, edit(module, link)),))
        except NothingToDoError as error:
            yield Found(why_not=str(error))
        except NoCallError as error:
            yield Found(why_not=f"{error}; apply the saved plan")
        except NoEditError as error:
            yield Found(why_not=f"{error}; write {by_hand} at {where}")


def _change(module: Module, link: Link, steps: Sequence[Replacement | None]) -> Change:
    made = tuple(step for step in steps if step is not None)
    if not made:
        raise NothingToDoError(f".{link.name}(...) of {module.file}:{link.line} says so already")
    return Change(link.start, max(link.end, *(step.end for step in made)), link.line, made)


def _order_lost(sources: Sources, module: Module, link: Link, method: str) -> bool:
    """Whether a sequential call that becomes parallel would give up the order: it, or the options, ask for that."""
    given = argument(module, link, "deterministic", _CALLS_AT[method] + 1)
    if given is None:
        return sources.pipeline.deterministic is False
    value = given.node.value if isinstance(given.node, ast.keyword) else given.node
    if isinstance(value, ast.Constant) and value.value is None:
        return sources.pipeline.deterministic is False
    return not (isinstance(value, ast.Constant) and value.value is True)
