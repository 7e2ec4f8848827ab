"""A filter before the maps in front of it, in the user's source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import libcst as cst

from xttsbench.fixes.batch_first.patch import before_maps
from xttsbench.fixes.before_maps import passed_maps
from xttsbench.targets.source.calls import Calls
from xttsbench.targets.source.edits import Found, NoEditError, Replacement, argument
from xttsbench.targets.source.module import Link, Module


def filter_first(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The first filter that looks only at what maps hand through, before those maps."""
    found = Found(why_not="no .filter(...) comes behind a .map(...) that hands through all that it looks at")
    for one in calls.of_kind("filter"):
        maps, seen = passed_maps(one, calls.pipeline)
        if maps and seen and not found.changes:
            found = before_maps(calls, one, maps[::-1], extra=partial(_predicate, seen))
    return [found]


def _predicate(seen: dict[int, int], module: Module, links: Sequence[Link]) -> Sequence[Replacement]:
    """Edits of the filter's function so that it takes the parameters of the first of the maps.

    A function of one parameter before and after is left as it is: its element may be a dict, which it knows by its
    keys. Otherwise components are parameters, by position.
    """
    predicate, function = _function(module, links[-1], "predicate"), _function(module, links[0], "map_func")
    taken = None if function is None else _plain_count(function.params)
    if predicate is None or (taken is None and _plain_count(predicate.params) != 1):
        raise NoEditError("the parameters of the functions are not known from the source")
    given = predicate.params
    positional = (*given.posonly_params, *given.params)
    names = [one.name.value for one in positional]
    needed = len([one for one in positional if one.default is None])
    takes_more = isinstance(given.star_arg, cst.Param)
    one_element = len(names) == 1 and not takes_more and taken in (1, None)
    accepts = taken is not None and needed <= taken and (takes_more or len(names) >= taken)
    if one_element or (accepts and all(number == component for number, component in seen.items())):
        return ()
    fixed = needed == len(names) and not takes_more and not given.kwonly_params
    fits = all(number < len(names) and component < (taken or 0) for number, component in seen.items())
    if not isinstance(predicate, cst.Lambda) or taken is None or not fixed or not fits:
        raise NoEditError("the filter's function does not take what the map takes")
    used = {name.value for name in module.inside(predicate.body, cst.Name) if module.reads(name)}
    wanted = {component: names[number] for number, component in seen.items()}
    if used & set(names) - set(wanted.values()) or len(wanted) < len(seen):
        raise NoEditError("the filter's function uses more of its parameters than the result depends on")
    free = (name for name in ("_", *(f"_{number}" for number in range(1, taken + 1))) if name not in wanted.values())
    written = [wanted.get(component) or next(free) for component in range(taken)]
    return (Replacement(module.start(positional[0]), module.end(positional[-1]), ", ".join(written)),)


def _function(module: Module, link: Link, name: str) -> cst.Lambda | cst.FunctionDef | None:
    """The function that a link is given, where it is written in the file."""
    given = argument(link, name, 0)
    value = given.value if given is not None else None
    if isinstance(value, cst.Lambda) or not isinstance(value, cst.Name):
        return value if isinstance(value, cst.Lambda) else None
    found = [one.node for one in module.assignments(value.value, value)]
    return found[0] if len(found) == 1 and isinstance(found[0], cst.FunctionDef) else None


def _plain_count(given: cst.Parameters) -> int | None:
    """Number of parameters of a function that takes a fixed number of them."""
    named = (*given.posonly_params, *given.params)
    several = isinstance(given.star_arg, cst.Param) or given.star_kwarg or given.kwonly_params
    return None if several or any(one.default for one in named) else len(named)
