"""A scenario by its name or its file: found, read, validated, and changed as the command line asks.

A YAML file is read with the line of every key, so that an error found later can name the place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError, UsageError, first_line
from xttsbench.inputs import read_text
from xttsbench.limited_yaml import parse
from xttsbench.scenario.problems import (
    ArgumentCheck,
    Check,
    KeyPath,
    Problem,
    of_the_arms,
    of_the_whole,
    of_types,
    unchecked,
)
from xttsbench.scenario.settings import BUNDLED, MOST_ARMS, Scenario, Space


def load_scenario(
    path: Path,
    *,
    target: Check,
    accelerator: Check,
    arguments: ArgumentCheck = unchecked,
    most_arms: int = MOST_ARMS,
) -> Scenario:
    """Read and validate a scenario.

    The checks of the target's name, the accelerator's text and the arguments of each configuration of the bundled
    workload raise errors of ours.

    Raises:
        InvalidInputError: the file cannot be read, or is no scenario; the message lists everything that is wrong, each
            with its line and key path.
    """
    file = read_yaml(path)
    problems = [*file.problems, *of_the_whole(file.content, target=target, accelerator=accelerator)]
    scenario = None
    try:
        scenario = Scenario.model_validate(file.content)
    except ValidationError as error:
        known = {place for place, _ in problems}
        problems += [problem for problem in of_types(error, file.content) if problem[0] not in known]
    problems += _of_its_arms(file.content, arguments=arguments, most_arms=most_arms)
    if problems or scenario is None:
        raise InvalidInputError(_listed(file, problems))
    return scenario


def changed(
    scenario: Scenario,
    changes: Mapping[str, Any],
    base: Mapping[str, Any],
    *,
    arguments: ArgumentCheck = unchecked,
    most_arms: int = MOST_ARMS,
) -> Scenario:
    """The scenario with options of the command line in place of its own.

    A change to ``None`` leaves a field as it is; ``base`` is put on top of the arguments that all share.

    Raises:
        UsageError: a value is out of range, the target takes no data, or a configuration sets the keyword itself.
    """
    own = {key for arm in scenario.arms or [] for key in arm.config} | {*(scenario.grid or {})}
    taken = next((key for key in base if key in own), None)
    if taken is not None:
        raise UsageError(
            f"--set {taken}={base[taken]}: the configurations of {scenario.name!r} set {taken!r} themselves."
        )
    if changes.get("data") is not None and not scenario.bundled:
        raise UsageError("--data is for the bundled workload; give your target its data with --set KEY=VALUE.")
    wanted = {key: value for key, value in changes.items() if value is not None}
    fields = scenario.model_dump(by_alias=True) | wanted | {"base": scenario.base | dict(base)}
    try:
        found = Scenario.model_validate(fields)
    except ValidationError as error:
        place, sentence = next(iter(of_types(error, fields)))
        option = f"set {place[1]}" if place[0] == "base" and len(place) > 1 else str(place[0]).removesuffix("_s")
        raise UsageError(f"--{option}: {sentence}.") from error
    check = arguments if found.bundled else unchecked
    problem = next(of_the_arms(found, arguments=check, most=most_arms), None) if base else None
    if problem is not None:
        settings = " ".join(f"--set {key}={value}" for key, value in base.items())
        raise UsageError(f"{settings}: {'.'.join(map(str, problem[0]))}: {problem[1]}.")
    return found


def _of_its_arms(content: Mapping[str, Any], *, arguments: ArgumentCheck, most_arms: int) -> list[Problem]:
    """Problems of the expanded configurations, found also where other parts of the scenario are wrong."""
    try:
        space = Space.model_validate({key: content[key] for key in Space.model_fields if key in content})
    except ValidationError:  # told already
        return []
    if space.arms and space.grid:  # told already: which of them is meant is not known
        return []
    bundled = content.get("workload") is not None or content.get("target") == BUNDLED
    sweep = content.get("sweep")
    cost = sweep.get("cost") if isinstance(sweep, dict) else None
    keys = cost if isinstance(cost, list) and all(isinstance(key, str) for key in cost) else []
    return list(of_the_arms(space, cost=keys, arguments=arguments if bundled else unchecked, most=most_arms))


def _listed(file: YamlFile, problems: list[Problem]) -> str:
    parts = []
    for place, sentence in sorted(problems, key=lambda problem: file.line(problem[0]) or 0):
        where = f"line {line}, " if (line := file.line(place)) else ""
        parts.append(f"{where}{'.'.join(map(str, place)) or 'the file'}: {sentence}")
    count = f"{len(parts)} problems" if len(parts) > 1 else "1 problem"
    return f"{file.path} has {count}: {'; '.join(parts)}."


@dataclass(frozen=True)
class YamlFile:
    """Parsed YAML file.

    Attributes:
        content: the mapping at its top.
        lines: line, from 1, of each key path.
        problems: what is wrong with the YAML itself although it could be read: a key given twice.
    """

    path: Path
    content: dict[str, Any]
    lines: dict[KeyPath, int]
    problems: tuple[Problem, ...]

    def line(self, place: KeyPath) -> int | None:
        """Line of a key path, or of the nearest one above it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


def read_yaml(path: Path) -> YamlFile:
    """Read a file that holds one mapping.

    Raises:
        InvalidInputError: it is missing, a directory, not text, not YAML, too large, or holds something else.
    """
    text = _text(path)
    try:
        node, content = parse(text, exponents=True)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise InvalidInputError(f"{path}{where}: not YAML: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise InvalidInputError(f"{path}: not YAML: {first_line(error)}.") from error
    if not isinstance(node, yaml.MappingNode):
        found = "nothing" if node is None else "a list" if isinstance(node, yaml.SequenceNode) else "one value"
        raise InvalidInputError(f"{path}: expected a mapping of keys to values, and the file holds {found}.")
    problems: list[Problem] = []
    lines = dict(_walk(node, (), problems))
    return YamlFile(path, content, lines, tuple(problems))


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InvalidInputError(f"{path} is a directory; name a YAML file in it.")
        return read_text(path)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"{str(path)!r} cannot be read as text: {reason}.") from error


def _walk(node: yaml.Node, place: KeyPath, problems: list[Problem]) -> Iterator[tuple[KeyPath, int]]:
    """Key paths below a node with their lines; keys that are given twice go to ``problems``."""
    yield place, node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, (*place, index), problems)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen and name != "<<":
                problems.append(((*place, name), f"given twice, first in line {seen[name]}"))
            seen[name] = line
            yield (*place, name), line
            below = _walk(value, (*place, name), problems)
            next(below)  # the key's own line is the better place
            yield from below
