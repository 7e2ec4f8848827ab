"""What a measured pipeline of others comes to, in words and as tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from xttsbench.records.report import SPOKEN

WORTH = 1.1  # a published faster form counts from here on
MARKS = ("<!-- others: written by python benchmarks/others --readme -->", "<!-- /others -->")
_OP = re.compile(r"\b(?:Parallel)?([A-Z][a-z]+)\w*Dataset(?:V\d)?/_\d+")
Row = Mapping[str, Any]


def said(report: Mapping[str, Any], file: str, source: str) -> dict[str, Any]:
    """What a report says: verdict, share, the line that it names (as text of ``source``), fixes, data.

    Args:
        report: ``report.json``.
        file: name of the target's file.
        source: its text.
    """
    verdict, optimized = report["verdict"], report.get("optimized") or {}
    share = _share(verdict)
    chosen = next((fix for fix in report.get("fixes") or () if fix.get("chosen")), None)
    tried = [fix for fix in report.get("fixes") or () if fix.get("outcome") != "accepted"]
    return {
        "verdict": verdict["bottleneck"],
        "share": share,
        "confidence": verdict["confidence"],
        "summary": _short(verdict["summary"]),
        "step_ms": _ms(verdict.get("step_time_s")),
        **_named(report, file, source),
        "fixes": list(optimized.get("fixes") or ()),
        "what": chosen and _OP.sub(lambda op: op[1].lower(), chosen["what"]),
        "claimed": optimized.get("speedup"),
        "same": optimized.get("equivalent"),
        "data": optimized.get("data"),
        "machine": (report.get("disturbance") or {}).get("sentence"),
        "not_accepted": {fix["name"]: _short(fix.get("why") or fix["outcome"]) for fix in tried},
    }


def _share(verdict: Mapping[str, Any]) -> float | None:
    parts, step = verdict.get("attribution_s") or {}, verdict.get("step_time_s")
    part = parts.get(verdict["bottleneck"])
    return None if part is None or not step else round(part / step["estimate"], 3)


def _ms(found: Mapping[str, float] | None) -> float | None:
    return round(found["estimate"] * 1e3, 3) if found else None


def _named(report: Mapping[str, Any], file: str, source: str) -> dict[str, Any]:
    """The first rule that limits and has a place, best in the target, with its remedy; the line that the verdict names.

    A verdict that names none, as of a step, has the line of that rule.
    """
    found: dict[str, Any] = {"rule": None, "remedy": None, "line": None}
    placed = [one for one in report["findings"] if one["limiting"] and (one.get("location") or {}).get("line")]
    placed.sort(key=lambda one: PurePath(one["location"]["file"]).name != file)  # a module beside it comes after it
    for finding in placed[:1]:
        own = PurePath(finding["location"]["file"]).name == file
        line = finding["location"]["line"] if own else None
        found = {"rule": finding["rule"], "remedy": _short(finding.get("remedy") or ""), "line": line}
    said_of = re.search(rf"{re.escape(file)}:(\d+)", report["verdict"]["summary"])
    line = int(said_of[1]) if said_of else found["line"]
    return found | {"line": line, "code": source.splitlines()[line - 1].strip() if line else None}


def _short(text: str) -> str:
    """Without the folders of this machine."""
    return re.sub(r"/\S+/(?=[\w.]+:\d+)", "", text)


def outcome(row: Row) -> str:
    """Right, wrong, silent or undecided, with the reason: of the verdict and of what a loop measured."""
    if row.get("failed"):
        return f"wrong: {row['failed']}"
    if row["verdict"] == "inconclusive":
        return "undecided"
    if row["verdict"] not in row["known"]:
        return f"wrong: {' or '.join(row['known'])} is right"
    if row.get("advised") and not row.get("remedy"):
        return "silent: no remedy with a line"
    own = row.get("own_ratio")
    if row.get("ratio") is None:
        if own and own["low"] > WORTH:
            return f"silent: its authors' own form is {own['estimate']:.2g} times as fast"
        if helped := [name for name, one in _tried(row).items() if one["low"] > WORTH]:
            return f"silent: {helped[0]} by hand is faster"
        if row["verdict"] == "compute":
            return "right: nothing to change"
        if nothing_helps(row):
            return "right: nothing to change, as tried by hand"
        open_ = [name for name, why in (row.get("not_accepted") or {}).items() if why.startswith("undecided")]
        return f"undecided: {', '.join(open_)}" if open_ else "silent: no fix"
    if row.get("same") is False or row.get("same_in_loop") is False:
        return "wrong: other data"
    ratio = row["ratio"]
    if ratio["high"] < 1:
        return "wrong: slower"
    if ratio["low"] <= 1:
        return "undecided"
    if own and not row.get("advised") and own["low"] > ratio["high"] * WORTH:
        return f"right in part: its authors' own form is {own['estimate']:.2g} times as fast"
    return "right"


def _tried(row: Row) -> dict[str, Mapping[str, float]]:
    """Edits by hand, but for those after which a loop has other data."""
    return {name: one for name, one in (row.get("tried") or {}).items() if one.get("same") is not False}


def nothing_helps(row: Row) -> bool:
    """Whether edits with the same data were tried, and none, nor the authors' own form, can be WORTH it."""
    found = [*_tried(row).values(), *filter(None, [row.get("own_ratio")])]
    return bool(_tried(row)) and all(one["high"] <= WORTH for one in found)


def markdown(result: Mapping[str, Any]) -> str:
    """The page of a benchmark's results."""
    head = "pipeline", "command", "verdict", "names", "changed", "before", "after", "ratio", "authors' own", "data", "s"
    rows = result["rows"]
    lines = [
        "# Pipelines of others, before and after",
        "",
        f"{len(rows)} pipelines of {len({row['repository'] for row in rows})} repositories, on {result['machine']}. "
        "Before and after are milliseconds a step of a plain loop with a clock, without xttsbench, in turns of fresh "
        "processes, whole epochs after a first one; intervals are 95 %. The authors' own is the faster form that they "
        "publish beside it.",
        "",
        f"| {' | '.join((*head, 'outcome'))} |",
        "|" + "---|" * (len(head) + 1),
        *(f"| {' | '.join(_cells(row))} |" for row in rows),
        "",
        "Code:",
        "",
        *(f"- {name} at {commit}" for name, commit in sorted({(r["repository"], r["commit"]) for r in rows})),
        "",
        "Beside the command, as its report says:",
        "",
        *(f"- {_text(row['case'])}: {_text(row['machine'])}" for row in rows if row.get("machine")),
        "",
        "Not accepted, and why:",
        "",
        *(f"- {_text(row['case'])}: {reasons}" for row in rows if (reasons := _reasons(row))),
        "",
        "Tried by hand, times as fast as before:",
        "",
        *(f"- {_text(row['case'])}: {tried}" for row in rows if (tried := _by_hand(row))),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _cells(row: Row) -> Iterable[str]:
    share = "" if row.get("share") is None else f" {row['share']:.0%}"
    return (
        _text(row["title"]),
        f"`{row['command']}`",
        f"{_verdict(row)}{share}",
        _code(row.get("code")),
        _text(_changed(row)),
        _number(row.get("before_ms")),
        _number(row.get("after_ms")),
        _interval(row.get("ratio")),
        _number(row.get("own_ms")) + (f", {_interval(row['own_ratio'])}" if row.get("own_ratio") else ""),
        _text(_data(row)),
        f"{row['seconds']:.0f}" if row.get("seconds") else "",
        _text(row["outcome"]),
    )


def _verdict(row: Row) -> str:
    name = str(row.get("verdict", "nothing"))
    return SPOKEN.get(name, name)


def _changed(row: Row) -> str:
    if row.get("advised"):
        return "by hand"
    how = "patch" if row.get("patch") else "plan, no patch"
    return f"{', '.join(row['fixes'])} ({how})" if row.get("fixes") else "nothing"


def _data(row: Row) -> str:
    if not row.get("fixes"):
        return ""
    loop = {True: "in a loop as well", False: "other in a loop", None: "not compared in a loop"}
    return f"{'same' if row['same'] else 'not proved'}, {loop[row.get('same_in_loop')]}"


def _reasons(row: Row) -> str:
    return "; ".join(f"{_text(name)} ({_text(why)})" for name, why in (row.get("not_accepted") or {}).items())


def _by_hand(row: Row) -> str:
    data = {True: "the same data", False: "other data", None: "data not compared"}
    tried = row.get("tried") or {}
    return "; ".join(f"{_text(name)} {_interval(one)}, {data[one.get('same')]}" for name, one in tried.items())


def readme(rows: Sequence[Row]) -> list[str]:
    """The lines of the README: how many pipelines are faster, and of most repositories the first that was timed."""
    faster = [row for row in rows if row.get("ratio") and row["outcome"].startswith("right")]
    by_hand = sum(bool(row.get("advised")) for row in faster)
    lines = [
        f"Of {len(rows)} public pipelines, as published, {len(faster)} became faster: {len(faster) - by_hand} by "
        f"what `xttsbench optimize` wrote, {by_hand} by hand, on the advice of the report. Some of them:",
        "",
        "| code | change | before, ms | after |",
        "|---|---|---|---|",
    ]
    # By hand only what a word or two say: what to do in a line that is named is on the page of the case studies.
    by_line = "host", "input"
    named = [row for row in rows if row.get("ratio") and not (row.get("advised") and row["verdict"] in by_line)]
    timed = {row["repository"]: row for row in reversed(named)}
    for row in [row for row in rows if row in timed.values()]:
        right = row["outcome"].startswith("right")
        change = _text(_advice(row)) if right else f"**{_text(row['outcome'])}**"
        before, after = (_number(row.get(side)) for side in ("before_ms", "after_ms"))
        lines.append(f"| {_text(row['title'])} | {change} | {before} | {after} |")
    return lines


def cases(rows: Sequence[Row]) -> list[str]:
    """The tables of the case studies: what was changed and timed, and what was not, with the reasons."""
    head = "code", "case", "command", "verdict", "patch", "before, ms", "after", "times as fast", "authors' own", "data"
    lines = [f"| {' | '.join((*head, 'outcome'))} |", "|" + "---|" * (len(head) + 1)]
    timed = [row for row in rows if row.get("ratio")]
    for row in timed:
        title, command, verdict, _, patch, before, after, ratio, own, data, _, outcome_ = _cells(row)
        cells = title, f"`{row['case']}`", command, verdict, patch, before, after, ratio, own, data, outcome_
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| code | case | command | verdict | ms a step | outcome | not accepted | tried by hand |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row not in timed:
            title, command, verdict, _, _, before, *_, outcome_ = _cells(row)
            cells = title, f"`{row['case']}`", command, verdict, before, outcome_, _reasons(row), _by_hand(row)
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _advice(row: Row) -> str:
    if row.get("advised"):
        return "compile the step, by hand"
    if row.get("fixes"):
        return str(row["what"]).replace("a cache in memory", "cache")
    return "change nothing" if row["verdict"] == "compute" else "no fix"


def with_table(text: str, lines: Sequence[str]) -> str:
    """A page's text with the lines between its marks made anew.

    Raises:
        ValueError: the marks are not there.
    """
    before, first, rest = text.partition(MARKS[0])
    _, second, after = rest.partition(MARKS[1])
    if not first or not second:
        raise ValueError(f"no lines {MARKS[0]!r} and {MARKS[1]!r} to put the table between")
    return before + "\n".join([MARKS[0], *lines, MARKS[1]]) + after


def _interval(found: Mapping[str, float] | None) -> str:
    return f"{found['estimate']:.3g} ({found['low']:.3g} to {found['high']:.3g})" if found else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _code(text: str | None) -> str:
    return f"`{_text(text).replace('`', '')}`" if text else ""


def _text(value: Any) -> str:
    """One line without what a table or Markdown would take for its own."""
    return re.sub(r"\s+", " ", str(value)).replace("|", "/").replace("<", "&lt;")
