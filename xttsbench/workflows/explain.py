"""Names and their explanations: verdicts, rules, fixes and symptoms; scenarios, grids and recipes to list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

from xttsbench.errors import UsageError
from xttsbench.files import flushed_file
from xttsbench.findings import RULES
from xttsbench.fixes.registry import SPECS
from xttsbench.records.fix import Fix
from xttsbench.reporting.verdicts import MEANINGS
from xttsbench.reporting.words import part
from xttsbench.shipped import Kind, available, shipped
from xttsbench.targets.spec import TargetSpec, parse_target


@dataclass(frozen=True)
class Explanation:
    """One verdict, rule, fix or symptom in words.

    Attributes:
        name: as reports and the command line have it.
        kind: ``verdict``, ``rule``, ``fix`` or ``symptom``.
        about: what it is about: a heading of the rules' page or of the fixes', or the symptom as people say it.
        summary: one sentence, or the answer to a symptom.
        parts: heading -> text, or lines that stand as they are: names, commands, code.
        aliases: other words for it.
    """

    name: str
    kind: str
    about: str
    summary: str
    parts: Mapping[str, str | tuple[str, ...]]
    aliases: tuple[str, ...] = ()


def explain(name: str) -> Explanation:
    """Explanation of a verdict, rule, fix or symptom; of a rule and a fix of one name, the rule.

    A fix may have its number or op. A symptom may be in any of its words; numbers among them do not count.

    Raises:
        UsageError: for a name that there is not; close ones are listed.
    """
    known: dict[str, Explanation] = {}
    words: dict[str, Explanation] = {}
    for one in explanations():
        known.setdefault(one.name, one)
        words |= {_words(said): one for said in (one.name, one.about, *one.aliases) if one.kind == "symptom"}
    verdicts = {part(one).replace(" ", "-").lower(): one for one in MEANINGS}  # as the screen has them: launch-overhead
    spoken = name.lower().replace(" ", "-")
    fix = Fix.parse(re.split(r"\[|:<", name.lower())[0]).kind  # as usage has it: parallel-map[:<n>], step:several:<n>
    found = known.get(verdicts.get(spoken) or fix) or words.get(_words(name))
    if found is not None:
        return found
    close = get_close_matches(name, known, n=4, cutoff=0.5)
    shared = {one.name: len({*_words(name).split()} & {*said.split()}) for said, one in words.items()}
    close += [one for one in sorted(shared, key=lambda one: -shared[one])[:2] if shared[one] and one not in close]
    near = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
    raise UsageError(f"no verdict, rule, fix or symptom is called {name!r}: {near}")


_FILLERS: Final = {"a", "an", "and", "at", "is", "my", "of", "on", "the", "to"}


def _words(said: str) -> str:
    """Words that tell symptoms apart: no numbers, punctuation or fillers."""
    found = re.findall(r"[a-z_]+", re.sub(r"\d+(st|nd|rd|th)?", "", said.lower()))
    return " ".join(one for one in found if one not in _FILLERS)


def explanations() -> Iterator[Explanation]:
    """Everything that has a name to explain: verdicts, rules and fixes in the order of their pages, symptoms."""
    for name, said in MEANINGS.items():
        yield Explanation(
            name,
            "verdict",
            "What limits the step",
            said.meaning,
            {"How it is recognised": said.evidence, "Remedy": said.remedy},
        )
    examples = _shipped_beside("findings", "examples")
    for about, rules in RULES.items():
        for rule in rules:
            parts: dict[str, str | tuple[str, ...]] = {
                "Threshold": rule.threshold,
                "Remedy": rule.remedy,
                "Known false alarms": rule.false_alarms,
            }
            parts |= {side.capitalize(): tuple(code.splitlines()) for side, code in examples[rule.id].items()}
            fixes = tuple(f"{fix.usage} ({fix.words})" for fix in SPECS.values() if rule.id in fix.mends)
            yield Explanation(rule.id, "rule", about, rule.symptom, parts | ({"Fixes": fixes} if fixes else {}))
    for fix in SPECS.values():
        parts = {"Written": (fix.usage,)}
        if fix.mends:
            parts["Findings that it mends"] = tuple(fix.mends)
        yield Explanation(fix.name, "fix", "Fixes", f"{fix.does[0].upper()}{fix.does[1:]}.", parts)
    for name, one in _shipped_beside("workflows", "symptoms").items():
        parts = {"Commands": tuple(one["commands"]), "What may be behind it": tuple(one["see"])}
        yield Explanation(name, "symptom", one["title"], one["answer"], parts, tuple(one["also"]))


@cache
def _shipped_beside(package: str, name: str) -> Mapping[str, Any]:
    """Texts of a YAML file of one of our packages, read when somebody asks for an explanation."""
    import yaml  # not at the top: the command line starts without it

    found: Mapping[str, Any] = yaml.safe_load((files(f"xttsbench.{package}") / f"{name}.yaml").read_text("utf-8"))
    return found


What = Literal["scenarios", "grids", "recipes", "rules", "fixes", "symptoms"]

_COMMAND: Final = re.compile(r"^# {3}(xttsbench (\w+).*)$", re.MULTILINE)
"""A command in the comment that a shipped file opens with."""
_SWEEP: Final = "sweep"


@dataclass(frozen=True)
class Entry:
    """One thing that has a name.

    Attributes:
        name: as the command line takes it.
        summary: one sentence.
        command: one that uses it.
    """

    name: str
    summary: str
    command: str


def entries(what: What) -> list[Entry]:
    """Entries of a kind: shipped files by name; rules, fixes and symptoms in the order of their pages.

    A grid is a scenario that says itself how it is swept.
    """
    match what:
        case "scenarios":
            return [_shipped("scenarios", name) for name in available("scenarios")]
        case "grids":
            swept = (_shipped("scenarios", name, _SWEEP) for name in available("scenarios"))
            return [one for one in swept if one.command]
        case "recipes":
            return [_shipped("training", name) for name in available("training")]
    kind = what.removesuffix("es" if what == "fixes" else "s")
    of_kind = [one for one in explanations() if one.kind == kind]
    said = [one.about if kind == "symptom" else one.summary for one in of_kind]
    return [Entry(one.name, text, f"xttsbench explain {one.name}") for one, text in zip(of_kind, said, strict=True)]


def _shipped(kind: Kind, name: str, verb: str = "") -> Entry:
    """A shipped file; its command is the last that its opening comment has (of ``verb``, where one is given)."""
    import yaml  # not at the top: the command line starts without it

    text = shipped(kind, name).read_text(encoding="utf-8")
    commands = [found[1] for found in _COMMAND.finditer(text) if verb in ("", found[2])]
    return Entry(name, str(yaml.safe_load(text)["description"]), commands[-1] if commands else "")


ENTRY: Final = "make"
"""The callable of the file."""
_TAKEN: Final = (ENTRY, "settings", "dataset", "sys")

_HEAD: Final = '''\
"""What xttsbench measures: a dataset{what}.

    xttsbench diagnose {file}:make{options}

``make`` is called in fresh processes, several times in a run. It gets ``--set KEY=VALUE`` as keyword arguments. It may
also return (dataset, step), where step(batch) runs one training step, or (dataset, model), a compiled Keras model.
"""

'''
_EXAMPLE: Final = '''\
import tensorflow as tf


def load(index):
    """Put the work on one element here: reading, decoding, augmenting."""
    image = tf.random.stateless_uniform([64, 64], seed=tf.stack([index, 0]))
    return tf.signal.fft2d(tf.cast(image, tf.complex64))


def make(batch_size=32):
    """Return your dataset and your step in place of these."""
    dataset = tf.data.Dataset.range(100_000).map(load).map(tf.abs).batch(batch_size, drop_remainder=True)
    weights = tf.Variable(tf.random.normal([64, 64], seed=1))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(batch, weights)))
        weights.assign_sub(1e-3 * tape.gradient(loss, weights))
        return loss

    return dataset, step
'''


@dataclass(frozen=True)
class Parts:
    """The user's functions, as ``module:callable`` or ``file.py:callable``.

    Attributes:
        dataset: returns the dataset; without it the file holds an example.
        step: takes a batch and runs one training step.
        model: returns a compiled Keras model, in place of ``step``.
    """

    dataset: str | None = None
    step: str | None = None
    model: str | None = None


def write_target(file: Path, parts: Parts) -> None:
    """Write the file; what stands there is never replaced.

    Raises:
        UsageError: there is something of that name, it cannot be written, or the parts do not go together.
        TargetError: a part is not a callable's name, or its file does not exist.
    """
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise UsageError(f"{str(file)!r} cannot be imported; give the file a Python name, e.g. xttsbench_target.py.")
    if parts.step and parts.model:
        raise UsageError("--step and --model: a target has one of them; leave one out.")
    if parts.dataset is None and (parts.step or parts.model):
        raise UsageError("--step and --model need --dataset, which says where the dataset is made.")
    text = _source(file, parts)
    try:
        with flushed_file(file) as handle:
            handle.write(text.encode())
    except FileExistsError as error:
        raise UsageError(f"{file} is there already, and is left as it is; name another file.") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}. Name another file.") from error


def _source(file: Path, parts: Parts) -> str:
    alone = parts.dataset is not None and not parts.step and not parts.model
    head = _HEAD.format(
        what="" if alone else " and its training step",
        file=file,
        options=" --accelerator emulated:20   # without a step, a wait of 20 ms in its place" if alone else "",
    )
    if parts.dataset is None:
        return head + _EXAMPLE
    names = [one for one in (parts.dataset, parts.step or parts.model) if one]
    specs = [parse_target(one) for one in names]
    folder = file.resolve().parent
    calls = _calls(specs)
    returned = "dataset" if alone else f"dataset, {calls[1]}{'' if parts.step else '()'}"
    return (
        head
        + "".join(_imports(specs, folder))
        + f"\n\ndef {ENTRY}(**settings):\n"
        + f"    dataset = {calls[0]}(**settings)\n    return {returned}\n"
    )


def _calls(specs: Iterable[TargetSpec]) -> list[str]:
    return [".".join((_alias(first), *rest)) for first, *rest in (spec.attribute.split(".") for spec in specs)]


def _alias(name: str) -> str:
    return f"their_{name}" if name in _TAKEN else name


def _imports(specs: Iterable[TargetSpec], folder: Path) -> Iterator[str]:
    lines, outside = [], []
    for spec in specs:
        module, place = spec.place, None
        if spec.kind == "file":
            module, place = _module(Path(spec.place), folder)
        name = spec.attribute.split(".")[0]
        alias = _alias(name)
        lines.append(f"from {module} import {name}" + (f" as {alias}" if alias != name else ""))
        outside += [place] if place and place not in outside else []
    if outside:
        yield "import sys\n\n"
        yield from (f"sys.path.insert(0, {str(one)!r})\n\n" for one in outside)
    yield from (f"{line}{'  # noqa: E402' if outside else ''}\n" for line in dict.fromkeys(lines))


def _module(path: Path, folder: Path) -> tuple[str, Path | None]:
    """The module of a file, and the folder that has to be on the import path where it is not the target's own."""
    if path.is_relative_to(folder):
        names = path.relative_to(folder).with_suffix("").parts
        if all(name.isidentifier() for name in names):
            return ".".join(names), None
    if not path.stem.isidentifier():
        raise UsageError(f"{path.name!r} is not the name of a module; rename it, or write the target by hand.")
    return path.stem, path.parent
