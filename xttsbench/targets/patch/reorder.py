"""Links in another order: a filter, or a batch, before the maps in front of it; an unbatch and its batch as one."""

from __future__ import annotations

import ast

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.patch.arguments import argument
from xttsbench.targets.patch.calls import Sources, kind, one_module, place
from xttsbench.targets.patch.chains import moved_first, removed
from xttsbench.targets.patch.draft import Change, Replacement
from xttsbench.targets.patch.found import Found
from xttsbench.targets.patch.module import Link, Module
from xttsbench.targets.patch.no_edit import NoEditError
from xttsbench.targets.patch.spelling import parameters


def filter_first(sources: Sources) -> Found:
    """The first filter that looks only at what maps hand through, before those maps."""
    why = "no .filter(...) comes behind a .map(...) that hands through all that it looks at"
    for op in sources.pipeline.ops:
        maps, seen = _passed_maps(sources, op) if kind(op) == "filter" else ([], {})
        if not maps:
            continue
        try:
            links = [sources.call(one, (one.name,)) for one in (*maps, op)]
            module = one_module(links)
            chain = [link for _, link in links]
            extra = _predicate(module, chain[-1], chain[0], seen)
            return Found(((module, moved_first(module, chain, extra)),))
        except NoEditError as error:
            why = f"{error}; write the .filter(...) of {place(op)} before the .map(...) of {place(maps[0])}"
    return Found(why_not=why)


def batch_first(sources: Sources) -> Found:
    """The first batch behind maps, before those maps, whose functions then work on whole batches."""
    why = "no .batch(...) comes directly behind a .map(...)"
    for op in sources.pipeline.ops:
        maps = _maps_before(sources, op) if kind(op) == "batch" else []
        if not maps:
            continue
        try:
            links = [sources.call(one, (one.name,)) for one in (*maps, op)]
            module = one_module(links)
            return Found(((module, moved_first(module, [link for _, link in links])),))
        except NoEditError as error:
            why = (
                f"{error}; write the .batch(...) of {place(op)} before the .map(...) of {place(maps[0])}, "
                "with a function that works on whole batches"
            )
    return Found(why_not=why)


def rebatch(sources: Sources) -> Found:
    """The first ``.unbatch().batch(n)`` as ``.rebatch(n)``."""
    why = "no .batch(...) comes directly behind an .unbatch()"
    by_name = {one.name: one for one in sources.pipeline.ops}
    for op in sources.pipeline.ops:
        apart = by_name.get(op.inputs[0]) if kind(op) == "batch" and len(op.inputs) == 1 else None
        if apart is None or kind(apart) != "unbatch":
            continue
        try:
            links = [sources.call(one, (one.name,)) for one in (apart, op)]
            module, (unbatch, batch) = one_module(links), [link for _, link in links]
            follows = moved_first(module, (unbatch, batch))  # refuses what does not follow, or has other readers
            for name, position in (("num_parallel_calls", 2), ("deterministic", 3)):
                if argument(module, batch, name, position) is not None:
                    raise NoEditError(f".rebatch(...) takes no {name}")
            named = module.tokens[batch.opening - 1]
            if named.text != batch.name:
                raise NoEditError(f"the name of .{batch.name}(...) stands in brackets")
            steps = (*removed(module, unbatch).steps, Replacement(named.start, named.end, "rebatch"))
            return Found(((module, Change(follows.start, follows.end, batch.line, steps)),))
        except NoEditError as error:
            why = f"{error}; write .rebatch(...) in place of .unbatch() and .batch(...) at {place(op)}"
    return Found(why_not=why)


def _maps_before(sources: Sources, op: PipelineOp) -> list[PipelineOp]:
    """The maps directly above an op that nothing else reads, sources first."""
    by_name = {one.name: one for one in sources.pipeline.ops}
    found: list[PipelineOp] = []
    current = op
    while len(current.inputs) == 1:
        above = by_name.get(current.inputs[0])
        readers = [one for one in sources.pipeline.ops if above is not None and above.name in one.inputs]
        if above is None or kind(above) != "map" or len(readers) != 1:
            break
        found.insert(0, above)
        current = above
    return found


def _passed_maps(sources: Sources, op: PipelineOp) -> tuple[list[PipelineOp], dict[int, int]]:
    """The maps that a filter can go before, and where it then finds what it looks at: its component -> theirs."""
    if not op.reads:  # nothing, or not worked out
        return [], {}
    passed: list[PipelineOp] = []
    seen = {number: number for number in op.reads}
    for above in reversed(_maps_before(sources, op)):
        if not all(number in above.passes for number in seen.values()):
            break
        seen = {number: above.passes[component] for number, component in seen.items()}
        passed.insert(0, above)
    return passed, seen


def _predicate(module: Module, moved: Link, first: Link, seen: dict[int, int]) -> tuple[Replacement, ...]:
    """What to change in the filter's function so that it takes what the first of the maps takes.

    A function of one parameter before and after is left as it is: its element may be a dict, which it knows by its
    keys. Otherwise components are parameters, by position.

    Raises:
        NoEditError: its parameters do not fit, and it is not a lambda whose parameters can be written anew.
    """
    predicate, function = _function(module, moved, "predicate"), _function(module, first, "map_func")
    taken = None if function is None else _plain_count(function.args)
    if predicate is None or (taken is None and _plain_count(predicate.args) != 1):
        raise NoEditError("the parameters of the functions are not known from the source")
    given = predicate.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    needed = len(names) - len(given.defaults)
    one_element = names and len(names) == 1 and given.vararg is None and taken in (1, None)
    accepts = taken is not None and needed <= taken and (given.vararg is not None or len(names) >= taken)
    if one_element or (accepts and all(number == component for number, component in seen.items())):
        return ()
    if not isinstance(predicate, ast.Lambda) or taken is None or given.defaults or given.vararg or given.kwonlyargs:
        raise NoEditError("the filter's function does not take what the map takes")
    if not all(number < len(names) and component < taken for number, component in seen.items()):
        raise NoEditError("the filter's function does not take what the map takes")
    used = {node.id for node in ast.walk(predicate.body) if isinstance(node, ast.Name)}
    wanted = {component: names[number] for number, component in seen.items()}
    if used & set(names) - set(wanted.values()) or len(wanted) < len(seen):
        raise NoEditError("the filter's function uses more of its parameters than the result depends on")
    free = (name for name in ("_", *(f"_{number}" for number in range(1, taken + 1))) if name not in wanted.values())
    written = [wanted.get(component) or next(free) for component in range(taken)]
    start, end = module.span(given.args[0])[0], module.span(given.args[-1])[1]
    return (Replacement(start, end, ", ".join(written)),)


def _function(module: Module, link: Link, name: str) -> ast.Lambda | ast.FunctionDef | None:
    """The function that a link is given, where it is written in the file."""
    given = argument(module, link, name, 0)
    value = given.node.value if given is not None and isinstance(given.node, ast.keyword) else given and given.node
    if isinstance(value, ast.Lambda):
        return value
    if not isinstance(value, ast.Name):
        return None
    found = [one for one in module.source.nodes if isinstance(one, ast.FunctionDef) and one.name == value.id]
    scopes = [module.source.tree, *module.source.ancestors(link.node)]
    found = [one for one in found if module.source.scope(one) in scopes]
    return found[0] if len(found) == 1 else None


def _plain_count(given: ast.arguments) -> int | None:
    """Number of parameters of a function that takes a fixed number of them."""
    return len(parameters(given)) if not (given.vararg or given.kwarg or given.kwonlyargs or given.defaults) else None
