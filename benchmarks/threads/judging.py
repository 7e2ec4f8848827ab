"""Whether a report names a thread's cause, and cures it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

SURE = 0.95
"""Confidence from which on another cause is wrong rather than not named."""
GENERAL = frozenset({"input-bound"})
"""Rules that say no more than the verdict."""
Report = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A thread, and the truth about it.

    Attributes:
        number: from 1 on.
        reference: the public report, ``owner/repository#number``, or the script; several are joined by commas.
        title: its trouble in a few words.
        file: name in ``targets/``; the command runs in a folder that holds it.
        command: arguments of xttsbench, without ``--out``.
        cause: entries that all have to hold, each a kind and alternatives joined by ``|``:
            ``verdict input|contention``, the bottleneck; ``rule python-function``, a finding; ``limiting RULE``, one
            that limits; ``line TEXT``, a line with this text that the verdict or a finding points to; ``says TEXT``,
            words of the screen or of a finding; ``outcome same|differs``, of ``prove``.
        cured: fixes of which one has to be accepted, by name, ``native`` or ``cache``, or ``says TEXT`` of a remedy
            that is written out; ``None`` where there is no cure of ours.
        sentence: words of the screen, where it is not ours: that it is TensorFlow's doing, and what helps.
        environment: variables that the command is given.
    """

    number: int
    reference: str
    title: str
    file: str
    command: tuple[str, ...]
    cause: tuple[str, ...]
    cured: tuple[str, ...] | None
    sentence: str = ""
    environment: tuple[tuple[str, str], ...] = ()


def judged(case: Case, report: Report, screen: str, source: str) -> dict[str, Any]:
    """What was said, and whether that is right.

    Args:
        case: the thread.
        report: ``report.json``.
        screen: what the command printed.
        source: text of the target's file.
    """
    missing = [entry for entry in case.cause if not _holds(entry, case, report, screen, source)]
    optimized = report.get("optimized") or {}
    speed = optimized.get("speedup") or {}
    return {
        "verdict": report["verdict"]["bottleneck"],
        "confidence": report["verdict"]["confidence"],
        "said": _short(" ".join([report["verdict"]["summary"], *_titles(case, report)])),
        "limiting": sorted({finding["rule"] for finding in report["findings"] if finding["limiting"]}),
        "missing": missing,
        "named": "yes" if not missing else "WRONG" if _wrong(missing, report) else "no",
        "fixes": list(optimized.get("fixes") or ()),
        "speedup": speed if "estimate" in speed else None,  # else the reason why there is none
        "cured": _cured(case, report, screen),
        "code": [text for text in _coded(case) if _says(report, screen, [text])],
        "machine": (report.get("disturbance") or {}).get("sentence"),
    }


def _holds(entry: str, case: Case, report: Report, screen: str, source: str) -> bool:
    kind, _, rest = entry.partition(" ")
    wanted, findings = rest.split("|"), report["findings"]
    if kind == "verdict":
        return report["verdict"]["bottleneck"] in wanted
    if kind == "outcome":
        return (report.get("proof") or {}).get("outcome") in wanted
    if kind == "says":
        return _says(report, screen, wanted)
    if kind == "line":
        lines = list(_lines(report, case.file, source))
        return any(text in line for text in wanted for line in lines)
    return any(finding["rule"] in wanted and (kind == "rule" or finding["limiting"]) for finding in findings)


def _titles(case: Case, report: Report) -> list[str]:
    """What the first finding says that is the case's, beside the verdict."""
    entries = [entry.partition(" ") for entry in case.cause]
    rules = {rule for kind, _, rest in entries if kind in ("rule", "limiting") for rule in rest.split("|")}
    return [finding["title"] for finding in report["findings"] if finding["rule"] in rules][:1]


def _coded(case: Case) -> list[str]:
    """Parts of a remedy that is written out as code."""
    return [entry.removeprefix("says ") for entry in case.cured or () if entry.startswith("says ")]


def _says(report: Report, screen: str, wanted: Sequence[str]) -> bool:
    """Whether a text is on the screen or in a finding, wherever its lines are broken."""
    found = [screen, *(f"{finding['title']} {finding['remedy']}" for finding in report["findings"])]
    said = [" ".join(text.split()).lower() for text in found]
    return any(text.lower() in one for text in wanted for one in said)


def _lines(report: Report, file: str, source: str) -> Iterable[str]:
    """Lines of the target that the verdict or a finding points to."""
    text = source.splitlines()
    numbers = {int(number) for number in re.findall(rf"{re.escape(file)}:(\d+)", report["verdict"]["summary"])}
    places = [finding.get("location") or {} for finding in report["findings"]]
    numbers |= {where["line"] for where in places if where.get("line") and PurePath(where["file"]).name == file}
    return [text[number - 1] for number in numbers if number <= len(text)]


def _wrong(missing: Sequence[str], report: Report) -> bool:
    """Whether another cause was asserted with confidence: another verdict, or other rules that limit."""
    verdict = report["verdict"]
    if verdict["bottleneck"] == "inconclusive" or verdict["confidence"] < SURE:
        return False
    kinds = {entry.partition(" ")[0] for entry in missing}
    limiting = {finding["rule"] for finding in report["findings"] if finding["limiting"]} - GENERAL
    return "verdict" in kinds or ("limiting" in kinds and bool(limiting))


def _cured(case: Case, report: Report, screen: str) -> str:
    """``yes``, ``no``, ``not ours`` with its sentence said, or ``WRONG`` where other data were proposed."""
    if (report.get("optimized") or {}).get("equivalent") is False:
        return "WRONG"
    if case.cured is None:
        return "not ours" if _says(report, screen, [case.sentence]) else "no"
    accepted = {re.split(r"[@:]", fix)[0] for fix in (report.get("optimized") or {}).get("fixes") or ()}
    return "yes" if accepted & set(case.cured) or _says(report, screen, _coded(case)) else "no"


def goals(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many causes are named and cured, and how many answers are wrong."""
    rows = list(rows)
    return {
        "cases": len(rows),
        "named": sum(row["named"] == "yes" for row in rows),
        "cured": sum(row["cured"] == "yes" for row in rows),
        "not_ours": sum(row["cured"] == "not ours" for row in rows),
        "wrong": sum("WRONG" in (row["named"], row["cured"]) for row in rows),
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The page of the stored results of the threads."""
    found = result["goals"]
    return page(
        "Threads of other people's trouble",
        f"{found['cases']} public reports, made anew in `benchmarks/threads/targets`, on {result['machine']}: cause "
        f"named in {found['named']}, cured in {found['cured']}, not ours and said so in {found['not_ours']}, wrong in "
        f"{found['wrong']}. `python benchmarks/threads` writes this page.",
        result,
    )


def page(title: str, about: str, result: Mapping[str, Any]) -> str:
    """A title, a paragraph, and the table of the rows."""
    lines = [
        f"# {title}",
        "",
        about,
        "",
        "| | report | cause | named | verdict, and the finding that names it | cured | how | times as fast | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        speed, how = row["speedup"], row["fixes"] or [f"code: `{one}`" for one in row.get("code", ())]
        times = f"{speed['estimate']:.3g} ({speed['low']:.3g} to {speed['high']:.3g})" if speed else ""
        cells = (
            row["number"], row["reference"], row["title"], row["named"], row["said"], row["cured"],
            ", ".join(how), times, f"{row['seconds']:.0f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(' '.join(str(cell).replace('|', '/').split()) for cell in cells)} |")
    beside = [f"- {row['number']}: {row['machine']}" for row in result["rows"] if row.get("machine")]
    lines += ["", "Beside the command, as its report says:", "", *beside] if beside else []
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    """Without the folders of this machine."""
    return re.sub(r"/\S+/(?=[\w.]+:\d+)", "", text)
