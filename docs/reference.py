"""Reference pages from what they are about: the command line from its parser, report.json from its schema.

``make docs`` writes them and a test fails where a stored one is old::

    python docs/reference.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from xttsbench.cli.app import app
from xttsbench.records.report_schema import schema
from xttsbench.records.watch import SUMMARY_FILE, WatchSummary

HERE = Path(__file__).parent
_COMMANDS = """\
# Commands and options

<!-- Written by `make docs` from the command line itself: change xttsbench/cli, not this page. -->

What `xttsbench COMMAND --help` prints. Exit codes, files and defaults of your own are on [the page before
this](command-line.md).
"""
_REPORT = """\
# The fields of report.json

<!-- Written by `make docs` from xttsbench/records/report.schema.json: change the records, not this page. -->

What a program finds in `report.json`, from [its JSON Schema](../xttsbench/records/report.schema.json), which comes with
the package. Units are in the names (`_s` is seconds). Fields are only added within a `schema_version`, so expect some
that are not here. A field that is null was not measured; the reason is in `unmeasured`. To read a report with your own
eyes, see [reading a report](reading-a-report.md).
"""


_SUMMARY = """\
# The fields of summary.json

<!-- Written by `make docs` from xttsbench/records/watch.py: change the records, not this page. -->

What a program finds in the `summary.json` of [a watched run](watch.md). Units are in the names (`_s` is seconds).
Fields are only added within a `schema_version`, so expect some that are not here. A field that is null was not
measured; the reason is in `unmeasured`. The file is replaced whole every few seconds while the run goes on.
"""


def commands_page() -> str:
    """Every command with its arguments, options, defaults and examples, in the groups of ``--help``."""
    group = get_command(app)
    found = list(_commands(group, "xttsbench"))
    panels: dict[str, list[str]] = {}
    for name, command in found:
        panel = getattr(group.commands[name.split()[1]], "rich_help_panel", None) or "Commands"
        does = command.help.split("\n\n")[0]
        panels.setdefault(panel, []).append(f"| [`{name}`](#{name.replace(' ', '-')}) | {_cell(does)} |\n")
    tables = (f"## {panel}\n\n| command | what it does |\n|---|---|\n{''.join(rows)}" for panel, rows in panels.items())
    return "\n".join((_COMMANDS, *tables, *(_command(name, command) for name, command in found)))


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _command(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    paragraphs = command.help.split("\n\n")
    examples = [one.split("Example:", 1)[1].strip() for one in paragraphs if one.startswith("Example:")]
    words = [" ".join(one.split()) for one in paragraphs if not one.startswith("Example:")]
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows: dict[str, list[str]] = {"argument": [], "option": []}
    for parameter in command.params:
        what, meaning = parameter.get_help_record(context)
        rows[parameter.param_type_name].append(f"| `{_cell(what, code=True)}` | {_cell(meaning)} |\n")
    tables = (f"\n| {kind} | |\n|---|---|\n{''.join(found)}" for kind, found in rows.items() if found)
    said, fenced = "\n\n".join(words), "\n".join((usage, *examples))
    return f"## {name}\n\n{said}\n\n```\n{fenced}\n```\n{''.join(tables)}"


def report_page() -> str:
    """Every field of report.json."""
    return _fields(_REPORT, "Report", schema())


def summary_page() -> str:
    """Every field of summary.json."""
    return _fields(_SUMMARY, "WatchSummary", schema(WatchSummary, SUMMARY_FILE))


def _fields(lead: str, title: str, whole: dict[str, Any]) -> str:
    """Every field with its type and meaning, the records in the order in which one meets them."""
    records, order = whole["$defs"], [""]
    for name in order:  # which grows as it is read
        order += [one for one in dict.fromkeys(_references(records[name] if name else whole)) if one not in order]
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
    rows = "".join(
        f"| `{field}` | {_type(what)} | {_cell(what.get('description', ''))} |\n"
        for field, what in part["properties"].items()
    )
    return f"## {name}\n\n{_cell(part['description'])}\n\n| field | type | meaning |\n|---|---|---|\n{rows}"


def _type(part: dict[str, Any]) -> str:
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in part:
        return " or ".join(_type(one) for one in part["anyOf"])
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


if __name__ == "__main__":
    (HERE / "commands.md").write_text(commands_page(), encoding="utf-8")
    (HERE / "report-json.md").write_text(report_page(), encoding="utf-8")
    (HERE / "summary-json.md").write_text(summary_page(), encoding="utf-8")
