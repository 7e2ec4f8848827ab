"""Reference pages and JSON Schemas from what they are about: rules, fixes, command line, records, scenarios.

``make docs`` writes them and a test fails where a stored one is old::

    python docs/reference.py
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import textwrap
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import ModelSchema
from typer.main import get_command

from xttsbench.cli.app import app
from xttsbench.findings import RULES
from xttsbench.findings.rule import Rule
from xttsbench.fixes.registry import SPECS
from xttsbench.records.base import SCHEMA_VERSION, Record
from xttsbench.records.frames import DTYPES, TABLES
from xttsbench.records.missing import Reasoned
from xttsbench.records.report import Report
from xttsbench.records.watch import SUMMARY_FILE, WatchSummary
from xttsbench.scenario.settings import Scenario
from xttsbench.workflows.explain import explain

HERE = Path(__file__).parent
_COMMANDS = """\
# Commands and options

<!-- Written by `make docs` from the command line itself: change xttsbench/cli, not this page. -->

What `xttsbench COMMAND --help` prints, the options of several commands in one table. Exit codes, files and defaults of
your own are on [the page before this](command-line.md).
"""
_REPORT = """\
# The fields of report.json

<!-- Written by `make docs` from xttsbench/records/report.schema.json: change the records, not this page. -->

What a program finds in `report.json`, from [its JSON Schema](../xttsbench/records/report.schema.json), which comes with
the package. Units are in the names (`_s` is seconds), in that of the field that holds the object (`attribution_s`), or
in the meaning. Fields may be added within a `schema_version`, so expect some that are not here. Where a type is *or
null*, `{"missing": "why"}` may stand in place of a value that was not measured. To read a report with your own eyes,
see [reading a report](reading-a-report.md).
"""


_SUMMARY = """\
# The fields of summary.json

<!-- Written by `make docs` from xttsbench/records/watch.py: change the records, not this page. -->

What a program finds in the `summary.json` of [a watched run](watch.md). Units are in the names (`_s` is seconds), in
that of the field that holds the object (`attribution_s`), or in the meaning.
Fields may be added within a `schema_version`, so expect some that are not here. The file is replaced whole every few
seconds while the run goes on.
"""


_FINDINGS = """\
# Findings

<!-- Written by `make docs` from the rules in xttsbench/findings: change them, not this page. -->

A rule looks at what was measured, and at the source, and says what it saw, where, with which numbers, and what to do.
A threshold below says what has to hold, at least, before a rule reports something, and before its finding is called a
*bottleneck*. A step *waits* for data, or for cores, where that is the verdict, or where it takes 10 % of the step. No
part counts as 10 % of the step under an undecided verdict. A fix *helps* where it was accepted, or where it was
measured or estimated to make a step that waits faster by 10 % (by 5 % where several processes measured it). The *pace*
of an op is the least time that it needs for a batch; shares of it are of the sum over all ops of the pipeline.
`xttsbench explain RULE` prints the text of one rule.
"""
_FINDINGS_END = "`xttsbench data verify` checks the files of a speech data set.\n"


def findings_page() -> str:
    """The rules by what they are about: links to them, then each in words."""
    return "\n".join((_FINDINGS, *(part for about in RULES for part in _section(about)), _FINDINGS_END))


def _section(about: str) -> Iterator[str]:
    yield f"## {about}\n\n{', '.join(f'[`{rule.id}`](#{rule.id})' for rule in RULES[about])}\n"
    yield from (_rule(rule) for rule in RULES[about])


def _rule(rule: Rule) -> str:
    said = (("Threshold", rule.threshold), ("Known false alarms", rule.false_alarms))
    lines = "".join(f"- **{name}:** {text[0].upper()}{text[1:]}.\n" for name, text in said if text != "none known")
    parts = explain(rule.id).parts
    code = "\n".join(_code(f"{side}:", parts[side]) for side in ("Bad", "Good"))
    return f"### {rule.id}\n\n{rule.symptom}\n\n{code}\n{lines}- **Remedy:** {rule.remedy}\n"


def _code(lead: str, lines: Sequence[str]) -> str:
    language = "console" if lines[0].startswith("$") else "python"
    return "\n".join((lead, "", f"```{language}", *lines, "```", ""))


def fixes_page() -> str:
    """docs/fixes.md with its table written anew: a row for each fix, in the order in which fixes are applied."""
    rows = (
        f"| `{one.usage}` | {one.does} | {', '.join(f'`{rule}`' for rule in one.mends)} |" for one in SPECS.values()
    )
    table = "\n".join(("| fix | what it does | findings that it mends |", "|---|---|---|", *rows))
    text = (HERE / "fixes.md").read_text(encoding="utf-8")
    return re.sub(r"^\| fix \|.*?(?=\n\n)", lambda _: table, text, count=1, flags=re.MULTILINE | re.DOTALL)


def frames_page() -> str:
    """docs/frames.md with the columns of each table written anew."""
    text = (HERE / "frames.md").read_text(encoding="utf-8")
    for name, columns in TABLES.items():
        ends = {one.name for one in columns if one.name.endswith(("_low", "_high"))}
        rows = (
            f"| `{one.name}` | {DTYPES[one.type]} | {one.unit} | {one.meaning}"
            f"{' (estimate)' * (f'{one.name}_low' in ends)} |\n"
            for one in columns
            if one.name not in ends
        )
        table = f"### {name}\n\n| column | type | unit | meaning |\n|---|---|---|---|\n{''.join(rows)}"
        text = re.sub(rf"^### {name}\n.*?(?=^#|\Z)", lambda _, made=table: f"{made}\n", text, flags=re.M | re.S)
    return text.rstrip("\n") + "\n"


_SHARED = 3
"""Commands that have the same option, in the same words, from which on it is explained once for all of them."""


def commands_page() -> str:
    """Every command with its arguments, options, defaults and examples, in the groups of ``--help``."""
    group = get_command(app)
    found = list(_commands(group, "xttsbench"))
    panels: dict[str, list[str]] = {}
    having: dict[str, list[str]] = {}
    for name, command in found:
        panel = getattr(group.commands[name.split()[1]], "rich_help_panel", None) or "Commands"
        panels.setdefault(panel, []).append(f"[`{name}`](#{name.replace(' ', '-')})")
        for row in _rows(name, command)["option"]:
            having.setdefault(row, []).append(name.removeprefix("xttsbench "))
    links = (f"## {panel}\n\n{', '.join(names)}\n" for panel, names in panels.items())
    shared = {row: names for row, names in having.items() if len(names) >= _SHARED}
    of = {row: "all" if len(names) == len(found) else ", ".join(names) for row, names in shared.items()}
    rows = "".join(f"{row[:-1]} {names} |\n" for row, names in of.items())
    options = f"## Options of several commands\n\n| option | | commands |\n|---|---|---|\n{rows}"
    return "\n".join((_COMMANDS, *links, options, *(_command(name, command, shared) for name, command in found)))


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _command(name: str, command: Any, shared: Container[str]) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    paragraphs = command.help.split("\n\n")
    examples = [one.split("Example:", 1)[1].strip() for one in paragraphs if one.startswith("Example:")]
    words = [" ".join(one.split()) for one in paragraphs if not one.startswith("Example:")]
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    own = {kind: [row for row in rows if row not in shared] for kind, rows in _rows(name, command).items()}
    tables = (f"\n| {kind} | |\n|---|---|\n{''.join(found)}" for kind, found in own.items() if found)
    said, fenced = "\n\n".join(words), "\n".join((usage, *examples))
    return f"## {name}\n\n{said}\n\n```\n{fenced}\n```\n{''.join(tables)}"


def _rows(name: str, command: Any) -> dict[str, list[str]]:
    """The arguments and options of a command, each as a row of a table."""
    context = command.make_context(name, [], resilient_parsing=True)
    rows: dict[str, list[str]] = {"argument": [], "option": []}
    for parameter in (one for one in command.params if not getattr(one, "hidden", False)):
        what, meaning = parameter.get_help_record(context)
        rows[parameter.param_type_name].append(f"| `{_cell(what, code=True)}` | {_cell(meaning)} |\n")
    return rows


def report_page() -> str:
    """Every field of report.json."""
    return _fields(_REPORT, "Report", report_schema())


def summary_page() -> str:
    """Every field of summary.json; records that a report has too are on its page."""
    there = report_schema()["$defs"]
    page = _fields(_SUMMARY, "WatchSummary", report_schema(WatchSummary, SUMMARY_FILE), known=there)
    return re.sub(r"\(#(\w+)\)", lambda at: f"({_page(at[1], there)}#{at[1]})", page)


def _page(anchor: str, there: Iterable[str]) -> str:
    return "report-json.md" if anchor in map(str.lower, there) else ""


def _fields(lead: str, title: str, whole: dict[str, Any], known: Container[str] = ()) -> str:
    """Every field with its type and meaning, the records in the order in which one meets them, without the known."""
    records, order = whole["$defs"], [""]
    for name in order:  # which grows as it is read
        found = dict.fromkeys(_references(records[name] if name else whole))
        order += [one for one in found if one not in order and one not in known]
    return "\n".join((lead, *(_record(name or title, records[name] if name else whole) for name in order)))


def _references(part: Any) -> Iterator[str]:
    """The records that a part names, without those of its definitions."""
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for key, value in part.items():
            if key != "$defs":
                yield from _references(value)
    elif isinstance(part, list):
        for one in part:
            yield from _references(one)


def _record(name: str, part: dict[str, Any]) -> str:
    fields = {field: what.get("description") for field, what in part["properties"].items()}
    rows = "".join(
        f"| `{field}` | {_type(part['properties'][field])} | {_cell(said)} |\n"
        for field, said in fields.items()
        if said
    )
    plain: dict[str, list[str]] = {}  # fields whose names say all, by type
    for field in (field for field, said in fields.items() if not said):
        plain.setdefault(_type(part["properties"][field]), []).append(f"`{field}`")
    listed = "; ".join(f"{', '.join(named)} ({kind})" for kind, named in plain.items())
    table = f"| field | type | meaning |\n|---|---|---|\n{rows}" if rows else ""
    others = f"{'Besides' if rows else 'Fields'}: {listed}\n" if listed else ""
    return f"## {name}\n\n{_cell(part['description'])}\n\n" + "\n".join(filter(None, (table, others)))


def _type(part: dict[str, Any]) -> str:
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in part:
        return " or ".join(_type(one) for one in part["anyOf"] if not one.get("$ref", "").endswith("/Missing"))
    if "enum" in part:
        return ", ".join(f"`{one}`" for one in part["enum"])
    if "const" in part:
        return f"`{part['const']}`"
    if part.get("type") == "array":
        return f"list of {_type(part['items'])}" if "items" in part else "list"
    if isinstance(part.get("additionalProperties"), dict):
        return f"object of {_type(part['additionalProperties'])}"
    return str(part.get("type", "anything"))


def _cell(text: str, *, code: bool = False) -> str:
    """Text of a docstring or of help in a line of Markdown."""
    plain = text.replace("``None``", "null").replace(":mod:", "").replace("``", "`")
    pieces = " ".join(plain.split()).replace("|", r"\|").split("`")
    return pieces[0] if code else "`".join(one if at % 2 else one.replace("<", "&lt;") for at, one in enumerate(pieces))


def report_schema(record: type[Record] = Report, file: str = "report.json") -> dict[str, Any]:
    """The schema of a file that holds one such record, by default of this version's reports."""
    made: dict[str, Any] = _open(record.model_json_schema(schema_generator=_Documented))
    made["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    if issubclass(record, Reasoned):
        made = _with_reasons(made) | {"$defs": _with_reasons(made["$defs"]) | {"Missing": _MISSING}}
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **made,
        "title": f"{file} of xttsbench, schema_version {SCHEMA_VERSION}",
        "required": sorted({*made["required"], "schema_version"}),
    }


_MISSING = {
    "description": "A value that was not measured.",
    "type": "object",
    "properties": {"missing": {"type": "string", "description": "The reason, as a part of a sentence."}},
    "required": ["missing"],
}


def _with_reasons(part: Any) -> Any:
    """Let a reason stand wherever a value may be null."""
    if isinstance(part, dict):
        found = {key: _with_reasons(value) for key, value in part.items()}
        if {"type": "null"} in found.get("anyOf", ()):
            found["anyOf"] = [*found["anyOf"], {"$ref": "#/$defs/Missing"}]
        return found
    return [_with_reasons(one) for one in part] if isinstance(part, list) else part


class _Documented(GenerateJsonSchema):
    """With the docstrings beneath fields as their descriptions."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for record in schema["cls"].__mro__[:-2]:  # without object and BaseModel
            for field, meaning in _meanings(record):
                if field in made["properties"]:
                    made["properties"][field].setdefault("description", meaning)
        return made


def _meanings(record: type) -> Iterator[tuple[str, str]]:
    """The fields of a record that have a docstring beneath them.

    Pydantic's ``use_attribute_docstrings`` reads them from the source as well, but whenever the module is imported.
    """
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(found, ast.ClassDef)
    for field, beneath in pairwise(found.body):
        match field, beneath:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(meaning))):
                yield name, inspect.cleandoc(meaning)


def _open(part: Any, *, named: bool = False) -> Any:
    """Without what would refuse fields that a later release adds, and without titles, which repeat the keys.

    Where its keys are the names of fields, all are kept.
    """
    if isinstance(part, dict):
        kept = (
            part
            if named
            else {k: v for k, v in part.items() if k != "title" and (k, v) != ("additionalProperties", False)}
        )
        return {key: _open(value, named=not named and key in ("properties", "$defs")) for key, value in kept.items()}
    return [_open(one) for one in part] if isinstance(part, list) else part


class _Untitled(GenerateJsonSchema):
    """Without titles of fields, which would repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return {"$schema": self.schema_dialect} | super().generate(schema, mode)


def scenario_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario, for editors: what each key may hold, but not what several together must be."""
    made: dict[str, Any] = _plain_text(Scenario.model_json_schema(by_alias=True, schema_generator=_Untitled))
    return made


def _plain_text(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: value.replace("``", "`") if key == "description" and isinstance(value, str) else _plain_text(value)
            for key, value in part.items()
        }
    return [_plain_text(item) for item in part] if isinstance(part, list) else part


def written() -> dict[Path, str]:
    """Every file that is made here, and what is in it."""
    root = HERE.parent
    return {
        HERE / "findings.md": findings_page(),
        HERE / "fixes.md": fixes_page(),
        HERE / "frames.md": frames_page(),
        HERE / "commands.md": commands_page(),
        HERE / "report-json.md": report_page(),
        HERE / "summary-json.md": summary_page(),
        root / "xttsbench/records/report.schema.json": _json(report_schema(), indent=1),
        root / "scenarios/scenario.schema.json": _json(scenario_schema(), indent=2),
    }


def _json(schema: dict[str, Any], indent: int) -> str:
    return json.dumps(schema, indent=indent, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
    for other in ("symptoms", "limits", "screens"):
        runpy.run_path(str(HERE / f"{other}.py"), run_name="__main__")
