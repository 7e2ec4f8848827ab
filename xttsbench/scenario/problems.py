"""What is wrong with a scenario, in words: pydantic's errors, and keys that exclude one another."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from xttsbench.errors import XttsbenchError
from xttsbench.scenario.fields import Settings
from xttsbench.scenario.settings import BUNDLED, LimitSettings, Scenario, SweepSettings
from xttsbench.scenario.space import ArmSettings, Bounds, NamedRange, Range
from xttsbench.scenario.yaml_file import KeyPath, Problem

Check = Callable[[str], object]
"""Raises an error of ours where a text cannot be used."""

_EXPECTED: Final = {
    "int_type": "a whole number is expected",
    "float_type": "a number is expected",
    "string_type": "text is expected",
    "bool_type": "true or false is expected",
    "list_type": "a list is expected",
    "dict_type": "keys with values are expected",
    "model_type": "keys with values are expected",
    "model_attributes_type": "keys with values are expected",
    "string_pattern_mismatch": "letters, digits and . , = + - _ are expected",
    "too_short": "it is empty",
}
_BELOW: Final[dict[str, type[Settings]]] = {
    "arms": ArmSettings,
    "limits": LimitSettings,
    "sweep": SweepSettings,
    "(range)": Range,
    "(name)": NamedRange,
    "(bounds)": Bounds,
}
"""What holds a key, by the first part of its path or by the form that was read."""


def of_types(error: ValidationError, content: Mapping[str, Any]) -> Iterator[Problem]:
    """The problems of single values."""
    for found in error.errors():
        read = tuple(found["loc"])
        # Pydantic's own marks: which form was tried, and that a key is meant and not its value.
        place: KeyPath = tuple(part for part in read if not (isinstance(part, str) and part[:1] in ("(", "[")))
        if place[:1] == ("accelerator",) and isinstance(content.get("accelerator"), str):
            place = place[:1]
        yield place, sentence(found, _model_at(read))


def sentence(found: ErrorDetails, model: type[Settings]) -> str:
    """What is wrong with a value of a model's field, with what was meant where that can be guessed."""
    kind = found["type"]
    if kind == "missing":
        return "it is missing"
    if kind == "extra_forbidden":
        known = [field.alias or name for name, field in model.model_fields.items()]
        return f"unknown key{meant(found['loc'][-1], known)}"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", found["ctx"]["expected"])
        return f"{shown(found['input'])} is not known here{meant(found['input'], known)}"
    message = _EXPECTED.get(kind) or found["msg"].removeprefix("Value error, ")
    said = message[:1].lower() + message[1:]
    return said if kind in ("value_error", "too_short") else f"{said}, got {shown(found['input'])}"


def meant(written: object, known: Collection[str]) -> str:
    """``; did you mean 'prefetch'?``, or what is known where nothing is near."""
    near = difflib.get_close_matches(str(written)[:60], known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known) or 'none'}"


def shown(value: object) -> str:
    """A value in quotes, cut where it is long."""
    try:
        return repr(str(value)[:60])
    except ValueError:  # Python writes no whole number of thousands of digits
        return "a number of thousands of digits"


def _model_at(read: KeyPath) -> type[Settings]:
    form = next((part for part in read if isinstance(part, str) and part.startswith("(")), None)
    return _BELOW.get(form or str(read[0]), Scenario) if len(read) > 1 else Scenario


def of_the_whole(content: Mapping[str, Any], *, target: Check, accelerator: Check) -> Iterator[Problem]:
    """The problems that no single value has: keys that exclude one another, names that are taken.

    Args:
        content: as read; anything may be anything.
        target: checks a target's name.
        accelerator: checks an accelerator's text.
    """
    named, bundled = content.get("target"), content.get("workload") is not None or content.get("target") == BUNDLED
    if named is not None and content.get("workload") is not None:
        yield ("workload",), "give a target or the workload, not both"
    if named is None and content.get("workload") is None:
        yield ("target",), "it is missing; name what to measure, module:callable, or write workload: xtts"
    if isinstance(named, str):
        yield from _checked(("target",), named, target)
    if content.get("data") is not None and not bundled:
        yield ("data",), "it is for the bundled workload; a target of your own gets its data through base"
    yield from _accelerators(content.get("accelerator"), accelerator)
    for key in ("grid", "zip"):
        if key in content and "arms" in content:
            yield (key,), "give arms or a grid, not both"
    if content.get("skip") and "grid" not in content and "zip" not in content:
        yield ("skip",), "it leaves combinations of a grid out, and there is no grid"
    for key in ("arms", "grid", "zip"):
        if key in content and not content[key] and content[key] is not False:
            yield (key,), "it is empty; leave the key out to measure the base alone"
    yield from _same_ids(content.get("arms"))


def _checked(place: KeyPath, text: str, check: Check) -> Iterator[Problem]:
    try:
        check(text)
    except XttsbenchError as error:
        yield place, str(error).removeprefix("--accelerator ").rstrip(".")


def _accelerators(value: object, check: Check) -> Iterator[Problem]:
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    for index, text in enumerate(texts):
        place: KeyPath = ("accelerator",) if isinstance(value, str) else ("accelerator", index)
        if isinstance(text, str):
            yield from _checked(place, text, check)
            if text in texts[:index]:
                yield place, f"{text!r} is there already"


def _same_ids(arms: object) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, arm in enumerate(arms if isinstance(arms, list) else []):
        name = arm.get("id") if isinstance(arm, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen:
            yield ("arms", index, "id"), f"{name!r} is the id of arm {seen[name]} already"
        seen.setdefault(name, index)
